# SPDX-License-Identifier: MIT
"""Comparison of two kernels, whose boots are unpaired and may spread differently."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from iolab.stats.conditions import boot_means, cell_columns, pair_columns
from iolab.stats.estimates import CONFIDENCE, Floats, ratio_of, what_is_missing
from iolab.stats.tables import pair_ratios
from iolab_base.errors import UserError

__all__ = ["Difference", "kernel_ratio", "welch_difference"]


class Difference(NamedTuple):
    """A difference of two means with Welch's interval and p-value.

    Parameters
    ----------
    mean : float
        Mean of the second sample minus mean of the first, in the unit of the values.
    low, high : float
        Ends of the interval, in the same unit; NaN where `missing` says why.
    p_value : float
        Two-sided p-value, 0..1; NaN where `missing` says why.
    missing : str
        Why there is no interval; empty if there is one.
    """

    mean: float
    low: float
    high: float
    p_value: float
    missing: str


def welch_difference(a: Floats, b: Floats, confidence: float) -> Difference:
    """Compare two unpaired samples that may spread differently.

    Parameters
    ----------
    a, b : ndarray of float, shapes (n,) and (m,)
        One value per boot, in the same unit.
    confidence : float
        Confidence level of the interval, 0..1.

    Returns
    -------
    Difference
        Mean of `b` minus mean of `a`. It has no interval if a sample has a single boot or if
        neither sample's boots differ.

    References
    ----------
    B. L. Welch, "The generalization of 'Student's' problem when several different population
    variances are involved", *Biometrika* 34, 1947.

    Examples
    --------
    >>> import numpy as np
    >>> compared = welch_difference(np.array([1.0, 1.5, 2.5]), np.array([4.0, 4.1]), 0.95)
    >>> print(f"{compared.mean:.2f} [{compared.low:.2f}, {compared.high:.2f}]")
    2.38 [0.52, 4.25]
    """
    mean = float(np.mean(b) - np.mean(a))
    nan = float("nan")
    if min(a.size, b.size) < 2:
        return Difference(mean, nan, nan, nan, "one boot")
    if what_is_missing(a) and what_is_missing(b):
        return Difference(mean, nan, nan, nan, "the boots of a kernel do not differ")
    # The import takes a second, which verdicts do not need.
    from statsmodels.stats.weightstats import CompareMeans, DescrStatsW  # noqa: PLC0415

    compared = CompareMeans(DescrStatsW(b), DescrStatsW(a))
    low, high = compared.tconfint_diff(alpha=1 - confidence, usevar="unequal")
    p_value = compared.ttest_ind(usevar="unequal")[1]
    return Difference(mean, float(low), float(high), float(p_value), "")


_COLUMNS = ("ratio", "low", "high", "n_base", "n_other", "p_value", "confidence", "missing")


def kernel_ratio(
    cells: pd.DataFrame,
    value: str = "iops",
    *,
    base: str,
    other: str,
    effect: bool = False,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Compare two kernels in each condition they share, by Welch's method on boot means of ln.

    Kernels vary between boots, so nothing is paired. Two kernels differ in far more than their
    schedulers: the result says that they differ, not why.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    value : str, optional
        Column of a positive quantity, in any unit.
    base, other : str
        Names of the two kernels.
    effect : bool, optional
        Whether to compare the ratio treated/control (a ratio of ratios) instead of the value.
    confidence : float, optional
        Confidence level of the intervals, 0..1.

    Returns
    -------
    DataFrame
        A row for each condition that both kernels were measured in; none if there is no such
        condition. Columns:
        the condition, ``base``, ``other``, ``ratio`` (other/base, without unit) with the ends of
        its interval ``low`` and ``high``, ``n_base`` and ``n_other`` (boots), ``p_value`` and
        ``confidence`` (0..1), and ``missing``, why there is no interval, or no ratio: then a
        kernel has 0 boots, for all of its cells in this condition were gated.

    Raises
    ------
    UserError
        If a kernel is not in the data; else as in `ratio_table` (with `effect`)
        or `mean_table`.

    Examples
    --------
    >>> table = kernel_ratio(cells, base="6.1", other="6.12", effect=True)
    >>> table[["weight", "ratio", "n_base", "n_other"]].round(2)
       weight  ratio  n_base  n_other
    0     100   1.01       6        6
    1    1000   1.02       6        6
    2   10000   1.06       6        6
    3    <NA>   1.00       6        6
    """
    for kernel in (base, other):
        if not (cells["kernel"] == kernel).any():
            raise UserError(f"kernel {kernel} is not in these data")
    chosen = cells[cells["kernel"].isin([base, other])]
    by = pair_columns(cells) if effect else cell_columns(cells)
    boots = pair_ratios(chosen, value, by) if effect else boot_means(chosen, value, by, log=True)
    condition = [name for name in by if name != "kernel"]
    measured = chosen[~chosen["recorded"]]
    if effect:
        measured = measured[measured["role"] == "treatment"]
    keys: list[pd.DataFrame] = []
    rows: list[dict[str, float | str]] = []
    for _, group in measured.groupby(condition, dropna=False, observed=True):
        if group["kernel"].nunique() < 2:
            continue
        key = group[condition].iloc[[0]]
        here = boots.merge(key, on=condition)
        a, b = (
            here.loc[here["kernel"] == kernel, "y"].to_numpy(dtype=np.float64)
            for kernel in (base, other)
        )
        keys.append(key)
        rows.append(
            _row(a, b, confidence, missing=_gated(chosen if effect else measured, group, here))
        )
    table = pd.concat(keys, ignore_index=True) if keys else boots[condition][:0]
    results = pd.DataFrame(rows, columns=list(_COLUMNS))
    return pd.concat([table.assign(base=base, other=other), results], axis=1)


def _gated(cells: pd.DataFrame, measured: pd.DataFrame, boots: pd.DataFrame) -> str:
    """Return which measured kernel has no boot left, and the gate that rejected its cells."""
    for kernel in measured["kernel"].unique():
        if kernel not in set(boots["kernel"]):
            pairs = measured.loc[measured["kernel"] == kernel, ["block", "pair"]]
            pairs = cells.merge(pairs.drop_duplicates(), on=["block", "pair"])
            gates = pairs.loc[~pairs["valid"] & ~pairs["recorded"], "gate"].unique()
            return f"kernel {kernel} has no valid boot{f': {gates[0]}' if len(gates) else ''}"
    return ""


def _row(a: Floats, b: Floats, confidence: float, *, missing: str) -> dict[str, float | str]:
    nan = float("nan")
    difference = (
        Difference(nan, nan, nan, nan, missing) if missing else welch_difference(a, b, confidence)
    )
    return {
        "ratio": ratio_of(difference.mean),
        "low": ratio_of(difference.low),
        "high": ratio_of(difference.high),
        "n_base": a.size,
        "n_other": b.size,
        "p_value": difference.p_value,
        "confidence": confidence,
        "missing": difference.missing,
    }
