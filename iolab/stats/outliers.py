# SPDX-License-Identifier: MIT
"""Outliers: cells far from their condition's median."""

from __future__ import annotations

from typing import Final

import pandas as pd

from iolab.stats.conditions import cell_columns, valid_cells
from iolab.stats.intervals import ROUNDING
from iolab.stats.pairs import log_values

__all__ = ["mark_outliers"]

_OUTLIER_MADS: Final = 3.5


def mark_outliers(cells: pd.DataFrame, value: str = "iops") -> pd.Series[bool]:
    """Mark the cells that lie far from their condition's median.

    Marks point a reader to a cell. Nothing in this package drops a marked cell.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    value : str, optional
        Column of a positive quantity, in any unit.

    Returns
    -------
    Series of bool
        Whether ln(value) lies more than 3.5 scaled median absolute deviations from the median,
        with the index of `cells`. Invalid and traced cells are not marked.

    Raises
    ------
    UserError
        As in `iolab.stats.conditions.valid_cells` and `iolab.stats.pairs.log_values`.

    References
    ----------
    B. Iglewicz and D. C. Hoaglin, *How to Detect and Handle Outliers*, ASQC Quality Press 1993.

    Examples
    --------
    >>> slow = cells.copy()
    >>> slow.loc[5, "iops"] = 1.0
    >>> bool(mark_outliers(slow)[5])
    True
    """
    kept = valid_cells(cells, value)
    kept = kept.assign(y=log_values(kept, value))
    grouped = kept.groupby(cell_columns(kept), dropna=False, observed=True)["y"]
    distance = (kept["y"] - grouped.transform("median")).abs()
    from scipy.stats import median_abs_deviation  # noqa: PLC0415 - as in welch.py

    mad = grouped.transform(lambda y: median_abs_deviation(y, scale="normal"))
    far = (distance > _OUTLIER_MADS * mad) & (distance > ROUNDING)
    return far.reindex(cells.index, fill_value=False).astype(bool)
