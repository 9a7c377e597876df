# SPDX-License-Identifier: MIT
"""Knee: the level beyond which the value stops growing.

Two lines that meet, a hinge, are fitted to each boot's own curve in logarithms (D. J. Hudson,
"Fitting segmented curves whose join points have to be estimated", *Journal of the American
Statistical Association* 61, 1966). The boots' knees give the estimate and its interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from iolab.stats.conditions import cell_columns, in_kernel_order
from iolab.stats.estimates import CONFIDENCE, Statistic
from iolab.stats.intervals import (
    Floats,
    check_confidence,
    format_boots,
    t_interval,
    what_is_missing,
)
from iolab.stats.pairs import boot_means
from iolab_base.errors import UserError

__all__ = ["GROWS", "Hinge", "Knee", "hinge", "knee", "knee_table"]

# A curve grows where doubling the level adds at least a tenth: its slope in logarithms.
GROWS: Final = math.log2(1.1)
_FEWEST_LEVELS: Final = 4


@dataclass(frozen=True, slots=True)
class Hinge:
    """Two lines in logarithms that meet at the knee.

    Parameters
    ----------
    knee : float
        Level at which the lines meet, in the unit of the levels.
    before, after : float
        Slopes of ln(value) against ln(level). A slope of 1 is growth in proportion to the level.
    misfit : float
        Sum of the squared residuals of ln(value).
    """

    knee: float
    before: float
    after: float
    misfit: float


@dataclass(frozen=True, slots=True, repr=False)
class Knee(Statistic):
    """The level of a factor beyond which the value stops growing, with its interval.

    Parameters
    ----------
    factor : str
        Name of the factor.
    knee : float
        exp(mean over boots of ln(knee)), in the unit of the factor. NaN if the knee of any boot
        lies outside the measured levels.
    low, high : float
        Ends of the interval, in the same unit. NaN where `knee` is, with one boot, and where the
        boots do not differ.
    n : int
        Number of boots with a curve.
    within, under, over : int
        Number of boots whose knee lies within the measured levels, below them, and above them.
    lowest, highest : float
        Lowest and highest measured level.
    before, after : float
        Mean slopes of ln(value) against ln(level) of the boots whose knee lies within.
    confidence : float
        Confidence level of the interval, 0..1.
    missing : str, optional
        Why there is no estimate or no interval; empty if nothing is missing.
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
        text = f"knee at {self.factor} {self.knee:.3g}"
        if self.missing:
            return f"{text} (no interval: {self.missing})"
        at = "" if self.confidence == CONFIDENCE else f" ({self.confidence:.0%})"
        return f"{text} [{self.low:.3g}, {self.high:.3g}]{at}, {format_boots(self.n)}"


def hinge(levels: Floats, values: Floats) -> Hinge:
    """Fit two lines that meet to ln(values) against ln(levels), by least squares.

    Parameters
    ----------
    levels : ndarray of float, shape (n,)
        Levels of a factor, above 0, at least four of them distinct.
    values : ndarray of float, shape (n,)
        Value at each level, above 0, in any unit.

    Returns
    -------
    Hinge
        The best fit with the knee between the second level and the last but one: each line needs
        two points.

    Raises
    ------
    UserError
        If there are fewer than four distinct levels, or a number is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> jobs = np.array([1.0, 2, 4, 8, 16, 32])
    >>> fit = hinge(jobs, 1000 * np.minimum(jobs, 8))
    >>> round(fit.knee, 6), round(fit.before, 6), round(fit.after + 0.0, 6) + 0.0
    (8.0, 1.0, 0.0)
    """
    order = np.argsort(levels, kind="stable")
    x, y = np.asarray(levels, dtype=np.float64)[order], np.asarray(values, dtype=np.float64)[order]
    if np.unique(x).size < _FEWEST_LEVELS:
        raise UserError(f"a knee takes at least {_FEWEST_LEVELS} levels, not {np.unique(x).size}")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and x[0] > 0 and y.min() > 0):
        raise UserError("a knee is looked for in logarithms: levels and values must be above 0")
    x, y = np.log(x), np.log(y)

    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - as in welch.py

    def fit(at: float) -> tuple[Floats, float]:
        columns = np.column_stack([np.ones_like(x), np.minimum(x - at, 0), np.maximum(x - at, 0)])
        coefficients = np.linalg.lstsq(columns, y)[0]
        return coefficients, float(((y - columns @ coefficients) ** 2).sum())

    inner = np.unique(x)[1:-1]
    candidates = [float(at) for at in inner]
    # Between two neighbouring levels the misfit is smooth; the levels themselves are its corners.
    for low, high in pairwise(inner):
        between = minimize_scalar(
            lambda at: fit(at)[1], bounds=(low, high), method="bounded", options={"xatol": 1e-9}
        )
        candidates.append(float(between.x))
    # A tie goes to the first, a level: if all fit equally well, no knee is made up.
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
    """Estimate the knee of one condition.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology that differ in nothing but `factor`.
    factor : str
        Factor of numbers above 0 along which the curve runs.
    value : str, optional
        Column of a positive quantity, in any unit.
    confidence : float, optional
        Confidence level of the interval, 0..1.

    Returns
    -------
    Knee
        As a row of `knee_table`.

    Raises
    ------
    UserError
        If the cells hold several conditions; else as in `knee_table`.

    Examples
    --------
    >>> import numpy as np
    >>> control = cells[(cells["kernel"] == "6.1") & (cells["role"] == "control") & ~cells["aa"]]
    >>> one = control.drop_duplicates("block")
    >>> curves = []
    >>> for jobs in (1, 2, 4, 8, 16, 32):
    ...     limit = 6 + one["boot"].astype(float)
    ...     curves.append(one.assign(numjobs=jobs, iops=1000 * np.minimum(jobs, limit)))
    >>> knee(pd.concat(curves), "numjobs")
    knee at numjobs 8.32 [6.56, 10.6], 6 boots
    """
    _, knees = _knees(cells, factor, value, None, confidence)
    if len(knees) != 1:
        raise UserError(f"these cells hold {len(knees)} conditions: choose one")
    return knees[0]


def knee_table(
    cells: pd.DataFrame,
    factor: str,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Estimate the knee of each condition.

    A boot whose value does not grow by a tenth per doubling before the hinge has its knee under the
    measured range; one that still does behind the hinge has it over the range. A hinge on the
    second level or the last but one counts as outside too, for the knee may lie beyond it. Boots
    with fewer than four levels (gated cells) are left out.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    factor : str
        Factor of numbers above 0 along which the curves run.
    value : str, optional
        Column of a positive quantity, in any unit.
    by : sequence of str, optional
        Columns of the condition; by default those of a cell's condition except `factor`.
    confidence : float, optional
        Confidence level of the intervals, 0..1.

    Returns
    -------
    DataFrame
        A row for each condition: the columns `by` and the fields of `Knee`. The estimate is
        exp(mean ln(knee)) and the interval exp(t interval over boots).

    Raises
    ------
    UserError
        If the cells lack the factor, it is not of numbers above 0, or no boot has four levels; else
        as in `iolab.stats.pairs.boot_means`.

    Examples
    --------
    See `knee`.
    """
    by = [name for name in cell_columns(cells) if name != factor] if by is None else by
    conditions, knees = _knees(cells, factor, value, by, confidence)
    results = pd.DataFrame([asdict(one) for one in knees])
    return in_kernel_order(pd.concat([conditions, results], axis=1), by)


def _knees(
    cells: pd.DataFrame, factor: str, value: str, by: Sequence[str] | None, confidence: float
) -> tuple[pd.DataFrame, list[Knee]]:
    check_confidence(confidence)
    if factor not in cells.columns or not pd.api.types.is_numeric_dtype(cells[factor]):
        raise UserError(f"{factor} is no factor of numbers in these cells")
    by = [name for name in cell_columns(cells) if name != factor] if by is None else by
    levels = boot_means(cells.dropna(subset=[factor]), value, [*by, factor], log=True)
    conditions, knees = [], []
    for _, group in levels.groupby(list(by), dropna=False, observed=True):
        curves = [
            (curve[factor].to_numpy(dtype=np.float64), np.exp(curve["y"].to_numpy(np.float64)))
            for _, curve in group.groupby("block")
            if len(curve) >= _FEWEST_LEVELS
        ]
        if curves:
            conditions.append(group[list(by)].iloc[[0]])
            knees.append(_knee(factor, curves, confidence))
    if not knees:
        raise UserError(f"no boot has {_FEWEST_LEVELS} levels of {factor} with a valid cell")
    return pd.concat(conditions, ignore_index=True), knees


def _knee(factor: str, curves: Sequence[tuple[Floats, Floats]], confidence: float) -> Knee:
    sides = [_side(levels, hinge(levels, values)) for levels, values in curves]
    within = [fitted for side, fitted in sides if side == "within"]
    under, over = (sum(side == which for side, _ in sides) for which in ("under", "over"))
    lowest = float(min(levels.min() for levels, _ in curves))
    highest = float(max(levels.max() for levels, _ in curves))
    middle = low = high = math.nan
    missing = _censored((under, over, len(sides)), (lowest, highest))
    if not missing:
        y = np.log([fitted.knee for fitted in within])
        middle, low, high = (math.exp(end) for end in t_interval(y, confidence))
        missing = what_is_missing(y)
    return Knee(
        factor=factor,
        knee=middle,
        low=low,
        high=high,
        n=len(sides),
        within=len(within),
        under=under,
        over=over,
        lowest=lowest,
        highest=highest,
        before=float(np.mean([fitted.before for fitted in within])) if within else math.nan,
        after=float(np.mean([fitted.after for fitted in within])) if within else math.nan,
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
    parts = [
        f"{how} in {'every boot' if count == n else f'{count} of {format_boots(n)}'}"
        for count, how in (
            (under, f"it lies near or below the lowest level ({ends[0]:g})"),
            (over, f"it lies near or above the highest level ({ends[1]:g})"),
        )
        if count
    ]
    return ", ".join(parts)
