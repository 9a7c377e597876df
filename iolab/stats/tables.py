# SPDX-License-Identifier: MIT
"""From cells to tables of estimates: the boot is the replicate, the pair its unit of comparison.

Cells that were traced are left out everywhere but in `recording_cost`: tracing costs time. A
treated cell is compared with the control measured next to it, the logarithms of these ratios are
averaged per boot, and all that is inferred rests on the boots' means: cells of one boot are not
independent. What the intervals and tests are worth on noise like the measured one is simulated in
``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats
from statsmodels.stats.multitest import multipletests

from iolab.errors import UserError
from iolab.stats.conditions import (
    boot_means,
    cell_columns,
    in_kernel_order,
    log_values,
    matched_pairs,
    pair_columns,
    valid_cells,
)
from iolab.stats.estimates import (
    CONFIDENCE,
    ROUNDING,
    WELCH,
    Estimate,
    Floats,
    estimate,
    t_interval,
    welch,
)

__all__ = [
    "discoveries",
    "holm",
    "kernel_ratio",
    "mark_outliers",
    "mean_table",
    "pair_ratios",
    "ratio_table",
    "recording_cost",
]

_OUTLIER_MADS = 3.5


def pair_ratios(
    cells: pd.DataFrame, value: str = "iops", by: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return the mean log ratio treated/control of each boot: columns `by`, block, y, pairs.

    A pair counts if both of its cells are valid; ``pairs`` says how many a boot has. Errors: as
    `matched_pairs`.
    """
    by = pair_columns(cells) if by is None else by
    pairs = matched_pairs(cells, value, by)
    grouped = pairs.groupby([*by, "block"], dropna=False, observed=True)["y"]
    boots = grouped.agg(y="mean", pairs="size").reset_index()
    return in_kernel_order(boots, by)


def ratio_table(
    cells: pd.DataFrame,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    family: Sequence[Mapping[str, object]] | None = None,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Estimate each condition's ratio treated/control: columns `by`, Estimate's, p_holm.

    A condition that was measured and has no valid pair has a row too: n is 0, ``missing`` says why.

    ``p_holm`` is Holm's correction over the family of conditions declared before measuring: each
    entry of `family` names the columns that pick its row; None means every condition but the A/A
    pairs. A declared condition that was not measured or cannot be tested still counts in the
    family's size. Errors: as `pair_ratios`; UserError if a member of the family picks several rows.
    """
    by = pair_columns(cells) if by is None else by
    boots = pair_ratios(cells, value, by)
    grouped = boots.groupby(list(by), dropna=False, observed=True)
    table = grouped.size().reset_index()[list(by)]
    estimates = [
        asdict(estimate(group["y"], pairs=float(group["pairs"].median()), confidence=confidence))
        for _, group in grouped
    ]
    table = pd.concat([table, pd.DataFrame(estimates)], axis=1)
    table = pd.concat([table, _without_pairs(cells, table, by, confidence)], ignore_index=True)
    members, unmeasured = _family(table, family)
    p_values = table.loc[members, "p_value"]
    table["p_holm"] = np.nan
    table.loc[members, "p_holm"] = holm(p_values, unmeasured=unmeasured)
    return in_kernel_order(table, by)


def holm(p_values: npt.ArrayLike, *, unmeasured: int = 0) -> Floats:
    """Return Holm's correction of a family's p-values, `unmeasured` of which are not here.

    What was declared and could not be tested (NaN, or not here) claims nothing, and counts in the
    family's size.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not p.size:
        return p
    padded = np.append(np.nan_to_num(p, nan=1.0), np.ones(unmeasured))
    corrected = multipletests(padded, method="holm")[1][: p.size]
    return np.where(np.isnan(p), np.nan, corrected)


def discoveries(table: pd.DataFrame, *, rate: float = 0.05) -> pd.DataFrame:
    """Return the conditions of an exploratory grid that stand out, by Benjamini and Hochberg.

    `table` is a `ratio_table`: its A/A pairs and what could not be tested are no part of the grid.
    The rows that stay have ``q_value`` <= `rate` (the share of false ones among them, expected),
    the surest first. This is for looking around; what was declared before measuring is judged by
    p_holm. Errors: UserError for a rate outside 0..1.
    """
    if not 0 < rate < 1:
        raise UserError(f"a rate of false discoveries lies between 0 and 1, not at {rate}")
    grid = table[~table["aa"].astype(bool) & table["p_value"].notna()]
    q_values = stats.false_discovery_control(grid["p_value"]) if len(grid) else grid["p_value"]
    found = grid.assign(q_value=q_values)
    found = found[found["q_value"] <= rate]
    return found.sort_values("q_value", kind="stable", ignore_index=True)


def kernel_ratio(
    cells: pd.DataFrame,
    value: str = "iops",
    *,
    base: str,
    other: str,
    effect: bool = False,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Compare two kernels in each condition they share: other/base, Welch on boot means of ln.

    With ``effect=True`` what is compared is the ratio treated/control (a ratio of ratios), else the
    value itself. Kernels vary between boots, so nothing is paired. Two kernels differ in far more
    than their schedulers: the result says that they differ, not why. Columns: the condition, base,
    other, ratio, low, high, n_base, n_other, p_value, level, missing (why there is no
    interval: one boot of a kernel, or no spread); no row where they share no condition. Errors:
    UserError for a kernel that is not there; else as `ratio_table` or `mean_table`.
    """
    for kernel in (base, other):
        if not (cells["kernel"] == kernel).any():
            raise UserError(f"kernel {kernel} is not in these data")
    chosen = cells[cells["kernel"].isin([base, other])]
    by = pair_columns(cells) if effect else cell_columns(cells)
    boots = pair_ratios(chosen, value, by) if effect else boot_means(chosen, value, by, log=True)
    condition = [name for name in by if name != "kernel"]
    keys: list[pd.DataFrame] = []
    rows: list[dict[str, float | str]] = []
    for _, group in boots.groupby(condition, dropna=False, observed=True):
        a = group.loc[group["kernel"] == base, "y"].to_numpy(dtype=np.float64)
        b = group.loc[group["kernel"] == other, "y"].to_numpy(dtype=np.float64)
        if a.size and b.size:
            keys.append(group[condition].iloc[[0]])
            rows.append(welch(a, b, confidence))
    table = pd.concat(keys, ignore_index=True) if keys else boots[condition][:0]
    results = pd.DataFrame(rows, columns=list(WELCH))
    return pd.concat([table.assign(base=base, other=other), results], axis=1)


def mean_table(
    cells: pd.DataFrame,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Average a value in each condition: columns `by`, mean, low, high, n (boots), cells, level.

    The mean of the boots' means with its t interval (NaN with one boot or no spread), in the
    value's own unit; valid cells only. Where the machine does not count the value in any cell, its
    means are NaN. Errors: UserError if `by` would pool different conditions, or if one valid cell
    lacks the value and others have it.
    """
    by = cell_columns(cells) if by is None else by
    if (uncounted := cells.loc[cells["valid"], value].isna()).all() and len(uncounted):
        table = mean_table(cells.assign(**{value: 0.0}), value, by, confidence=confidence)
        return table.assign(mean=np.nan, low=np.nan, high=np.nan)
    boots = boot_means(cells, value, by, log=False)
    grouped = boots.groupby(list(by), dropna=False, observed=True)
    table = grouped.agg(n=("y", "size"), cells=("cells", "sum")).reset_index()
    intervals = [
        t_interval(group["y"].to_numpy(dtype=np.float64), confidence) for _, group in grouped
    ]
    table[["mean", "low", "high"]] = np.array(intervals)
    table["confidence"] = confidence
    return in_kernel_order(table[[*by, "mean", "low", "high", "n", "cells", "confidence"]], by)


def recording_cost(cells: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Say what tracing costs in each condition: each recorded cell against its untraced twin.

    Columns `cell_columns`, ratio (I/Os per second of the steady part, traced over untraced), low,
    high, n (boots), switches_traced and switches_untraced (per I/O: what tracing should not
    change). Valid pairs only; empty where nothing was recorded.
    """
    recorded = cells[cells["valid"] & cells["recorded"]]
    twins = cells[cells["valid"]][["cell", "steady_iops", "switches_per_io"]]
    both = recorded.merge(twins, left_on="twin", right_on="cell", suffixes=("", "_twin"))
    both["y"] = np.log(both["steady_iops"]) - np.log(both["steady_iops_twin"])
    rows = []
    state = cell_columns(cells)
    for key, group in both.groupby(state, dropna=False, observed=True):
        found = estimate(group.groupby("block")["y"].mean(), confidence=confidence)
        rows.append(
            dict(zip(state, key, strict=True))
            | {name: getattr(found, name) for name in ("ratio", "low", "high", "n")}
            | {"switches_traced": group["switches_per_io"].mean()}
            | {"switches_untraced": group["switches_per_io_twin"].mean()}
        )
    columns = [*state, "ratio", "low", "high", "n", "switches_traced", "switches_untraced"]
    treatment = state[-1]
    table = pd.DataFrame(rows, columns=columns).astype({treatment: cells[treatment].dtype})
    return in_kernel_order(table, state)


def mark_outliers(cells: pd.DataFrame, value: str = "iops") -> pd.Series[bool]:
    """Mark the cells far from their condition's median, by more than 3.5 scaled MADs of ln(value).

    Marks are for the eye: nothing here drops a marked cell. Invalid cells are never marked. The
    result has the index of `cells`.
    """
    kept = valid_cells(cells, value)
    kept = kept.assign(y=log_values(kept, value))
    grouped = kept.groupby(cell_columns(kept), dropna=False, observed=True)["y"]
    distance = (kept["y"] - grouped.transform("median")).abs()
    mad = grouped.transform(lambda y: stats.median_abs_deviation(y, scale="normal"))
    far = (distance > _OUTLIER_MADS * mad) & (distance > ROUNDING)
    return far.reindex(cells.index, fill_value=False).astype(bool)


def _without_pairs(
    cells: pd.DataFrame, table: pd.DataFrame, by: Sequence[str], confidence: float
) -> pd.DataFrame:
    """Return a row for each condition that was measured and has no valid pair."""
    measured = cells[~cells["recorded"]]
    treated = measured[measured["role"] == "treatment"]
    known = treated.merge(table[list(by)], on=list(by), how="left", indicator="in_table")
    lost = treated[(known["in_table"] == "left_only").to_numpy()]
    rows = []
    for _, group in lost.groupby(list(by), dropna=False, observed=True):
        pairs = measured.merge(group[["block", "pair"]], on=["block", "pair"])
        gates = pairs.loc[~pairs["valid"], "gate"].unique()
        why = f"no pair with two valid cells{f': {gates[0]}' if len(gates) else ''}"
        nothing = Estimate(np.nan, np.nan, np.nan, 0, 0.0, np.nan, confidence, why)
        rows.append(group[list(by)].iloc[[0]].assign(**asdict(nothing)))
    return pd.concat(rows) if rows else table[:0]


def _family(
    table: pd.DataFrame, family: Sequence[Mapping[str, object]] | None
) -> tuple[pd.Series[bool], int]:
    if family is None:
        if "aa" not in table.columns:
            return pd.Series(True, index=table.index), 0
        return ~table["aa"].astype(bool), 0
    members = pd.Series(False, index=table.index)
    unmeasured = 0
    for member in family:
        picked = pd.Series(True, index=table.index)
        for name, wanted in member.items():
            if name not in table.columns:
                raise UserError(f"the family names {name}, which the table does not have")
            picked &= (table[name] == wanted).fillna(False).astype(bool)
        if picked.sum() > 1:
            raise UserError(f"the family's member {dict(member)} picks {picked.sum()} conditions")
        unmeasured += not picked.any()
        members |= picked
    return members, unmeasured
