# SPDX-License-Identifier: MIT
"""Families of tests: corrections for testing several conditions at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats
from statsmodels.stats.multitest import multipletests

from iolab.errors import UserError
from iolab.stats.estimates import Floats

__all__ = ["discoveries", "family_members", "holm"]


def holm(p_values: npt.ArrayLike, *, unmeasured: int = 0) -> Floats:
    """Correct the p-values of a family of tests by Holm's method.

    Parameters
    ----------
    p_values : array_like, shape (n,)
        p-values of the family, 0..1; NaN for a test that was declared and could not be made.
    unmeasured : int, optional
        Number of declared tests that are not in `p_values`.

    Returns
    -------
    ndarray of float, shape (n,)
        Corrected p-values, 0..1; NaN where the p-value is. Tests that could not be made count in
        the family's size.

    References
    ----------
    S. Holm, "A simple sequentially rejective multiple test procedure", *Scandinavian Journal of
    Statistics* 6, 1979.

    Examples
    --------
    >>> holm([0.01, 0.03]).tolist()
    [0.02, 0.03]
    >>> holm([0.01, np.nan], unmeasured=1).tolist()
    [0.03, nan]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not p.size:
        return p
    padded = np.append(np.nan_to_num(p, nan=1.0), np.ones(unmeasured))
    corrected = multipletests(padded, method="holm")[1][: p.size]
    return np.where(np.isnan(p), np.nan, corrected)


def discoveries(table: pd.DataFrame, *, rate: float = 0.05) -> pd.DataFrame:
    """Select the conditions of an exploratory grid that stand out.

    This is for looking around. What was declared before measuring is judged by ``p_holm``.

    Parameters
    ----------
    table : DataFrame
        Rows of `iolab.stats.tables.ratio_table`. A/A pairs and rows without a p-value are no part
        of the grid.
    rate : float, optional
        Expected share of false discoveries among the selected rows, 0..1.

    Returns
    -------
    DataFrame
        The selected rows with ``q_value`` (0..1, at most `rate`), in ascending order of it.

    Raises
    ------
    UserError
        If the rate lies outside 0..1.

    References
    ----------
    Y. Benjamini and Y. Hochberg, "Controlling the false discovery rate", *Journal of the Royal
    Statistical Society B* 57, 1995.

    Examples
    --------
    >>> from iolab.stats.tables import ratio_table
    >>> discoveries(ratio_table(cells))["weight"].tolist()
    [1000, 10000, 1000, 10000]
    """
    if not 0 < rate < 1:
        raise UserError(f"a rate of false discoveries lies between 0 and 1, not at {rate}")
    grid = table[~table["aa"].astype(bool) & table["p_value"].notna()]
    q_values = stats.false_discovery_control(grid["p_value"]) if len(grid) else grid["p_value"]
    ranked = grid.assign(q_value=q_values)
    selected = ranked[ranked["q_value"] <= rate]
    return selected.sort_values("q_value", kind="stable", ignore_index=True)


def family_members(
    table: pd.DataFrame, family: Sequence[Mapping[str, object]] | None
) -> tuple[pd.Series[bool], int]:
    """Pick the rows of a table that belong to a family declared before measuring.

    Parameters
    ----------
    table : DataFrame
        A row for each condition.
    family : sequence of mapping or None
        The declared conditions, each as the columns that pick its row. None means every condition
        except the A/A pairs.

    Returns
    -------
    members : Series of bool
        Whether a row belongs to the family, with the index of the table.
    unmeasured : int
        Number of declared conditions without a row.

    Raises
    ------
    UserError
        If a member names an unknown column, or picks several rows.

    Examples
    --------
    >>> table = pd.DataFrame({"kernel": ["6.1", "6.12"], "p_value": [0.03, 0.2]})
    >>> members, unmeasured = family_members(table, [{"kernel": "6.1"}, {"kernel": "6.8"}])
    >>> members.tolist(), unmeasured
    ([True, False], 1)
    """
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
