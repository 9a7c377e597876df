# SPDX-License-Identifier: MIT
"""Threshold: the lowest level of the treatment at which a value reaches a limit.

Each boot's values are made non-decreasing in the treatment by isotonic regression (R. E. Barlow and
others, *Statistical Inference under Order Restrictions*, Wiley 1972). The threshold of a boot then
lies between two measured levels: the last at which the value is below the limit, and the first at
which it reaches it. Such data are interval-censored (B. W. Turnbull, *Journal of the Royal
Statistical Society B* 38, 1976): a sharp threshold may lie anywhere between the two levels, so the
measured bracket is the interval, and no t interval over interpolated crossings is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from iolab.pathology.factors import IntegerFactor
from iolab.stats.conditions import pathology_of, refuse_mixture, shared_columns, valid_cells
from iolab.stats.estimates import Statistic
from iolab.stats.intervals import Floats, format_boots
from iolab_base.errors import UserError

__all__ = ["Threshold", "threshold"]


@dataclass(frozen=True, slots=True, repr=False)
class Threshold(Statistic):
    """The lowest level of the treatment at which a value reaches a limit.

    Parameters
    ----------
    estimate : float
        exp(mean over boots of the logarithm of the crossing, interpolated between the two measured
        levels around it), in the unit of the treatment. Within the bracket it is a guess if the
        threshold is sharp. NaN where `censored` says why.
    low, high : float
        The measured bracket, in the same unit: the lowest level that was the last below the limit
        in a boot, and the highest that was the first to reach it. NaN where a boot has none.
    n : int
        Number of boots.
    censored : str
        Which boots do not cross the limit within the measured levels; empty if all do.

    Notes
    -----
    The bracket holds the threshold of every measured boot. It holds the median threshold of all
    boots with a probability of at least 1 - 2**(1 - n), 96.9 % for six boots, because it misses
    that only if all boots lie on one side of it (H. A. David and H. N. Nagaraja, *Order
    Statistics*, 3rd ed., Wiley 2003, section 7.1).
    """

    estimate: float
    low: float
    high: float
    n: int
    censored: str

    def __str__(self) -> str:
        if self.censored:
            return f"no threshold within what was measured: {self.censored}"
        return (
            f"{self.estimate:.4g} [{self.low:g}, {self.high:g}], "
            f"the measured levels around it in {format_boots(self.n)}"
        )


def threshold(cells: pd.DataFrame, value: str, limit: float) -> Threshold:
    """Find the lowest level of the treatment at which a value reaches a limit.

    Parameters
    ----------
    cells : DataFrame
        Cells of one kernel, equal except for the treatment, which must be a number. The valid
        treated ones without tracing count.
    value : str
        Column that does not fall as the treatment rises, in any unit.
    limit : float
        Limit, in the unit of the value.

    Returns
    -------
    Threshold
        The estimate with the measured bracket.

    Raises
    ------
    UserError
        If the cells mix conditions, targets, clocks or kernel releases, the treatment is not a
        number, a cell lacks the value, or a boot has fewer than two levels.

    Examples
    --------
    >>> one = cells[cells["kernel"] == "6.1"]
    >>> threshold(one, "switches_per_io", 1.0)
    544.3 [100, 1000], the measured levels around it in 6 boots
    """
    boots = _by_boot(cells, value)
    crossings = [_crossing(np.log(x), y, limit) for x, y in boots]
    below = [x[i - 1] if i else math.nan for (x, _), (_, i) in zip(boots, crossings, strict=True)]
    above = [
        x[i] if i < x.size else math.nan for (x, _), (_, i) in zip(boots, crossings, strict=True)
    ]
    censored = _censored(boots, [i for _, i in crossings], limit)
    crossing = math.nan if censored else math.exp(np.mean([log for log, _ in crossings]))
    return Threshold(
        estimate=crossing,
        low=math.nan if any(map(math.isnan, below)) else float(min(below)),
        high=math.nan if any(map(math.isnan, above)) else float(max(above)),
        n=len(boots),
        censored=censored,
    )


def _by_boot(cells: pd.DataFrame, value: str) -> list[tuple[Floats, Floats]]:
    """Return each boot's levels of the treatment, ascending, and the mean value at each."""
    pathology = pathology_of(cells)
    name = pathology.treatment
    if not isinstance(pathology.factors[name], IntegerFactor):
        raise UserError(f"{name} is no number: it has no threshold")
    treated = cells[cells[name].notna()]
    if not (treated["valid"] & ~treated["recorded"]).any():
        raise UserError("there is no valid treated cell")
    kept = valid_cells(treated, value)
    refuse_mixture(kept, ["kernel"], shared_columns(kept))
    if kept["kernel"].nunique() > 1:
        raise UserError("these cells have more than one kernel: choose one")
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - as in welch.py

    boots = []
    for _, group in kept.groupby("block"):
        means = group.groupby(name)[value].mean().sort_index()
        if len(means) < 2:
            raise UserError(f"a boot has {value} at fewer than two levels of {name}")
        x = means.index.to_numpy(dtype=np.float64)
        boots.append((x, isotonic_regression(means.to_numpy(dtype=np.float64)).x))
    return boots


def _crossing(x: Floats, y: Floats, limit: float) -> tuple[float, int]:
    """Return where a non-decreasing y reaches the limit, and the index of the first point there."""
    first = int(np.searchsorted(y, limit))
    if first in (0, x.size):
        return math.nan, first
    part = (limit - y[first - 1]) / (y[first] - y[first - 1])
    return float(x[first - 1] + part * (x[first] - x[first - 1])), first


def _censored(boots: list[tuple[Floats, Floats]], firsts: list[int], limit: float) -> str:
    """Return which boots have no crossing, in words; "" if each has one."""
    never = [x[-1] for (x, _), i in zip(boots, firsts, strict=True) if i == x.size]
    at_once = [x[0] for (x, _), i in zip(boots, firsts, strict=True) if i == 0]
    parts = []
    if never:
        parts.append(f"{len(never)} of {len(boots)} boots are below {limit:g} up to {min(never):g}")
    if at_once:
        parts.append(
            f"{len(at_once)} of {len(boots)} boots have {limit:g} at {max(at_once):g} already"
        )
    return "; ".join(parts)
