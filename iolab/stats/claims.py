# SPDX-License-Identifier: MIT
"""Judging a claim: the cells it rests on, the value of each boot, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from iolab.errors import UserError
from iolab.pathology.base import Claim
from iolab.stats.conditions import CONTEXT, pathology_of, refuse_mixture, shared_columns
from iolab.stats.estimates import CONFIDENCE, Floats, ratio_of, t_interval, what_is_missing
from iolab.stats.pairs import join_pairs, log_values
from iolab.store.dataset import Dataset, with_measure

__all__ = ["Judged", "boot_values", "cells_of", "judge"]


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim's estimate on one kernel, and the verdict.

    Parameters
    ----------
    estimate : float
        The claim's contrast: a ratio without unit, or a difference or value in the unit of the
        claim's value. NaN without a boot.
    low, high : float
        Ends of the t interval over boots, in the same unit. Both are the estimate where all boots
        agree to the last digit, and NaN with fewer than two boots.
    n : int
        Number of boots.
    verdict : str
        One of `VERDICTS`.
    reason : str, optional
        Why there is no estimate, or why boots were too few; empty if the interval decided.
    """

    estimate: float
    low: float
    high: float
    n: int
    verdict: str
    reason: str = ""


def judge(data: Dataset, claim: Claim, kernel: str, *, confidence: float = CONFIDENCE) -> Judged:
    """Judge one claim on one kernel.

    Boots that differ are judged by the t interval over them. Boots that agree to the last digit
    have no spread; they are judged by their common value, if they are so many that fewer than half
    of all boots can lie on the other side of the limit. The bound on that share is the exact one
    for none of n (six boots at a level of 0.95); fewer boots are inconclusive.

    Parameters
    ----------
    data : Dataset
        Results of one pathology, on one target and clock.
    claim : Claim
        A claim of that pathology.
    kernel : str
        Name of the kernel.
    confidence : float, optional
        Confidence level of the interval and of the bound, 0..1.

    Returns
    -------
    Judged
        The verdict. Where cells are not what a comparison takes (a valid cell without the value, or
        without a logarithm), it is inconclusive and the reason names the cell.

    Raises
    ------
    UserError
        If there is no cell, or cells of different targets, clocks or kernel releases would be
        pooled.

    References
    ----------
    C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the
    case of the binomial", *Biometrika* 26, 1934.

    Examples
    --------
    >>> claim = next(c for c in pathology_of(data.cells).claims if c.name == "IOPS lost")
    >>> judged = judge(data, claim, "6.1")
    >>> judged.verdict, round(judged.estimate, 2), judged.n
    ('not reproduced', 0.92, 6)
    """
    if claim.requires:
        return _without_boots("cannot run here", claim.requires)
    chosen = cells_of(data, claim, kernel, data.cells)
    if reason := _why_unmeasured(data, claim, kernel, chosen):
        return _without_boots("cannot run here", reason)
    try:
        boots = _boot_values(data, claim, chosen).to_numpy(dtype=np.float64)
    except UserError as error:
        return _without_boots("inconclusive", str(error))
    if not boots.size:
        return _without_boots("cannot run here", _why_no_boot(data, claim, kernel, chosen))
    return _judge_boots(claim, boots, confidence)


def _without_boots(verdict: str, reason: str) -> Judged:
    return Judged(math.nan, math.nan, math.nan, 0, verdict, reason)


def _judge_boots(claim: Claim, boots: Floats, confidence: float) -> Judged:
    value, low, high = (_back(claim, end) for end in t_interval(boots, confidence))
    if boots.size < 2:
        return Judged(value, low, high, 1, "inconclusive", "one boot")
    if what_is_missing(boots):
        return _judge_identical(claim, value, boots.size, confidence)
    return Judged(value, low, high, boots.size, _ruled(claim, low, high))


def _judge_identical(claim: Claim, value: float, n: int, confidence: float) -> Judged:
    """Judge boots that agree to the last digit by an exact bound on the boots that do not."""
    beyond = binomtest(0, n).proportion_ci(confidence, method="exact").high
    if beyond < 0.5:
        return Judged(value, value, value, n, _ruled(claim, value, value))
    # The bound on none of n is 1 - ((1 - confidence) / 2) ** (1 / n).
    enough = math.floor(math.log2(2 / (1 - confidence))) + 1
    who = "both boots" if n == 2 else f"all {n} boots"
    reason = f"{who} agree to the last digit: fewer than {enough} say too little"
    return Judged(value, value, value, n, "inconclusive", reason)


def _back(claim: Claim, value: float) -> float:
    return ratio_of(value) if claim.contrast == "ratio" else value


def _ruled(claim: Claim, low: float, high: float) -> str:
    if claim.above is not None:
        good, bad = low > claim.above, high <= claim.above
    else:
        limit = math.inf if claim.below is None else claim.below
        good, bad = high < limit, low >= limit
    return "reproduced" if good else "not reproduced" if bad else "inconclusive"


def cells_of(data: Dataset, claim: Claim, kernel: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Select a claim's treated cells with the controls of their pairs.

    Parameters
    ----------
    data : Dataset
        Results of one pathology.
    claim : Claim
        A claim of that pathology.
    kernel : str
        Name of the kernel.
    cells : DataFrame
        Cells to select from: those of `data`, or of `iolab.store.dataset.with_measure`.

    Returns
    -------
    DataFrame
        The selected rows, invalid and traced cells included, A/A pairs not.

    Examples
    --------
    >>> claim = next(c for c in pathology_of(data.cells).claims if c.name == "IOPS lost")
    >>> cells_of(data, claim, "6.1", data.cells)["role"].value_counts().to_dict()
    {'control': 6, 'treatment': 6}
    """
    treatment = pathology_of(data.cells).treatment
    # One selection: each takes as long as all comparisons.
    wanted = (cells["kernel"] == kernel) & ~cells["aa"]
    for name, level in claim.condition.items():
        if name != treatment:
            wanted &= cells[name] == level
    here = cells[wanted]
    treated = here[here[treatment] == claim.condition[treatment]]
    pairs = pd.MultiIndex.from_frame(treated[["block", "pair"]])
    return here[pd.MultiIndex.from_frame(here[["block", "pair"]]).isin(pairs)]


def boot_values(data: Dataset, claim: Claim, kernel: str) -> pd.Series:
    """Compute the value of each boot that a claim is judged by.

    Untraced cells count. Where they lack the value and traced cells have it, these count.

    Parameters
    ----------
    data : Dataset
        Results of one pathology.
    claim : Claim
        A claim of that pathology.
    kernel : str
        Name of the kernel.

    Returns
    -------
    Series of float
        Indexed by block: the mean of ln(treated/control) over the boot's pairs for a claim of a
        ratio, of treated - control for one of a difference, of the treated cells else (both in the
        unit of the claim's value). Empty if no valid cell has the value.

    Raises
    ------
    UserError
        If no cell has the measure, a valid cell lacks the value while others have it, a value has
        no logarithm for a ratio, or a pair is not one treated cell and its control.

    Examples
    --------
    >>> claim = next(c for c in pathology_of(data.cells).claims if c.name == "IOPS lost")
    >>> boot_values(data, claim, "6.1").round(2).tolist()
    [-0.09, -0.09, -0.09, -0.07, -0.09, -0.07]
    """
    return _boot_values(data, claim, cells_of(data, claim, kernel, data.cells))


def _boot_values(data: Dataset, claim: Claim, chosen: pd.DataFrame) -> pd.Series:
    value = claim.value
    known = with_measure(data, value).drop_duplicates("cell").set_index("cell")[value]
    # Pairs are joined by these; the other columns would take most of the time.
    needed = ["cell", "block", "pair", "position", "role", "recorded"]
    needed += [*CONTEXT, *shared_columns(data.cells)]
    chosen = chosen.loc[chosen["valid"], needed].sort_values(["block", "position"])
    chosen = chosen.assign(**{value: chosen["cell"].map(known)})
    if claim.contrast == "treated":
        chosen = chosen[chosen["role"] == "treatment"]
    untraced = chosen[~chosen["recorded"]]
    chosen = untraced if untraced[value].notna().any() else chosen[chosen["recorded"]]
    if chosen[value].isna().all():
        return pd.Series(dtype=np.float64)
    missing = chosen.loc[~np.isfinite(chosen[value]), "cell"]
    if not missing.empty:
        raise UserError(f"the valid cell {missing.iloc[0]} has no finite {value}")
    pairs = join_pairs(chosen)
    if claim.contrast == "treated":
        return chosen.groupby("block")[value].mean()
    if pairs.empty:
        return pd.Series(dtype=np.float64)
    if claim.contrast == "ratio":
        paired = chosen[chosen["cell"].isin([*pairs["cell"], *pairs["cell_control"]])]
        logs = log_values(paired, value).set_axis(paired["cell"])
        difference = pairs["cell"].map(logs) - pairs["cell_control"].map(logs)
    else:
        difference = pairs[value] - pairs[f"{value}_control"]
    return difference.groupby(pairs["block"]).mean()


def _why_unmeasured(data: Dataset, claim: Claim, kernel: str, chosen: pd.DataFrame) -> str:
    """Return why a kernel or a measure is not in the data; reject data that must not be pooled."""
    absence = _absence(data, kernel)
    if absence and not (data.cells["kernel"] == kernel).any():
        return absence
    if len(chosen):
        refuse_mixture(chosen, ["kernel"], shared_columns(chosen))
    try:
        with_measure(data, claim.value)
    except UserError as error:
        return str(error)
    return ""


def _why_no_boot(data: Dataset, claim: Claim, kernel: str, chosen: pd.DataFrame) -> str:
    """Say why no boot has the claim's value: the gate of its cells, or why there are none."""
    gates = chosen.loc[~chosen["valid"], "gate"].unique()
    if len(gates):
        # The verdict says it already.
        return str(gates[0]).removeprefix("cannot run here: ")
    if claim.value in chosen and chosen[claim.value].isna().any():
        return f"the measured machine does not count {claim.value}"
    if len(chosen) and claim.contrast != "treated" and not (chosen["role"] == "control").any():
        return "no valid control beside its treated cells"
    return _absence(data, kernel) or "its condition was not measured"


def _absence(data: Dataset, kernel: str) -> str:
    """Return why a kernel, or a part of its blocks, cannot run here, or ""."""
    reasons = data.unavailable.loc[data.unavailable["kernel"] == kernel, "reason"]
    return str(reasons.iloc[0]) if len(reasons) else ""
