# SPDX-License-Identifier: MIT
"""Values of pairs and of boots: a log ratio for each pair, a mean for each boot.

A *pair* is a treated cell and its control, measured next to each other in random order in one boot,
so that a drift of the machine affects both alike (``docs/statistics.md``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from iolab.stats.conditions import (
    CONTEXT,
    cell_columns,
    pair_columns,
    refuse_mixture,
    shared_columns,
    valid_cells,
)
from iolab_base.errors import UserError

__all__ = ["boot_means", "join_pairs", "log_values", "matched_pairs"]


def log_values(kept: pd.DataFrame, value: str) -> pd.Series[float]:
    """Return the logarithm of a value.

    Parameters
    ----------
    kept : DataFrame
        Cells with the columns ``cell`` and `value`.
    value : str
        Column of a positive quantity, in any unit.

    Returns
    -------
    Series of float
        ln(value), with the index of `kept`.

    Raises
    ------
    UserError
        If a value is not above 0; the message names the cell.

    Examples
    --------
    >>> two = pd.DataFrame({"cell": ["a", "b"], "iops": [1.0, 10.0]})
    >>> log_values(two, "iops").round(3).tolist()
    [0.0, 2.303]
    """
    bad = kept.loc[kept[value] <= 0, "cell"]
    if not bad.empty:
        raise UserError(f"{value} of cell {bad.iloc[0]} is not above 0, so it has no logarithm")
    return kept[value].astype(np.float64).transform(np.log)


def matched_pairs(cells: pd.DataFrame, value: str, by: Sequence[str]) -> pd.DataFrame:
    """Match each treated cell with its control.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    value : str
        Column of a positive quantity, in any unit.
    by : sequence of str
        Columns that the pairs will be grouped by.

    Returns
    -------
    DataFrame
        A row for each pair with two valid cells: the columns of its treated cell, those of its
        control with the suffix ``_control``, ``order`` (of `join_pairs`) and ``y``,
        ln(treated/control).

    Raises
    ------
    UserError
        If no pair has two valid cells, a pair is not one control and one treated cell measured
        next to each other under otherwise equal conditions, a value has no logarithm, or `by`
        would pool different conditions.

    Examples
    --------
    >>> pairs = matched_pairs(cells, "iops", pair_columns(cells))
    >>> len(pairs) == len(cells) / 2
    True
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
    """Join each treated cell with its control, whose columns get the suffix ``_control``.

    The cells must be valid and of one pathology; a cell without its partner is left out. ``order``
    is 1 if the treated cell came first, else -1. Raises UserError if a pair is not one control and
    one treated cell measured next to each other under otherwise equal conditions.

    Examples
    --------
    >>> join_pairs(cells)["role_control"].unique().tolist()
    ['control']
    """
    if kept.duplicated(["block", "pair", "role"]).any():
        raise UserError("a pair has more than one control or more than one treatment")
    controls = kept[kept["role"] == "control"]
    pairs = kept[kept["role"] == "treatment"].merge(
        controls, on=["block", "pair"], suffixes=("", "_control"), validate="one_to_one"
    )
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
    """Average a value in each condition and boot.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    value : str
        Column to average, in any unit.
    by : sequence of str
        Columns of the condition.
    log : bool
        Whether to average ln(value) instead of the value.

    Returns
    -------
    DataFrame
        A row for each condition and boot: the columns `by`, ``block``, ``y`` (the mean, in the unit
        of the value or of its logarithm) and ``cells`` (how many were averaged).

    Raises
    ------
    UserError
        As in `valid_cells`, `log_values` and `refuse_mixture`.

    Examples
    --------
    >>> controls = cells[cells["role"] == "control"]
    >>> boots = boot_means(controls, "iops", cell_columns(cells), log=False)
    >>> boots["block"].nunique(), boots["cells"].unique().tolist()
    (12, [4])
    """
    kept = valid_cells(cells, value)
    kept = kept.assign(y=log_values(kept, value) if log else kept[value])
    refuse_mixture(kept, by, cell_columns(kept))
    kept = kept.sort_values(["block", "position"])
    grouped = kept.groupby([*by, "block"], dropna=False, observed=True)["y"]
    return grouped.agg(y="mean", cells="size").reset_index()
