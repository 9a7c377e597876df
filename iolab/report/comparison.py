# SPDX-License-Identifier: MIT
"""What was measured on a host's own clock beside what virtual time says of the same claims."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from iolab.errors import UserError
from iolab.pathology.base import Claim
from iolab.paths import REFERENCE
from iolab.report.tables import overview
from iolab.stats.claims import boot_values
from iolab.stats.conditions import kernels_of, pathology_of
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.verdicts import verdict_table, verdict_text
from iolab.stats.welch import welch_difference
from iolab.store.dataset import Dataset, load

__all__ = [
    "AGREEMENTS",
    "COMPARISON_COLUMNS",
    "compare_clocks",
    "compare_with_virtual",
    "comparison_text",
]

AGREEMENTS: Final = ("agrees", "does not agree", "cannot be compared")

_SIDE: Final = ("kernel", "release", "scheduler", "estimate", "low", "high", "n", "verdict")
COMPARISON_COLUMNS: Final = (
    *("pathology", "claim", "kind", "secondary", "rule"),
    *_SIDE,
    *(f"virtual_{name}" for name in _SIDE),
    *("same_scheduler", "change_of", "change", "change_low", "change_high"),
    *("agreement", "reason"),
)
# What the agent says of a kernel that does not show its scheduler's settings.
_UNKNOWN: Final = "unknown"


def compare_with_virtual(
    data: Dataset, folder: Path | str | None = None, *, confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """Compare these data with virtual time: the data in `folder`, by default the reference.

    Empty where the data are virtual time themselves. Errors: as `iolab.store.dataset.load` and
    `compare_clocks`.
    """
    if data.cells["clock"].eq("virtual").all():
        return pd.DataFrame(columns=list(COMPARISON_COLUMNS))
    source = REFERENCE / pathology_of(data.cells).name if folder is None else Path(folder)
    return compare_clocks(data, load(source), confidence=confidence)


def compare_clocks(
    here: Dataset, virtual: Dataset, *, confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """Set each claim's result on each kernel measured here beside that in virtual time.

    The rule: a claim **agrees** where it has the same verdict on both sides, **does not agree**
    where it is reproduced on one and not reproduced on the other, and **cannot be compared** where
    a side was not measured or is inconclusive, or where the kernels are not the same. Each verdict
    is by the claim's own rule, fixed before measuring. How far apart the sizes are decides nothing,
    since virtual time predicts what happens, not how much a cache miss adds to it; it is told as
    the change from virtual time to here, with an interval (Welch on boots, not corrected for the
    number of claims).

    Kernels are the same if they have the same name (the first two numbers of the release; both
    releases are told) and not two schedulers. Where virtual time has not measured a name, a claim
    has a row for each kernel that it has, and none of them is taken for the nearest:
    ``same_scheduler`` marks those with the scheduler of the kernel here (NA where one of the two is
    not known).

    Columns: pathology, claim, kind, secondary, rule; of here kernel, release, scheduler, estimate,
    low, high, n (boots, or blocks of a machine that is not rebooted), verdict; the same of virtual
    time with ``virtual_`` before them; same_scheduler; change_of ("ratio" for claims of a ratio,
    else "difference", in the claim's unit), change, change_low, change_high (NaN where not the same
    kernel, or without replicates or spread); agreement (of `AGREEMENTS`); reason (why it cannot be
    compared, or "").

    Errors: UserError for data of two pathologies, or if `virtual` is not of virtual time.
    """
    pathology = pathology_of(here.cells)
    found = pathology_of(virtual.cells)
    if found is not pathology:
        raise UserError(f"results of {found.name} cannot stand beside those of {pathology.name}")
    if not virtual.cells["clock"].eq("virtual").all():
        clock = virtual.cells["clock"].iloc[0]
        raise UserError(f"what is to stand beside is of the {clock} clock, not of virtual time")
    left, right = (_sides(data, confidence) for data in (here, virtual))
    known = kernels_of(virtual.cells)
    rows = [
        _row(
            claim, (here, left[kernel, claim.name]), (virtual, right[other, claim.name]), confidence
        )
        for kernel in kernels_of(here.cells)
        for claim in pathology.claims
        for other in ([kernel] if kernel in known else known)
    ]
    return pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS)).astype(
        {"same_scheduler": "boolean"}
    )


def comparison_text(table: pd.DataFrame) -> Styler:
    """Format a table of `compare_clocks` for a page, with the count of claims that agree."""
    shown = pd.DataFrame(
        {
            "claim": table["claim"],
            "kernel": _named(table, ""),
            "here": _told(table, ""),
            "verdict": table["verdict"],
            "kernel in virtual time": _named(table, "virtual_"),
            "same scheduler": table["same_scheduler"].map({True: "yes", False: "no"}),
            "in virtual time": _told(table, "virtual_"),
            "verdict in virtual time": table["virtual_verdict"],
            "here against virtual time": _change(table),
            "agreement": table["agreement"],
            "why": table["reason"],
        }
    )
    counts = table["agreement"].value_counts()
    said = ", ".join(f"{word}: {counts.get(word, 0)}" for word in AGREEMENTS)
    return shown.style.format(na_rep="not known").hide().set_caption(f"{said}.")


def _sides(data: Dataset, confidence: float) -> dict[tuple[str, str], dict[Any, Any]]:
    """Return each measured kernel's verdicts by kernel and claim, with release and scheduler."""
    table = verdict_table(data, confidence=confidence)
    kernels = overview(data.cells)[["kernel", "release", "scheduler"]]
    rows = table.merge(kernels, on="kernel").to_dict("records")
    return {(str(row["kernel"]), str(row["claim"])): row for row in rows}


_Side = tuple[Dataset, dict[Any, Any]]


def _row(claim: Claim, here: _Side, virtual: _Side, confidence: float) -> dict[str, Any]:
    a, b = here[1], virtual[1]
    schedulers = {a["scheduler"], b["scheduler"]}
    same = pd.NA if _UNKNOWN in schedulers else len(schedulers) == 1
    same_kernel = a["kernel"] == b["kernel"] and same is not False
    change = (math.nan, math.nan, math.nan)
    if same_kernel and a["n"] and b["n"]:
        change = _changed(claim, here, virtual, confidence)
    reason = claim.requires or _incomparable(a, b, same_kernel=same_kernel)
    verdicts_agree = "agrees" if a["verdict"] == b["verdict"] else "does not agree"
    return {
        **{name: a[name] for name in ("pathology", "claim", "kind", "secondary", "rule", *_SIDE)},
        **{f"virtual_{name}": b[name] for name in _SIDE},
        "same_scheduler": same,
        "change_of": "ratio" if claim.contrast == "ratio" else "difference",
        **dict(zip(("change", "change_low", "change_high"), change, strict=True)),
        "agreement": "cannot be compared" if reason else verdicts_agree,
        "reason": reason,
    }


def _changed(
    claim: Claim, here: _Side, virtual: _Side, confidence: float
) -> tuple[float, float, float]:
    """Return the change from virtual time to here with its interval: a factor, or a difference."""
    a, b = (
        boot_values(data, claim, row["kernel"]).to_numpy(dtype=np.float64)
        for data, row in (here, virtual)
    )
    found = welch_difference(b, a, confidence)
    if claim.contrast == "ratio":
        return math.exp(found.mean), math.exp(found.low), math.exp(found.high)
    return found.mean, found.low, found.high


def _incomparable(a: dict[Any, Any], b: dict[Any, Any], *, same_kernel: bool) -> str:
    """Say why the result `a` here and `b` in virtual time cannot be compared, or ""."""
    sides = (("here", a), ("in virtual time", b))
    for where, row in sides:
        if row["verdict"] == "cannot run here":
            return f"{where}: {str(row['reason']).removeprefix('cannot run here: ')}"
    if not same_kernel:
        other = "kernel" if a["kernel"] != b["kernel"] else "scheduler"
        return f"another {other}"
    for where, row in sides:
        if row["verdict"] == "inconclusive":
            return f"{where}: inconclusive" + (f", {row['reason']}" if row["reason"] else "")
    return ""


def _named(table: pd.DataFrame, side: str) -> list[str]:
    return [
        f"{row[f'{side}kernel']} ({row[f'{side}release']}, {row[f'{side}scheduler']})"
        for row in table.to_dict("records")
    ]


def _told(table: pd.DataFrame, side: str) -> list[str]:
    """Return a side's results in words; nothing where there is none."""
    return [
        verdict_text({**{n: row[f"{side}{n}"] for n in ("estimate", "low", "high")}, "reason": ""})
        for row in table.to_dict("records")
    ]


def _change(table: pd.DataFrame) -> list[str]:
    changes = table[["change", "change_low", "change_high"]].set_axis(
        ["estimate", "low", "high"], axis=1
    )
    told = _told(changes, "")
    return [
        f"{of} {text}" if text else "" for of, text in zip(table["change_of"], told, strict=True)
    ]
