# SPDX-License-Identifier: MIT
"""Whether the order of a block's cells matters: drift, and how alike neighbours are."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.tsa.stattools import acf

from iolab.stats.conditions import cell_columns, in_kernel_order, log_values, valid_cells
from iolab.stats.estimates import CONFIDENCE, ROUNDING, Floats, t_interval

__all__ = ["order_effect", "order_table"]


def order_effect(cells: pd.DataFrame, value: str = "iops") -> pd.DataFrame:
    """Ask each block whether later cells fare differently.

    Columns kernel, block, slope, low, high, lag1, n. ``slope`` is the Theil-Sen slope of ln(value)
    against the position in the block (per position, with its 95 % interval), ``lag1`` the
    autocorrelation of neighbours, both after removing each condition's own mean of value and
    position within the block. Conditions measured once in a block say nothing and are left out;
    ``n`` cells remain. NaN with fewer than three, or no spread. The autocorrelation of a short
    series without any is about -1/n, not 0.
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
    """Summarise `order_effect` for each kernel: slope, low, high (t on the boots), lag1, n (boots).

    ``slope`` is in ln(value) per position: 0.01 is 1 % more from each cell to the next; ``lag1`` is
    the boots' median.
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
        slope, _, low, high = stats.theilslopes(y, x)
        if np.ptp(y) > ROUNDING:
            lag1 = acf(y, nlags=1, fft=False)[1]
    return {
        "slope": float(slope),
        "low": float(low),
        "high": float(high),
        "lag1": float(lag1),
        "n": x.size,
    }
