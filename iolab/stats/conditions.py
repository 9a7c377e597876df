# SPDX-License-Identifier: MIT
"""Conditions and pairs: what cells have in common, which may be pooled, and which are compared.

A *condition* is one setting of all of a pathology's factors. A *pair* is a treated cell and its
control, measured next to each other in random order in one boot, so that a drift of the machine
affects both alike (``docs/statistics.md``); what is left shows in the order within a block. Frames
of cells have the columns of `iolab.store.counters.column_types`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from iolab.pathology import get_pathology
from iolab.pathology.base import TREATED_KERNEL, Pathology
from iolab.pathology.factors import CategoricalFactor
from iolab.stats.estimates import CONFIDENCE, ROUNDING, Floats, t_interval
from iolab_base.errors import UserError

# Cells that differ in one of these are never pooled.
CONTEXT: Final = ("pathology", "target", "clock")
# Nor are those of one kernel that differ in one of these.
IDENTITY: Final = ("kernel_release", "scheduler")


def shared_columns(cells: pd.DataFrame) -> list[str]:
    """Return what the cells of a pair share: the kernel and the factors, except the treatment."""
    pathology = pathology_of(cells)
    return ["kernel", *(name for name in pathology.factors if name != pathology.treatment)]


def pair_columns(cells: pd.DataFrame) -> list[str]:
    """Return what a pair's condition is made of: `shared_columns`, ``aa`` and the treatment."""
    return [*shared_columns(cells), "aa", pathology_of(cells).treatment]


def cell_columns(cells: pd.DataFrame) -> list[str]:
    """Return what a single cell's condition is made of; the control has no treatment's level."""
    return [*shared_columns(cells), pathology_of(cells).treatment]


def pathology_of(cells: pd.DataFrame) -> Pathology:
    """Return the pathology of the first cell; UserError without one, or if it is unknown."""
    if cells.empty:
        raise UserError("there is no valid cell")
    return get_pathology(cells["pathology"].iloc[0])


def kernel_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts kernel 6.8 before 6.12; numbers sort before words."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def in_kernel_order(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Sort a table by columns, kernels in the order of their versions, NA first; a new index."""
    if table.empty:
        return table
    ranks = {
        name: rank for rank, name in enumerate(sorted(table.get("kernel", []), key=kernel_order))
    }
    return table.sort_values(
        list(by),
        key=lambda column: column.map(ranks) if column.name == "kernel" else column,
        kind="stable",
        na_position="first",
        ignore_index=True,
    )


def valid_cells(cells: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the valid untraced cells, all of which have a value; tracing costs time.

    Raises UserError if no cell counts (with the gate that rejected the first), there is no such
    column, or a cell has no value in it.
    """
    if value not in cells.columns:
        raise UserError(f"cells have no column {value}")
    kept = cells[cells["valid"] & ~cells["recorded"]]
    if kept.empty:
        raise UserError(f"there is no valid cell{first_gate(cells)}")
    missing = kept.loc[kept[value].isna(), "cell"]
    if not missing.empty:
        raise UserError(f"the valid cell {missing.iloc[0]} has no {value}")
    return kept


def first_gate(cells: pd.DataFrame) -> str:
    """Return the gate that rejected the first invalid cell, after a colon; "" without one."""
    gates = cells.loc[~cells["valid"], "gate"].unique()
    return f": {gates[0]}" if len(gates) else ""


def refuse_contexts(rows: pd.DataFrame, by: Sequence[str] = ()) -> None:
    """Raise a UserError for rows of several pathologies, targets or clocks, unless `by` has it."""
    for name in CONTEXT:
        if name not in by and rows[name].nunique() > 1:
            raise UserError(f"these cells have more than one {name}: choose one")


def refuse_mixture(rows: pd.DataFrame, by: Sequence[str], condition: Sequence[str]) -> None:
    """Raise a UserError for a grouping `by` columns that would pool different conditions."""
    # Rows of a group must agree in the columns `condition`, and in the release and scheduler of
    # their kernel; all rows in pathology, target and clock, unless `by` names these.
    unknown = [name for name in by if name not in rows.columns]
    if unknown or not by:
        raise UserError(f"cannot group by {', '.join(unknown) or 'nothing'}")
    refuse_contexts(rows, by)
    grouped = rows.groupby(list(by), dropna=False, observed=True)
    for name in (*condition, *IDENTITY):
        if name not in by and (grouped[name].nunique(dropna=False) > 1).any():
            raise UserError(f"one condition would pool several values of {name}: choose one")


def comparable_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the valid untraced cells that may stand in one figure or table.

    Raises UserError if there is none, or they mix pathologies, targets or clocks.
    """
    kept = cells[cells["valid"] & ~cells["recorded"]]
    if kept.empty:
        raise UserError(f"there is no valid cell to draw{first_gate(cells)}")
    refuse_contexts(kept)
    return kept


def kernels_of(table: pd.DataFrame) -> list[str]:
    """Return the kernels of a table, each once, in the order of their versions."""
    return sorted(table["kernel"].unique(), key=kernel_order)


def levels_of(cells: pd.DataFrame) -> list[Any]:
    """Return the measured levels of the treatment, each once, in the order of its factor.

    Numbers ascend, names stand as the factor lists them. Raises UserError without a cell.
    """
    pathology = pathology_of(cells)
    measured = set(cells[pathology.treatment].dropna())
    factor = pathology.factors[pathology.treatment]
    return (
        [level for level in factor.levels if level in measured]
        if isinstance(factor, CategoricalFactor)
        else sorted(measured)
    )


def main_value(cells: pd.DataFrame) -> str:
    """Return the column for the amount of work done, larger is better: IOPS, or a program's."""
    kept = cells[cells["valid"]]
    for name in ("iops", "program_value"):
        if kept.empty or kept[name].notna().all():
            return name
    return "runs_per_s"


def log_values(kept: pd.DataFrame, value: str) -> pd.Series[float]:
    """Return ln(value) of cells; the UserError for a value not above 0 names the cell."""
    bad = kept.loc[kept[value] <= 0, "cell"]
    if not bad.empty:
        raise UserError(f"{value} of cell {bad.iloc[0]} is not above 0, so it has no logarithm")
    return kept[value].astype(np.float64).transform(np.log)


def matched_pairs(cells: pd.DataFrame, value: str, by: Sequence[str]) -> pd.DataFrame:
    """Match each treated cell with its control: a row for each pair with two valid cells.

    It has the columns of the treated cell, those of its control with the suffix ``_control``,
    ``order`` (of `join_pairs`) and ``y``, ln(treated/control). Raises UserError if there is no such
    pair, `by` (the columns to group by) would pool different conditions, or as `valid_cells`,
    `log_values` and `join_pairs`.
    """
    kept = valid_cells(cells, value)
    pairs = join_pairs(kept.assign(y=log_values(kept, value)))
    if pairs.empty:
        raise UserError("there is no pair with two valid cells")
    refuse_mixture(pairs, by, pair_columns(kept))
    # Sorted, so that sums round alike for any order of the rows.
    pairs = pairs.sort_values(["block", "pair"], ignore_index=True)
    return pairs.assign(y=pairs["y"] - pairs["y_control"])


def join_pairs(kept: pd.DataFrame) -> pd.DataFrame:
    """Join each treated cell with its control, whose columns get the suffix ``_control``."""
    # The cells are valid and of one pathology; one without its partner is left out. ``order`` is 1
    # if the treated cell came first, else -1.
    if kept.duplicated(["block", "pair", "role"]).any():
        raise UserError("a pair has more than one control or more than one treatment")
    controls = kept[kept["role"] == "control"]
    pairs = kept[kept["role"] == "treatment"].merge(
        controls, on=["block", "pair"], suffixes=("", "_control"), validate="one_to_one"
    )
    # A copy has its columns together: pandas warns if more are added to many that are apart.
    pairs = pairs.copy()
    for name in (*shared_columns(kept), *CONTEXT):
        unequal = pairs[name] != pairs[f"{name}_control"]
        if unequal.any():
            where = pairs[unequal].iloc[0]
            raise UserError(f"pair {where['pair']} of block {where['block']} differs in {name}")
    order = pairs["position_control"] - pairs["position"]
    apart = order.abs() != 1
    if apart.any():
        where = pairs[apart].iloc[0]
        raise UserError(f"pair {where['pair']} of block {where['block']} was not measured together")
    return pairs.assign(order=order.astype(np.float64))


def boot_means(cells: pd.DataFrame, value: str, by: Sequence[str], *, log: bool) -> pd.DataFrame:
    """Average a value, or ln(value) with `log`, in each condition `by` and boot.

    A row has the columns `by`, ``block``, ``y`` (the mean) and ``cells`` (how many were averaged).
    Raises UserError as `valid_cells`, `log_values` and `refuse_mixture`.
    """
    kept = valid_cells(cells, value)
    kept = kept.assign(y=log_values(kept, value) if log else kept[value])
    refuse_mixture(kept, by, cell_columns(kept))
    kept = kept.sort_values(["block", "position"])
    grouped = kept.groupby([*by, "block"], dropna=False, observed=True)["y"]
    return grouped.agg(y="mean", cells="size").reset_index()


def order_effect(cells: pd.DataFrame, value: str = "iops") -> pd.DataFrame:
    """Estimate the drift and the autocorrelation within each block.

    Each condition's mean of ln(value) and of the position is removed first, so conditions that were
    measured once in a block carry no information and are left out.

    A row has ``kernel``, ``block``, ``slope`` (of ln(value) per position: P. K. Sen, *Journal of
    the American Statistical Association* 63, 1968) with its 95 % interval, ``lag1``
    (autocorrelation of neighbours, -1..1) and ``n`` (cells). They are NaN with fewer than three
    cells, or no spread. The autocorrelation of a short independent series is about -1/n, not 0 (M.
    G. Kendall, *Biometrika* 41, 1954). Raises UserError as `valid_cells` and `log_values`.

    >>> order_effect(cells).columns.tolist()
    ['kernel', 'block', 'slope', 'low', 'high', 'lag1', 'n']
    """
    kept = valid_cells(cells, value)
    kept = kept.assign(y=log_values(kept, value), x=kept["position"].astype(np.float64))
    kept = kept.sort_values(["block", "position"])
    grouped = kept.groupby(["block", *cell_columns(kept)], dropna=False, observed=True)
    centred = kept[["x", "y"]] - grouped[["x", "y"]].transform("mean")
    repeated = grouped["y"].transform("size") > 1
    kept = kept.assign(x=centred["x"], y=centred["y"], repeated=repeated)
    rows = []
    for (kernel, block), group in kept.groupby(["kernel", "block"]):
        informative = group[group["repeated"]]
        x, y = (informative[name].to_numpy(dtype=np.float64) for name in "xy")
        rows.append({"kernel": kernel, "block": block, **_trend(x, y)})
    return in_kernel_order(pd.DataFrame(rows), ["kernel", "block"])


def order_table(
    cells: pd.DataFrame, value: str = "iops", *, confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """Summarise the drift within blocks for each kernel that has a block with a slope.

    A row has ``kernel``, ``slope`` (mean over boots, in ln(value) per position: 0.01 is 1 % more
    from one cell to the next) with its t interval, ``lag1`` (median over boots), ``n`` and
    ``confidence``. Raises UserError as `order_effect`.

    >>> table = order_table(cells)
    >>> ((table["low"] < 0) & (0 < table["high"])).tolist()
    [True, True]
    """
    blocks = order_effect(cells, value).dropna(subset=["slope"])
    rows = []
    for kernel, group in blocks.groupby("kernel"):
        mean, low, high = t_interval(group["slope"].to_numpy(dtype=np.float64), confidence)
        lag1 = float(group["lag1"].median())
        rows.append(
            {"kernel": kernel, "slope": mean, "low": low, "high": high, "lag1": lag1}
            | {"n": len(group), "confidence": confidence}
        )
    columns = ["kernel", "slope", "low", "high", "lag1", "n", "confidence"]
    return in_kernel_order(pd.DataFrame(rows, columns=columns), ["kernel"])


def _trend(x: Floats, y: Floats) -> dict[str, float]:
    slope = low = high = lag1 = float("nan")
    if x.size >= 3 and np.ptp(x) > 0:
        from scipy.stats import theilslopes  # noqa: PLC0415 - as in estimates.py

        slope, _, low, high = theilslopes(y, x)
        if np.ptp(y) > ROUNDING:
            from statsmodels.tsa.stattools import acf  # noqa: PLC0415 - as in estimates.py

            lag1 = acf(y, nlags=1, fft=False)[1]
    trend = {"slope": slope, "low": low, "high": high, "lag1": lag1}
    return {**{name: float(value) for name, value in trend.items()}, "n": x.size}


def mark_outliers(cells: pd.DataFrame, value: str = "iops") -> pd.Series[bool]:
    """Mark the cells that lie far from their condition's median, with the index of `cells`.

    Far is more than 3.5 scaled median absolute deviations of ln(value) (B. Iglewicz and D. C.
    Hoaglin, *How to Detect and Handle Outliers*, ASQC Quality Press 1993). Marks point a reader to
    a cell: nothing in this package drops a marked cell. Invalid and traced cells are not marked.
    Raises UserError as `valid_cells` and `log_values`.

    >>> slow = cells.copy()
    >>> slow.loc[5, "iops"] = 1.0
    >>> bool(mark_outliers(slow)[5])
    True
    """
    kept = valid_cells(cells, value)
    kept = kept.assign(y=log_values(kept, value))
    grouped = kept.groupby(cell_columns(kept), dropna=False, observed=True)["y"]
    distance = (kept["y"] - grouped.transform("median")).abs()
    from scipy.stats import median_abs_deviation  # noqa: PLC0415 - as in estimates.py

    mad = grouped.transform(lambda y: median_abs_deviation(y, scale="normal"))
    far = (distance > 3.5 * mad) & (distance > ROUNDING)
    return far.reindex(cells.index, fill_value=False).astype(bool)


def matches(table: pd.DataFrame, condition: Mapping[str, object]) -> pd.Series[bool]:
    """Return which rows are of a condition; NA matches no level."""
    matching = pd.Series(True, index=table.index)
    for name, level in condition.items():
        matching &= (table[name] == level).fillna(False).astype(bool)
    return matching


def apart_from(cells: pd.DataFrame, treated: pd.Series) -> pd.Series:
    """Return which cells are controls of a treated condition that has machines of its own."""
    # They agree in all factors but the treatment, and in the kernel unless it is the treatment.
    treatment = pathology_of(cells).treatment
    same = cells["role"].eq("control") & cells[treatment].isna() & ~cells["aa"]
    for name in treated.index:
        if name not in {treatment, "aa", "kernel" if treatment == TREATED_KERNEL else treatment}:
            same &= cells[name].eq(treated[name])
    if cells.loc[same, "kernel"].nunique() > 1:
        raise UserError("these controls have more than one kernel: choose one")
    return same
