# SPDX-License-Identifier: MIT
"""From which level of a factor on more of it brings nothing: the knee of a curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd
from scipy import optimize

from iolab.errors import UserError
from iolab.stats.conditions import boot_means, cell_columns, in_kernel_order
from iolab.stats.estimates import (
    CONFIDENCE,
    Floats,
    Statistic,
    check_confidence,
    format_boots,
    t_interval,
    what_is_missing,
)

__all__ = ["GROWS", "Hinge", "Knee", "hinge", "knee", "knee_table"]

# A curve grows where doubling the level adds at least a tenth: its slope in logarithms.
GROWS: Final = math.log2(1.1)
_FEWEST_LEVELS: Final = 4


@dataclass(frozen=True, slots=True)
class Hinge:
    """Two lines in logarithms that meet at ``knee``; ``before`` and ``after`` are their slopes.

    A slope of 1 is growth in proportion to the level. ``misfit`` is the sum of squared residuals.
    """

    knee: float
    before: float
    after: float
    misfit: float


@dataclass(frozen=True, slots=True, repr=False)
class Knee(Statistic):
    """The level of ``factor`` from which on the value stops growing, with its interval.

    Each of ``n`` boots has its own knee; ``within`` of them lie within the levels that were
    measured, ``lowest`` to ``highest``, the others ``under`` or ``over`` that range. Where any lies
    outside there is no estimate, and ``missing`` says on which side; ``low`` and ``high`` are NaN
    where boots are too few or do not differ, too. ``before`` and ``after`` are the boots' mean
    slopes (in logarithms) of the boots whose knee lies within.
    """

    factor: str
    knee: float
    low: float
    high: float
    n: int
    within: int
    under: int
    over: int
    lowest: float
    highest: float
    before: float
    after: float
    confidence: float
    missing: str = ""

    def __str__(self) -> str:
        if math.isnan(self.knee):
            return f"knee in {self.factor}: no estimate, {self.missing}"
        found = f"knee at {self.factor} {self.knee:.3g}"
        if self.missing:
            return f"{found} (no interval: {self.missing})"
        at = "" if self.confidence == CONFIDENCE else f" ({self.confidence:.0%})"
        return f"{found} [{self.low:.3g}, {self.high:.3g}]{at}, {format_boots(self.n)}"


def hinge(levels: Floats, values: Floats) -> Hinge:
    """Fit two lines that meet to ln(values) against ln(levels), by least squares.

    The knee is looked for between the second level and the last but one: each line needs two
    points. Errors: UserError with fewer than four distinct levels, or a number not above 0.
    """
    order = np.argsort(levels, kind="stable")
    x, y = np.asarray(levels, dtype=np.float64)[order], np.asarray(values, dtype=np.float64)[order]
    if np.unique(x).size < _FEWEST_LEVELS:
        raise UserError(f"a knee takes at least {_FEWEST_LEVELS} levels, not {np.unique(x).size}")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and x[0] > 0 and y.min() > 0):
        raise UserError("a knee is looked for in logarithms: levels and values must be above 0")
    x, y = np.log(x), np.log(y)

    def fit(at: float) -> tuple[Floats, float]:
        columns = np.column_stack([np.ones_like(x), np.minimum(x - at, 0), np.maximum(x - at, 0)])
        found = np.linalg.lstsq(columns, y)[0]
        return found, float(((y - columns @ found) ** 2).sum())

    inner = np.unique(x)[1:-1]
    candidates = [float(at) for at in inner]
    # Between two neighbouring levels the misfit is smooth; the levels themselves are its corners.
    for low, high in pairwise(inner):
        between = optimize.minimize_scalar(
            lambda at: fit(at)[1], bounds=(low, high), method="bounded", options={"xatol": 1e-9}
        )
        candidates.append(float(between.x))
    # A tie goes to the first of them, a level: where the fit does not care, no knee is made up.
    best = min(candidates, key=lambda at: round(fit(at)[1], 12))
    (_, before, after), misfit = fit(best)
    return Hinge(math.exp(best), float(before), float(after), misfit)


def knee(
    cells: pd.DataFrame,
    factor: str,
    value: str = "iops",
    *,
    confidence: float = CONFIDENCE,
) -> Knee:
    """Return the knee of the one condition of these cells: as `knee_table`.

    Errors: UserError if the cells hold several conditions; else as `knee_table`.
    """
    _, found = _knees(cells, factor, value, None, confidence)
    if len(found) != 1:
        raise UserError(f"these cells hold {len(found)} conditions: choose one")
    return found[0]


def knee_table(
    cells: pd.DataFrame,
    factor: str,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Return each condition's knee over the levels of a factor: columns `by`, `Knee`'s.

    `by` is what a cell's condition is made of but the factor. A hinge is fitted to each boot's own
    curve; the estimate is exp(mean ln(knee)) and the interval exp(t interval over the boots). A
    boot whose value does not grow by a tenth per doubling before the hinge has its knee under the
    range, one that still does behind it over the range; a hinge on the second level or the last but
    one counts as outside too, for the knee may lie beyond it. Boots without four levels (gated
    cells) are left out. Errors: UserError for a factor that is not there or not of numbers above 0,
    or if no boot has four levels; else as `iolab.stats.tables.mean_table`.
    """
    by = [name for name in cell_columns(cells) if name != factor] if by is None else by
    conditions, found = _knees(cells, factor, value, by, confidence)
    return in_kernel_order(
        pd.concat([conditions, pd.DataFrame([asdict(one) for one in found])], axis=1), by
    )


def _knees(
    cells: pd.DataFrame, factor: str, value: str, by: Sequence[str] | None, confidence: float
) -> tuple[pd.DataFrame, list[Knee]]:
    check_confidence(confidence)
    if factor not in cells.columns or not pd.api.types.is_numeric_dtype(cells[factor]):
        raise UserError(f"{factor} is no factor of numbers in these cells")
    by = [name for name in cell_columns(cells) if name != factor] if by is None else by
    levels = boot_means(cells.dropna(subset=[factor]), value, [*by, factor], log=True)
    conditions, found = [], []
    for _, group in levels.groupby(list(by), dropna=False, observed=True):
        curves = [
            (curve[factor].to_numpy(dtype=np.float64), np.exp(curve["y"].to_numpy(np.float64)))
            for _, curve in group.groupby("block")
            if len(curve) >= _FEWEST_LEVELS
        ]
        if curves:
            conditions.append(group[list(by)].iloc[[0]])
            found.append(_knee(factor, curves, confidence))
    if not found:
        raise UserError(f"no boot has {_FEWEST_LEVELS} levels of {factor} with a valid cell")
    return pd.concat(conditions, ignore_index=True), found


def _knee(factor: str, curves: Sequence[tuple[Floats, Floats]], confidence: float) -> Knee:
    sides = [_side(levels, hinge(levels, values)) for levels, values in curves]
    found = [fitted for side, fitted in sides if side == "within"]
    under, over = (sum(side == which for side, _ in sides) for which in ("under", "over"))
    lowest = float(min(levels.min() for levels, _ in curves))
    highest = float(max(levels.max() for levels, _ in curves))
    middle = low = high = math.nan
    missing = _censored((under, over, len(sides)), (lowest, highest))
    if not missing:
        y = np.log([fitted.knee for fitted in found])
        middle, low, high = (math.exp(end) for end in t_interval(y, confidence))
        missing = what_is_missing(y)
    return Knee(
        factor=factor,
        knee=middle,
        low=low,
        high=high,
        n=len(sides),
        within=len(found),
        under=under,
        over=over,
        lowest=lowest,
        highest=highest,
        before=float(np.mean([fitted.before for fitted in found])) if found else math.nan,
        after=float(np.mean([fitted.after for fitted in found])) if found else math.nan,
        confidence=confidence,
        missing=missing,
    )


def _side(levels: Floats, fitted: Hinge) -> tuple[str, Hinge]:
    inner = np.unique(levels)[1:-1]
    # Growth at the end comes first: on a straight line the hinge may lie anywhere.
    if fitted.after >= GROWS:
        return "over", fitted
    if fitted.before < GROWS or math.isclose(fitted.knee, inner[0], rel_tol=1e-6):
        return "under", fitted
    if math.isclose(fitted.knee, inner[-1], rel_tol=1e-6):
        return "over", fitted
    return "within", fitted


def _censored(counts: tuple[int, int, int], ends: tuple[float, float]) -> str:
    under, over, n = counts
    said = [
        f"{how} in {'every boot' if count == n else f'{count} of {format_boots(n)}'}"
        for count, how in (
            (under, f"it lies near or below the lowest level ({ends[0]:g})"),
            (over, f"it lies near or above the highest level ({ends[1]:g})"),
        )
        if count
    ]
    return ", ".join(said)
