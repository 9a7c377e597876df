# SPDX-License-Identifier: MIT
"""What a condition is, which cells may be pooled in it, and which two of them make a pair."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from iolab.errors import UserError
from iolab.pathology import get_pathology
from iolab.pathology.base import Pathology
from iolab.pathology.factors import CategoricalFactor

__all__ = [
    "boot_means",
    "cell_columns",
    "comparable_cells",
    "in_kernel_order",
    "kernel_order",
    "kernels_of",
    "levels_of",
    "log_values",
    "matched_pairs",
    "pair_columns",
    "pathology_of",
    "refuse_mixture",
    "shared_columns",
    "valid_cells",
]

_CONTEXT: Final = ("pathology", "target", "clock")
_IDENTITY: Final = ("kernel_release", "scheduler")


def shared_columns(cells: pd.DataFrame) -> list[str]:
    """Return the factors of the cells' pathology but its treatment: what a pair has in common.

    Errors: UserError without a cell.
    """
    found = pathology_of(cells)
    return ["kernel", *(name for name in found.factors if name != found.treatment)]


def pair_columns(cells: pd.DataFrame) -> list[str]:
    """Return what a pair's condition is made of: its treated cell's, and whether it is A/A."""
    return [*shared_columns(cells), "aa", pathology_of(cells).treatment]


def cell_columns(cells: pd.DataFrame) -> list[str]:
    """Return what a single cell's condition is made of; the control has no treatment's level."""
    return [*shared_columns(cells), pathology_of(cells).treatment]


def pathology_of(cells: pd.DataFrame) -> Pathology:
    """Return the pathology that cells are of. Errors: UserError without a cell."""
    if cells.empty:
        raise UserError("there is no valid cell")
    return get_pathology(cells["pathology"].iloc[0])


def kernel_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts kernel 6.8 before 6.12."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def in_kernel_order(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return a table sorted by `by`, kernels in the order of their versions, none (NA) first."""
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
    """Return the valid untraced cells.

    Errors: UserError if there is none (with the gate that spoke), if there is no such column, or if
    one of them lacks the value.
    """
    if value not in cells.columns:
        raise UserError(f"cells have no column {value}")
    kept = cells[cells["valid"] & ~cells["recorded"]]
    if kept.empty:
        gates = cells.loc[~cells["valid"], "gate"].unique()
        raise UserError(f"there is no valid cell{f': {gates[0]}' if len(gates) else ''}")
    missing = kept.loc[kept[value].isna(), "cell"]
    if not missing.empty:
        raise UserError(f"the valid cell {missing.iloc[0]} has no {value}")
    return kept


def log_values(kept: pd.DataFrame, value: str) -> pd.Series[float]:
    """Return ln(value). Errors: UserError that names a cell whose value is not above 0."""
    bad = kept.loc[kept[value] <= 0, "cell"]
    if not bad.empty:
        raise UserError(f"{value} of cell {bad.iloc[0]} is not above 0, so it has no ratio")
    return kept[value].astype(np.float64).transform(np.log)


def refuse_mixture(rows: pd.DataFrame, by: Sequence[str], condition: Sequence[str]) -> None:
    """Raise UserError if grouping by `by` pools rows that differ in their condition or context."""
    unknown = [name for name in by if name not in rows.columns]
    if unknown or not by:
        raise UserError(f"cannot group by {', '.join(unknown) or 'nothing'}")
    for name in _CONTEXT:
        if name not in by and rows[name].nunique() > 1:
            raise UserError(f"these cells have more than one {name}: choose one")
    grouped = rows.groupby(list(by), dropna=False, observed=True)
    for name in (*condition, *_IDENTITY):
        if name not in by and (grouped[name].nunique(dropna=False) > 1).any():
            raise UserError(f"one condition would pool several values of {name}: choose one")


def matched_pairs(cells: pd.DataFrame, value: str, by: Sequence[str]) -> pd.DataFrame:
    """Return a row per pair with two valid cells: the treated cell's columns, y (the log ratio).

    Errors: UserError if a pair is not one control and one treatment measured next to each other
    under otherwise equal conditions, if there is none, if a value has no logarithm, or if `by`
    would pool different conditions.
    """
    kept = valid_cells(cells, value)
    if kept.duplicated(["block", "pair", "role"]).any():
        raise UserError("a pair has more than one control or more than one treatment")
    kept = kept.assign(y=log_values(kept, value))
    controls = kept[kept["role"] == "control"]
    pairs = kept[kept["role"] == "treatment"].merge(
        controls, on=["block", "pair"], suffixes=("", "_control"), validate="one_to_one"
    )
    if pairs.empty:
        raise UserError("there is no pair with two valid cells")
    for name in (*shared_columns(kept), *_CONTEXT):
        unequal = pairs[name] != pairs[f"{name}_control"]
        if unequal.any():
            where = pairs[unequal].iloc[0]
            raise UserError(f"pair {where['pair']} of block {where['block']} differs in {name}")
    apart = (pairs["position"] - pairs["position_control"]).abs() != 1
    if apart.any():
        where = pairs[apart].iloc[0]
        raise UserError(f"pair {where['pair']} of block {where['block']} was not measured together")
    refuse_mixture(pairs, by, pair_columns(kept))
    # In one order, so that sums round alike however the rows came.
    pairs = pairs.sort_values(["block", "pair"], ignore_index=True)
    return pairs.assign(y=pairs["y"] - pairs["y_control"])


def boot_means(cells: pd.DataFrame, value: str, by: Sequence[str], *, log: bool) -> pd.DataFrame:
    """Return a row per condition and boot: `by`, block, y (the mean of value or ln), cells.

    Errors: as `valid_cells`, `log_values` and `refuse_mixture`.
    """
    kept = valid_cells(cells, value)
    kept = kept.assign(y=log_values(kept, value) if log else kept[value])
    refuse_mixture(kept, by, cell_columns(kept))
    kept = kept.sort_values(["block", "position"])
    grouped = kept.groupby([*by, "block"], dropna=False, observed=True)["y"]
    return grouped.agg(y="mean", cells="size").reset_index()


def comparable_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the valid untraced cells; UserError if there is none or they mix clocks, targets."""
    kept = cells[cells["valid"] & ~cells["recorded"]]
    if kept.empty:
        gates = cells.loc[~cells["valid"], "gate"].unique()
        raise UserError(f"there is no valid cell to draw{f': {gates[0]}' if len(gates) else ''}")
    for name in _CONTEXT:
        if kept[name].nunique() > 1:
            raise UserError(f"these cells have more than one {name}: choose one")
    return kept


def kernels_of(table: pd.DataFrame) -> list[str]:
    """Return a table's kernels in the order of their versions."""
    return sorted(table["kernel"].unique(), key=kernel_order)


def levels_of(cells: pd.DataFrame) -> list[Any]:
    """Return the levels of the treatment in the cells, in its own order; the control has none."""
    pathology = pathology_of(cells)
    measured = set(cells[pathology.treatment].dropna())
    factor = pathology.factors[pathology.treatment]
    return (
        [level for level in factor.levels if level in measured]
        if isinstance(factor, CategoricalFactor)
        else sorted(measured)
    )
