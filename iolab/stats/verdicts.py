# SPDX-License-Identifier: MIT
"""Whether a report's claims hold, kernel by kernel, by rules that were fixed before measuring."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from iolab.errors import UserError
from iolab.pathology import get_pathology
from iolab.pathology.base import Claim
from iolab.stats.conditions import kernel_order, pathology_of
from iolab.stats.estimates import CONFIDENCE, t_interval
from iolab.store.dataset import Dataset, with_measure

__all__ = [
    "VERDICTS",
    "boot_values",
    "cells_of",
    "judge",
    "verdict_summary",
    "verdict_table",
    "verdict_text",
]

VERDICTS: Final = ("reproduced", "not reproduced", "inconclusive", "cannot run here")


@dataclass(frozen=True, slots=True)
class _Judged:
    estimate: float
    low: float
    high: float
    n: int
    verdict: str
    reason: str = ""


def verdict_table(data: Dataset, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Judge every claim of the data's pathology on every kernel, also those that could not run.

    Columns: pathology, kernel, claim, kind, secondary, statement, estimate, low, high, n (boots),
    rule, published, verdict (one of `VERDICTS`), reason, clock. ``estimate`` is what the claim is
    of, with the t interval over boots.
    """
    pathology = pathology_of(data.cells)
    kernels = sorted(data.cells["kernel"].unique(), key=kernel_order)
    rows = []
    unavailable = [kernel for kernel in data.unavailable["kernel"] if kernel not in kernels]
    for kernel in (*kernels, *unavailable):
        for claim in pathology.claims:
            judged = judge(data, claim, kernel, confidence=confidence)
            rows.append(
                {
                    "pathology": pathology.name,
                    "kernel": kernel,
                    "claim": claim.name,
                    "kind": claim.kind,
                    "secondary": claim.secondary,
                    "statement": claim.statement,
                    "estimate": judged.estimate,
                    "low": judged.low,
                    "high": judged.high,
                    "n": judged.n,
                    "rule": _rule(claim),
                    "published": math.nan if claim.published is None else claim.published,
                    "verdict": judged.verdict,
                    "reason": judged.reason,
                    "clock": data.cells["clock"].iloc[0],
                }
            )
    return pd.DataFrame(rows)


def verdict_summary(table: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Condense a verdict table: a row for each pathology and kernel.

    Columns: pathology, kernel, mechanism and magnitude (the verdict on all claims of that kind, or
    how many of them were reproduced), secondary claims (the same), confidence (the level and the
    fewest boots behind one), page (the notebook).
    """
    rows = []
    for (pathology, kernel), group in table.groupby(["pathology", "kernel"], sort=False):
        boots = group.loc[group["n"] > 0, "n"]
        rows.append(
            {
                "pathology": pathology,
                "kernel": kernel,
                **{
                    kind: _joint(group[(group["kind"] == kind) & ~group["secondary"]])
                    for kind in ("mechanism", "magnitude")
                },
                "secondary claims": _joint(group[group["secondary"]]),
                "confidence": f"{confidence:.0%}, {boots.min()} boots" if len(boots) else "none",
                "page": get_pathology(str(pathology)).notebook,
            }
        )
    return pd.DataFrame(rows)


def _rule(claim: Claim) -> str:
    """Say what must hold of the interval."""
    limit = f"above {claim.above:g}" if claim.above is not None else f"below {claim.below:g}"
    of = {"ratio": "treated / control", "difference": "treated - control", "treated": "treated"}
    return f"{claim.value}, {of[claim.contrast]}: {limit}"


def verdict_text(row: Mapping[Any, Any]) -> str:
    """Return a claim's row as a reader wants it: the estimate with its interval, or the reason."""
    if not math.isfinite(row["estimate"]):
        return str(row["reason"])
    # Boots that agree to the last digit have no interval to show.
    spread = math.isfinite(row["low"]) and row["low"] < row["high"]
    interval = f" [{row['low']:.3g}, {row['high']:.3g}]" if spread else ""
    return f"{row['estimate']:.3g}{interval}"


def _joint(claims: pd.DataFrame) -> str:
    verdicts = claims["verdict"]
    if verdicts.empty:
        return "no claim"
    if verdicts.nunique() == 1:
        return str(verdicts.iloc[0])
    return f"{(verdicts == 'reproduced').sum()} of {len(verdicts)} reproduced"


def judge(data: Dataset, claim: Claim, kernel: str, *, confidence: float = CONFIDENCE) -> _Judged:
    """Return the estimate, its interval over boots, and the verdict of a claim on a kernel."""

    def no(reason: str, verdict: str = "cannot run here") -> _Judged:
        return _Judged(math.nan, math.nan, math.nan, 0, verdict, reason)

    if claim.requires:
        return no(claim.requires)
    absence = _absence(data, kernel)
    if absence and not (data.cells["kernel"] == kernel).any():
        return no(absence)
    try:
        boots = boot_values(data, claim, kernel)
    except UserError as error:
        return no(str(error))
    if boots.empty:
        return no(_why_not(data, claim, kernel))
    n, mean = len(boots), float(boots.mean())
    if n < 2:
        return _Judged(_back(claim, mean), math.nan, math.nan, n, "inconclusive", "one boot")
    _, *ends = t_interval(boots.to_numpy(dtype=np.float64), confidence)
    # Boots that agree to the last digit are judged by their common value: counts often do.
    low, high = (_back(claim, mean if math.isnan(end) else end) for end in ends)
    return _Judged(_back(claim, mean), low, high, n, _ruled(claim, low, high))


def _back(claim: Claim, value: float) -> float:
    return math.exp(value) if claim.contrast == "ratio" else value


def _ruled(claim: Claim, low: float, high: float) -> str:
    if claim.above is not None:
        good, bad = low > claim.above, high <= claim.above
    else:
        limit = math.inf if claim.below is None else claim.below
        good, bad = high < limit, low >= limit
    return "reproduced" if good else "not reproduced" if bad else "inconclusive"


def cells_of(data: Dataset, claim: Claim, kernel: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Return a claim's treated cells with the controls of their pairs."""
    treatment = pathology_of(data.cells).treatment
    here = cells[(cells["kernel"] == kernel) & ~cells["aa"]]
    for name, level in claim.condition.items():
        if name != treatment:
            here = here[here[name] == level]
    treated = here[here[treatment] == claim.condition[treatment]]
    pairs = pd.MultiIndex.from_frame(treated[["block", "pair"]])
    return here[pd.MultiIndex.from_frame(here[["block", "pair"]]).isin(pairs)]


def boot_values(data: Dataset, claim: Claim, kernel: str) -> pd.Series:
    """Return one value a boot: of untraced cells, or of recorded ones where only they have it."""
    cells = with_measure(data, claim.value)
    chosen = cells_of(data, claim, kernel, cells)
    chosen = chosen[chosen["valid"] & chosen[claim.value].notna()]
    untraced = chosen[~chosen["recorded"]]
    chosen = chosen if untraced.empty else untraced
    wide = chosen.pivot(index=["block", "pair"], columns="role", values=claim.value)
    wide = wide.reindex(columns=["control", "treatment"])
    if claim.contrast == "treated":
        value = wide["treatment"].dropna()
    else:
        wide = wide.dropna()
        value = wide["treatment"] - wide["control"]
        if claim.contrast == "ratio":
            value = (wide["treatment"] / wide["control"]).map(math.log)
    return value.groupby("block").mean()


def _why_not(data: Dataset, claim: Claim, kernel: str) -> str:
    """Say why no boot has the claim's value: the gate of its cells, or why there are none."""
    chosen = cells_of(data, claim, kernel, data.cells)
    gates = chosen.loc[~chosen["valid"], "gate"].unique()
    if len(gates):
        return str(gates[0])
    if claim.value in chosen and chosen[claim.value].isna().any():
        return f"the measured machine does not count {claim.value}"
    return _absence(data, kernel) or "its condition was not measured"


def _absence(data: Dataset, kernel: str) -> str:
    """Return why a kernel, or a part of its blocks, cannot run here, or ""."""
    reasons = data.unavailable.loc[data.unavailable["kernel"] == kernel, "reason"]
    return str(reasons.iloc[0]) if len(reasons) else ""
