# SPDX-License-Identifier: MIT
"""Order within a block: drift over the positions, correlation of neighbours, and outliers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from iolab.stats.conditions import cell_columns, in_kernel_order, log_values, valid_cells
from iolab.stats.estimates import CONFIDENCE, ROUNDING, Floats, t_interval


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
        from scipy.stats import theilslopes  # noqa: PLC0415 - as in unpaired.py

        slope, _, low, high = theilslopes(y, x)
        if np.ptp(y) > ROUNDING:
            from statsmodels.tsa.stattools import acf  # noqa: PLC0415 - as in unpaired.py

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
    from scipy.stats import median_abs_deviation  # noqa: PLC0415 - as in unpaired.py

    mad = grouped.transform(lambda y: median_abs_deviation(y, scale="normal"))
    far = (distance > 3.5 * mad) & (distance > ROUNDING)
    return far.reindex(cells.index, fill_value=False).astype(bool)
