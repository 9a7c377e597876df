# SPDX-License-Identifier: MIT
"""Conditions: what cells have in common, and which of them may be pooled.

A *condition* is one setting of all of a pathology's factors. Frames of cells have the columns of
`iolab.store.counters.column_types`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from iolab.pathology import get_pathology
from iolab.pathology.base import Pathology
from iolab.pathology.factors import CategoricalFactor
from iolab_base.errors import UserError

__all__ = [
    "CONTEXT",
    "IDENTITY",
    "cell_columns",
    "comparable_cells",
    "in_kernel_order",
    "kernel_order",
    "kernels_of",
    "levels_of",
    "main_value",
    "pair_columns",
    "pathology_of",
    "refuse_mixture",
    "shared_columns",
    "valid_cells",
]

# Cells that differ in one of these are never pooled.
CONTEXT: Final = ("pathology", "target", "clock")
# Nor are those of one kernel that differ in one of these.
IDENTITY: Final = ("kernel_release", "scheduler")


def shared_columns(cells: pd.DataFrame) -> list[str]:
    """Return the columns that the two cells of a pair have in common.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.

    Returns
    -------
    list of str
        ``kernel`` and the factors of the pathology except its treatment.

    Raises
    ------
    UserError
        If there is no cell.

    Examples
    --------
    >>> shared_columns(cells)[:3]
    ['kernel', 'iodepth', 'numjobs']
    """
    pathology = pathology_of(cells)
    return ["kernel", *(name for name in pathology.factors if name != pathology.treatment)]


def pair_columns(cells: pd.DataFrame) -> list[str]:
    """Return the columns that make up a pair's condition.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.

    Returns
    -------
    list of str
        `shared_columns`, ``aa`` (whether the control was compared with itself) and the treatment.

    Raises
    ------
    UserError
        If there is no cell.

    Examples
    --------
    >>> pair_columns(cells)[-2:]
    ['aa', 'weight']
    """
    return [*shared_columns(cells), "aa", pathology_of(cells).treatment]


def cell_columns(cells: pd.DataFrame) -> list[str]:
    """Return what a single cell's condition is made of; the control has no treatment's level."""
    return [*shared_columns(cells), pathology_of(cells).treatment]


def pathology_of(cells: pd.DataFrame) -> Pathology:
    """Return the pathology that cells belong to.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.

    Returns
    -------
    Pathology
        The pathology that the first cell names.

    Raises
    ------
    UserError
        If there is no cell, or iolab does not know the pathology.

    Examples
    --------
    >>> pathology_of(cells).name
    'dio_kworker'
    """
    if cells.empty:
        raise UserError("there is no valid cell")
    return get_pathology(cells["pathology"].iloc[0])


def kernel_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts kernel 6.8 before 6.12.

    Parameters
    ----------
    name : str
        Name of a kernel.

    Returns
    -------
    tuple
        The name's numbers and words; numbers sort by value and before words.

    Examples
    --------
    >>> sorted(["6.12", "mine", "6.8"], key=kernel_order)
    ['6.8', '6.12', 'mine']
    """
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def in_kernel_order(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Sort a table, with kernels in the order of their versions.

    Parameters
    ----------
    table : DataFrame
        Any table; without a row it is returned as it is.
    by : sequence of str
        Columns to sort by.

    Returns
    -------
    DataFrame
        The sorted rows with a new index. NA comes first.

    Examples
    --------
    >>> in_kernel_order(pd.DataFrame({"kernel": ["6.12", "6.8"]}), ["kernel"])["kernel"].tolist()
    ['6.8', '6.12']
    """
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
    """Return the valid untraced cells, all of which have a value.

    Traced cells are left out because tracing costs time.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    value : str
        Column that every valid untraced cell must have.

    Returns
    -------
    DataFrame
        The cells that count, with their index.

    Raises
    ------
    UserError
        If no cell counts (with the gate that rejected the first), there is no such column, or a
        cell has no value in it.

    Examples
    --------
    >>> len(valid_cells(cells, "iops")) == len(cells)
    True
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


def refuse_mixture(rows: pd.DataFrame, by: Sequence[str], condition: Sequence[str]) -> None:
    """Reject a grouping that would pool rows of different conditions.

    Parameters
    ----------
    rows : DataFrame
        Cells, or pairs with their treated cells' columns.
    by : sequence of str
        Columns to group by.
    condition : sequence of str
        Columns in which the rows of a group must agree, besides the release and the scheduler of
        their kernel. All rows must agree in pathology, target and clock, unless `by` names these.

    Raises
    ------
    UserError
        If `by` is empty or names an unknown column, or the rows disagree.

    Examples
    --------
    >>> refuse_mixture(cells, ["kernel"], ["weight"])
    Traceback (most recent call last):
        ...
    iolab_base.errors.UserError: one condition would pool several values of weight: choose one
    """
    unknown = [name for name in by if name not in rows.columns]
    if unknown or not by:
        raise UserError(f"cannot group by {', '.join(unknown) or 'nothing'}")
    for name in CONTEXT:
        if name not in by and rows[name].nunique() > 1:
            raise UserError(f"these cells have more than one {name}: choose one")
    grouped = rows.groupby(list(by), dropna=False, observed=True)
    for name in (*condition, *IDENTITY):
        if name not in by and (grouped[name].nunique(dropna=False) > 1).any():
            raise UserError(f"one condition would pool several values of {name}: choose one")


def comparable_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the valid untraced cells of one pathology, target and clock.

    Parameters
    ----------
    cells : DataFrame
        Cells.

    Returns
    -------
    DataFrame
        The cells that may stand in one figure or table, with their index.

    Raises
    ------
    UserError
        If there is none, or they mix pathologies, targets or clocks.

    Examples
    --------
    >>> comparable_cells(pd.concat([cells, cells.assign(clock="host")]))
    Traceback (most recent call last):
        ...
    iolab_base.errors.UserError: these cells have more than one clock: choose one
    """
    kept = cells[cells["valid"] & ~cells["recorded"]]
    if kept.empty:
        gates = cells.loc[~cells["valid"], "gate"].unique()
        raise UserError(f"there is no valid cell to draw{f': {gates[0]}' if len(gates) else ''}")
    for name in CONTEXT:
        if kept[name].nunique() > 1:
            raise UserError(f"these cells have more than one {name}: choose one")
    return kept


def kernels_of(table: pd.DataFrame) -> list[str]:
    """Return the kernels of a table in the order of their versions.

    Parameters
    ----------
    table : DataFrame
        Table with the column ``kernel``.

    Returns
    -------
    list of str
        Each kernel once.

    Examples
    --------
    >>> kernels_of(cells)
    ['6.1', '6.12']
    """
    return sorted(table["kernel"].unique(), key=kernel_order)


def levels_of(cells: pd.DataFrame) -> list[Any]:
    """Return the levels of the treatment in the order of its factor.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology; the treatment is NA in controls.

    Returns
    -------
    list
        Each measured level once: numbers in ascending order, names as the factor lists them.

    Raises
    ------
    UserError
        If there is no cell.

    Examples
    --------
    >>> [int(weight) for weight in levels_of(cells)]
    [100, 1000, 10000]
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
    """Return the column for the amount of work done; larger is better.

    ``iops``, or for a program ``program_value`` (the number that it prints) or ``runs_per_s``.

    Examples
    --------
    >>> main_value(cells)
    'iops'
    """
    kept = cells[cells["valid"]]
    for name in ("iops", "program_value"):
        if kept.empty or kept[name].notna().all():
            return name
    return "runs_per_s"
