# SPDX-License-Identifier: MIT
"""Map of a treatment crossed with another factor: the values, and where the effect begins."""

from __future__ import annotations

from typing import Final, Literal

import pandas as pd

from iolab.stats.conditions import (
    cell_columns,
    comparable_cells,
    in_kernel_order,
    pathology_of,
)
from iolab.stats.tables import mean_table, ratio_table

__all__ = ["IOPS_LOST", "crossed_cells", "region_table"]

# The ratio of IOPS below which something is lost: where two boots nearly agree, a thousandth would
# otherwise be an effect.
IOPS_LOST: Final = 0.99


def crossed_cells(cells: pd.DataFrame, factor: str, *, by: str) -> pd.DataFrame:
    """Return the cells in which the treatment is crossed with a factor.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology, without side experiments.
    factor : str
        The factor that the treatment is crossed with.
    by : str
        A factor of which each level has a plane of its own.

    Returns
    -------
    DataFrame
        The untraced pairs of each level of the treatment that was measured at two levels of
        `factor` or more, and of each level of `factor` that has two such. Without a row where
        nothing is crossed.

    Examples
    --------
    >>> crossed = crossed_cells(cells, "iodepth", by="numjobs")
    >>> len(crossed) == (0 if cells["iodepth"].nunique() == 1 else len(cells))
    True
    """
    if cells.empty:
        return cells
    treatment = pathology_of(cells).treatment
    kept = cells[~cells["recorded"]]
    # Dropping a level may leave another one with a single partner.
    while True:
        treated = kept[kept[treatment].notna()]
        partners = treated.groupby([by, treatment])[factor].transform("nunique")
        levels = treated.groupby([by, factor])[treatment].transform("nunique")
        lone = treated[(partners < 2) | (levels < 2)]
        # An A/A pair has no level of the treatment: it stays where a plane has its other factor.
        planes = treated.drop(lone.index)[[by, factor]].drop_duplicates()
        placed = kept.merge(planes, on=[by, factor], how="left", indicator="in_plane")["in_plane"]
        dropped = kept.merge(lone[["block", "pair"]], how="left", indicator="lone")["lone"]
        fewer = kept[((placed == "both") & (dropped == "left_only")).to_numpy()]
        if len(fewer) == len(kept):
            return fewer
        kept = fewer


def region_table(
    cells: pd.DataFrame, value: str, contrast: Literal["mean", "ratio"], *, limit: float = 1.0
) -> pd.DataFrame:
    """Return a value in each condition, and whether the effect is there.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology, clock and target.
    value : str
        Column of the cells.
    contrast : {"mean", "ratio"}
        The mean in each condition, or the ratio treated/control of the pairs.
    limit : float
        In the unit of the contrast. A ratio shows the effect where its whole interval lies below
        the limit, a mean where it lies above. Without an interval a ratio shows nothing.

    Returns
    -------
    DataFrame
        A row for each kernel and condition: kernel, the factors, ``y`` (NaN where no valid cell
        has the value), ``low`` and ``high`` (t interval over boots), ``n`` (boots) and ``effect``
        (NA where a ratio has no interval, or there is no value).
        The control has no level of the treatment; of ratios, its row is the A/A pair's.

    Raises
    ------
    UserError
        As `iolab.stats.tables.ratio_table` and `iolab.stats.tables.mean_table`.

    Examples
    --------
    >>> table = region_table(cells, "iops", "ratio")
    >>> table.loc[table["kernel"] == "6.1", ["weight", "y", "effect"]].round(2)
       weight     y  effect
    0    <NA>  1.00   False
    1     100  1.00   False
    2    1000  0.92    True
    3   10000  0.80    True
    """
    kept = cells[~cells["recorded"]]
    comparable_cells(kept)
    if contrast == "ratio":
        table = ratio_table(kept, value).rename(columns={"ratio": "y"})
        # Without an interval, boots that agree on no effect at all show none.
        unknown = table["high"].isna() & ~((table["n"] > 1) & (table["y"] >= limit))
        effect = (table["high"] < limit).astype("boolean").mask(unknown)
    else:
        table = mean_table(kept, value).rename(columns={"mean": "y"})
        effect = (table["y"] > limit).astype("boolean").mask(table["y"].isna())
    pathology = pathology_of(kept)
    columns = ["kernel", *pathology.factors, "y", "low", "high", "n"]
    treated = table[pathology.treatment].notna()
    table = table[columns].assign(effect=effect.mask(~treated, False))
    return in_kernel_order(table, cell_columns(kept))
