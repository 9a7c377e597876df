# SPDX-License-Identifier: MIT
"""From which strength of the treatment on a value reaches a level: in one boot, then over boots.

Each boot has its own crossing: its values are made non-decreasing in the treatment (isotonic
regression), then interpolated in the logarithm of the treatment between the two measured strengths
around the level. The boots' crossings give the estimate and a t interval, in logarithms too. A
sharp threshold crosses between the same two strengths in every boot, wherever between them it lies:
so these two, ``measured_below`` and ``measured_above``, belong to the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import isotonic_regression

from iolab.errors import UserError
from iolab.pathology.factors import IntegerFactor
from iolab.stats.conditions import pathology_of, shared_columns
from iolab.stats.estimates import CONFIDENCE, Statistic, estimate, format_boots

__all__ = ["Threshold", "threshold"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, repr=False)
class Threshold(Statistic):
    """Where a value reaches a level, in the treatment's unit, over ``n`` boots.

    ``low`` and ``high`` are the t interval over boots, at ``confidence``; ``measured_below`` is the
    weakest treatment that was the last below the level in a boot, ``measured_above`` the strongest
    that was the first to reach it. A boot that never reaches the level, or has reached it at once,
    has no crossing: then ``censored`` says so in a sentence, and what is not known is NaN.
    """

    estimate: float
    low: float
    high: float
    measured_below: float
    measured_above: float
    n: int
    confidence: float
    censored: str

    def __str__(self) -> str:
        if self.censored:
            return f"no threshold within what was measured: {self.censored}"
        interval = (
            f"[{self.low:.4g}, {self.high:.4g}] "
            if math.isfinite(self.low)
            else "the same in all boots, "
        )
        return (
            f"{self.estimate:.4g} {interval}between the measured {self.measured_below:g} and "
            f"{self.measured_above:g}, {format_boots(self.n)}"
        )


def threshold(
    cells: pd.DataFrame, value: str, limit: float, *, confidence: float = CONFIDENCE
) -> Threshold:
    """Return from which treatment on `value` is at least `limit`, in cells of one condition.

    The cells are of one kernel, and equal but for the treatment, which must be a number; of them
    the valid treated ones without tracing count. Errors: UserError for a mixture of conditions, a
    treatment without an order, or fewer than two of its levels in a boot.
    """
    boots = _by_boot(cells, value)
    crossings = [_crossing(np.log(x), y, limit) for x, y in boots]
    below = [x[i - 1] if i else math.nan for (x, _), (_, i) in zip(boots, crossings, strict=True)]
    above = [
        x[i] if i < x.size else math.nan for (x, _), (_, i) in zip(boots, crossings, strict=True)
    ]
    censored = _censored(boots, [i for _, i in crossings], limit)
    crossing = low = high = math.nan
    if not censored:
        found = estimate([log for log, _ in crossings], confidence=confidence)
        crossing, low, high = found.ratio, found.low, found.high
    return Threshold(
        estimate=crossing,
        low=low,
        high=high,
        measured_below=math.nan if any(map(math.isnan, below)) else float(min(below)),
        measured_above=math.nan if any(map(math.isnan, above)) else float(max(above)),
        n=len(boots),
        confidence=confidence,
        censored=censored,
    )


def _by_boot(cells: pd.DataFrame, value: str) -> list[tuple[Floats, Floats]]:
    """Return each boot's strengths of the treatment, ascending, and the mean value at each."""
    shared = shared_columns(cells)
    pathology = pathology_of(cells)
    name = pathology.treatment
    if not isinstance(pathology.factors[name], IntegerFactor):
        raise UserError(f"{name} is no number: it has no threshold")
    if value not in cells.columns:
        raise UserError(f"cells have no column {value}")
    kept = cells[cells["valid"] & ~cells["recorded"] & cells[name].notna()]
    for column in shared:
        if kept[column].nunique() > 1:
            raise UserError(f"these cells have more than one {column}: choose one")
    boots = []
    for _, group in kept.groupby("block"):
        means = group.groupby(name)[value].mean().sort_index()
        if means.isna().any() or len(means) < 2:
            raise UserError(f"a boot has {value} at fewer than two levels of {name}")
        x = means.index.to_numpy(dtype=np.float64)
        boots.append((x, isotonic_regression(means.to_numpy(dtype=np.float64)).x))
    if not boots:
        raise UserError("there is no valid treated cell")
    return boots


def _crossing(x: Floats, y: Floats, limit: float) -> tuple[float, int]:
    """Return where a non-decreasing y reaches the level, and the number of the first that does."""
    first = int(np.searchsorted(y, limit))
    if first in (0, x.size):
        return math.nan, first
    part = (limit - y[first - 1]) / (y[first] - y[first - 1])
    return float(x[first - 1] + part * (x[first] - x[first - 1])), first


def _censored(boots: list[tuple[Floats, Floats]], firsts: list[int], limit: float) -> str:
    """Say which boots have no crossing; empty when each has one."""
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
