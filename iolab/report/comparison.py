# SPDX-License-Identifier: MIT
"""Compare claims measured on a host's own clock with the same claims in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from iolab.figures.verdicts import publish_comparison
from iolab.pathology.base import Claim
from iolab.paths import REFERENCE
from iolab.report.tables import overview
from iolab.shown import Paragraph, Table, text_table
from iolab.stats.claims import boot_values, in_unit
from iolab.stats.conditions import kernels_of, pathology_of
from iolab.stats.estimates import CONFIDENCE, welch_difference
from iolab.stats.verdicts import verdict_table, verdict_text
from iolab.store.dataset import Dataset, load
from iolab_base.errors import UserError

AGREEMENTS: Final = ("agrees", "does not agree", "cannot be compared")

_SIDE: Final = ("kernel", "release", "scheduler", "estimate", "low", "high", "n", "verdict")
COMPARISON_COLUMNS: Final = (
    *("pathology", "claim", "kind", "secondary", "rule"),
    *_SIDE,
    *(f"virtual_{name}" for name in _SIDE),
    *("same_scheduler", "change_of", "change", "change_low", "change_high"),
    *("agreement", "reason"),
)
# The agent's value for a kernel that does not show its scheduler's settings.
_UNKNOWN: Final = "unknown"


_SAME_CLOCK: Final = "These data were measured in virtual time: there is nothing to compare."
_NO_REFERENCE: Final = (
    "This pathology has no reference data in virtual time. To compare, measure it in a virtual "
    "machine and name that folder of results."
)


def compare_with_virtual(
    data: Dataset, folder: Path | str | None = None, *, confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """Compare data with the results in virtual time in a folder, as `compare_clocks`.

    By default these are the reference data of the pathology. Without them, and for data in virtual
    time, the table is empty.
    """
    if data.cells["clock"].eq("virtual").all():
        return pd.DataFrame(columns=list(COMPARISON_COLUMNS))
    source = REFERENCE / pathology_of(data.cells).name if folder is None else Path(folder)
    if folder is None and not source.is_dir():
        return pd.DataFrame(columns=list(COMPARISON_COLUMNS))
    return compare_clocks(data, load(source), confidence=confidence)


def compare_clocks(
    here: Dataset, virtual: Dataset, *, confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """Compare each claim's result on each kernel measured here with that in virtual time.

    A claim **agrees** where it has the same verdict on both sides, **does not agree** where it is
    reproduced on one and not reproduced on the other, and **cannot be compared** where a side was
    not measured or is inconclusive, or where the kernels differ. Each verdict follows the claim's
    own rule, fixed before measuring. How far apart the estimates are decides nothing: virtual time
    predicts what happens, not how much a cache miss adds to it. The change from virtual time to
    here has an interval (Welch on boots, not corrected for the number of claims).

    Kernels are the same if they have the same name (the first two numbers of the release) and the
    same scheduler, as far as both are known. Where virtual time lacks a kernel's name, a claim has
    a row for each kernel of virtual time, and none of them counts as the nearest.

    The columns are `COMPARISON_COLUMNS`; those of virtual time begin with ``virtual_``. ``n``
    counts boots, or blocks of a machine that is not rebooted. ``same_scheduler`` is NA where one of
    the two is not known. ``change_of`` is "ratio" for claims of a ratio, else "difference", in the
    claim's unit; the changes are NaN between different kernels, or without replicates or spread.
    ``agreement`` is one of `AGREEMENTS`; ``reason`` says why it cannot be compared, or is "".
    """
    pathology, other = pathology_of(here.cells), pathology_of(virtual.cells)
    if other is not pathology:
        raise UserError(f"{other.name} cannot be compared with {pathology.name}")
    if not virtual.cells["clock"].eq("virtual").all():
        clock = virtual.cells["clock"].iloc[0]
        raise UserError(f"the data to compare with are of the {clock} clock, not of virtual time")
    left, right = (_sides(data, confidence) for data in (here, virtual))
    known = kernels_of(virtual.cells)
    rows = [
        _row(claim, (here, left[kernel, claim.name]), (virtual, right[k, claim.name]), confidence)
        for kernel in kernels_of(here.cells)
        for claim in pathology.claims
        for k in ([kernel] if kernel in known else known)
    ]
    return pd.DataFrame(rows, columns=list(COMPARISON_COLUMNS)).astype(
        {"same_scheduler": "boolean"}
    )


def comparison_text(table: pd.DataFrame) -> Table:
    """Return rows of `compare_clocks` in words, with the counts of `AGREEMENTS` as the caption."""
    rows = pd.DataFrame(
        {
            "claim": table["claim"],
            "kernel": _named(table, ""),
            "here": _in_words(table, ""),
            "verdict": table["verdict"],
            "kernel in virtual time": _named(table, "virtual_"),
            "same scheduler": table["same_scheduler"].map({True: "yes", False: "no"}),
            "in virtual time": _in_words(table, "virtual_"),
            "verdict in virtual time": table["virtual_verdict"],
            "here against virtual time": _change(table),
            "agreement": table["agreement"],
            "why": table["reason"],
        }
    )
    return text_table(rows, na_rep="not known", caption=f"{agreements_text(table)}.")


def agreements_text(table: pd.DataFrame) -> str:
    """Return how many rows of `compare_clocks` have each word of `AGREEMENTS`."""
    counts = table["agreement"].value_counts()
    return ", ".join(f"{word}: {counts.get(word, 0)}" for word in AGREEMENTS)


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonSection:
    """A comparison with virtual time, which a notebook displays as figure, caption and table.

    ``table`` is as `compare_with_virtual` makes it. If it is empty, there
    is no figure, and the caption says why there is nothing to compare.
    """

    table: pd.DataFrame
    figure: Figure | None
    caption: str

    def _ipython_display_(self) -> None:
        # Only a notebook calls this: nothing else needs IPython.
        from IPython.display import display  # noqa: PLC0415

        parts: list[object] = [Paragraph(self.caption)]
        if self.figure is not None:
            parts = [self.figure, *parts, comparison_text(self.table)]
        display(*parts)  # type: ignore[no-untyped-call]


def comparison_section(
    data: Dataset, virtual: Path | str | None = None, folder: Path | str | None = None
) -> ComparisonSection:
    """Compare data of another clock with virtual time, claim by claim; the result shows itself.

    `virtual` is a folder of results in virtual time, by default the reference data. `folder` is
    where the figure is saved, if anywhere.
    """
    table = compare_with_virtual(data, virtual)
    if table.empty:
        virtual_time = data.cells["clock"].eq("virtual").all()
        return ComparisonSection(table, None, _SAME_CLOCK if virtual_time else _NO_REFERENCE)
    figure, text = publish_comparison(table, folder)
    return ComparisonSection(table, figure, text)


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
        "change_of": "ratio" if claim.logarithmic else "difference",
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
    change = welch_difference(b, a, confidence)
    mean, low, high = (in_unit(claim, one) for one in (change.mean, change.low, change.high))
    return mean, low, high


def _incomparable(a: dict[Any, Any], b: dict[Any, Any], *, same_kernel: bool) -> str:
    """Return why the result `a` here and `b` in virtual time cannot be compared, or ""."""
    sides = (("here", a), ("in virtual time", b))
    for where, row in sides:
        if row["verdict"] in ("not applicable", "not measured", "cannot run here"):
            return f"{where}: {row['reason']}"
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


def _in_words(table: pd.DataFrame, side: str) -> list[str]:
    """Return a side's results in words; no lines if it has none."""
    return [
        verdict_text({**{n: row[f"{side}{n}"] for n in ("estimate", "low", "high")}, "reason": ""})
        for row in table.to_dict("records")
    ]


def _change(table: pd.DataFrame) -> list[str]:
    changes = table[["change", "change_low", "change_high"]].set_axis(
        ["estimate", "low", "high"], axis=1
    )
    return [
        f"{of} {text}" if text else ""
        for of, text in zip(table["change_of"], _in_words(changes, ""), strict=True)
    ]
