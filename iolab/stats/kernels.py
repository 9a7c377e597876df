# SPDX-License-Identifier: MIT
"""Comparison of two kernels, whose boots are unpaired and may spread differently."""

from __future__ import annotations

import numpy as np
import pandas as pd

from iolab.stats.conditions import boot_means, cell_columns, first_gate, pair_columns
from iolab.stats.estimates import CONFIDENCE, Floats, ratio_of
from iolab.stats.tables import pair_ratios
from iolab.stats.unpaired import Difference, welch_difference
from iolab_base.errors import UserError

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

    With `effect`, the ratio treated/control is compared (a ratio of ratios) instead of the value.
    Kernels vary between boots, so nothing is paired. Two kernels differ in far more than their
    schedulers: the result says that they differ, not why.

    A row has the condition, ``base``, ``other``, ``ratio`` (other/base), ``low``, ``high``,
    ``n_base``, ``n_other``, ``p_value``, ``confidence``, and ``missing``: why there is no interval,
    or no ratio; then a kernel has 0 boots, for all of its cells in this condition were gated.
    Raises UserError if a kernel is not in the data; else as `ratio_table` (with `effect`) or
    `mean_table`.

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
            gate = first_gate(pairs[~pairs["recorded"]])
            return f"kernel {kernel} has no valid boot{gate}"
    return ""


def _row(a: Floats, b: Floats, confidence: float, *, missing: str) -> dict[str, float | str]:
    nan = float("nan")
    difference = (
        Difference(nan, nan, nan, nan, missing) if missing else welch_difference(a, b, confidence)
    )
    mean, low, high, p_value, why = difference
    ratios = {"ratio": ratio_of(mean), "low": ratio_of(low), "high": ratio_of(high)}
    sizes = {"n_base": a.size, "n_other": b.size}
    return {**ratios, **sizes, "p_value": p_value, "confidence": confidence, "missing": why}
