# SPDX-License-Identifier: MIT
"""Differences between a cell's values in a folder's tables and those of a new measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

__all__ = ["LATENCIES", "block_values", "different_values"]

# The name of the latency histogram among the values of a cell.
LATENCIES: Final = "latency histogram"
# Sums of floats may differ in the last digits between two releases of NumPy.
_TOLERANCE: Final = 1e-9


def block_values(
    block: str, cells: pd.DataFrame, latency: pd.DataFrame, mechanism: pd.DataFrame
) -> dict[str, dict[str, Any]]:
    """Return all values of each cell of a block (its name in the tables), by the cell's plan name.

    Values are the columns of ``cells``, with names relative to the block, the mechanism's measures,
    and the histogram as a tuple of pairs.
    """
    rows = cells[cells["cell"].str.startswith(f"{block}-")]
    found: dict[str, dict[str, Any]] = {}
    for row in rows.to_dict("records"):
        values = {str(name): value for name, value in row.items()}
        # The same block has another name if its kernel comes from another place.
        name = _without(block, str(values.pop("cell")))
        shared = {column: _without(block, str(values[column])) for column in ("block", "twin")}
        found[name] = {**values, **shared}
    for entry in mechanism[mechanism["cell"].isin(rows["cell"])].to_dict("records"):
        found[_without(block, entry["cell"])][entry["measure"]] = entry["value"]
    for cell, bins in latency[latency["cell"].isin(rows["cell"])].groupby("cell", sort=False):
        pairs = tuple(zip(bins["bin_ns"], bins["count"], strict=True))
        found[_without(block, str(cell))][LATENCIES] = pairs
    return found


def _without(block: str, name: str) -> str:
    return name.removeprefix(block).removeprefix("-")


def different_values(
    stored: Mapping[str, Any], measured: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the values of a cell that differ, each as stored and as measured; None is missing.

    Examples
    --------
    >>> different_values({"iops": 3000.0, "idle": math.nan}, {"iops": 2990.0, "idle": math.nan})
    {'iops': (3000.0, 2990.0)}
    """
    names = [*stored, *(name for name in measured if name not in stored)]
    pairs = {name: (stored.get(name), measured.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if not _same(*pair)}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) or isinstance(other, tuple):
        return bool(one == other)
    if pd.isna(one) or pd.isna(other):
        return bool(pd.isna(one) and pd.isna(other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE)
    return bool(one == other)
