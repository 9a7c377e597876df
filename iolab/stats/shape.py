# SPDX-License-Identifier: MIT
"""Shape of a value over the levels of a factor: where it stops growing, where it reaches a limit.

*Knee*: two lines that meet, a hinge, are fitted to each boot's own curve in logarithms (D. J.
Hudson, "Fitting segmented curves whose join points have to be estimated", *Journal of the American
Statistical Association* 61, 1966). The boots' knees give the estimate and its interval.

*Threshold*: each boot's values are made non-decreasing in the treatment by isotonic regression (R.
E. Barlow and others, *Statistical Inference under Order Restrictions*, Wiley 1972). The threshold
of a boot then lies between two measured levels: the last at which the value is below the limit, and
the first at which it reaches it. Such data are interval-censored (B. W. Turnbull, *Journal of the
Royal Statistical Society B* 38, 1976): a sharp threshold may lie anywhere between the two levels,
so the interval is the measured bracket, not a t interval over interpolated crossings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from iolab.pathology.factors import IntegerFactor
from iolab.shown import counted
from iolab.stats.conditions import (
    boot_means,
    cell_columns,
    in_kernel_order,
    pathology_of,
    refuse_mixture,
    shared_columns,
    valid_cells,
)
from iolab.stats.estimates import (
    CONFIDENCE,
    Floats,
    Statistic,
    check_confidence,
    t_interval,
    what_is_missing,
)
from iolab_base.errors import UserError

# A curve grows where doubling the level adds at least a tenth: its slope in logarithms.
GROWS: Final = math.log2(1.1)
_FEWEST_LEVELS: Final = 4


@dataclass(frozen=True, slots=True)
class Hinge:
    """Two lines in logarithms that meet at the knee."""

    # Level at which the lines meet, in the unit of the levels.
    knee: float
    # Slopes of ln(value) against ln(level): 1 is growth in proportion to the level.
    before: float
    after: float
    # Sum of the squared residuals of ln(value).
    misfit: float


@dataclass(frozen=True, slots=True, repr=False)
class Knee(Statistic):
    """The level of a factor beyond which the value stops growing, with its interval.

    ``knee`` is exp(mean over boots of ln(knee)), in the unit of the factor; NaN if the knee of any
    boot lies outside the measured levels. ``low`` and ``high`` are NaN there, too, with one boot,
    and where the boots do not differ. ``n`` boots have a curve; the knee of ``within``, ``under``
    and ``over`` of them lies within the measured levels (``lowest`` to ``highest``), below and
    above them. ``before`` and ``after`` are mean slopes of ln(value) against ln(level) of the boots
    within. ``missing`` says why there is no estimate or no interval.
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
        return f"{text} [{self.low:.3g}, {self.high:.3g}]{at}, {counted(self.n, 'boot')}"


def hinge(levels: Floats, values: Floats) -> Hinge:
    """Fit two lines that meet to ln(values) against ln(levels), by least squares.

    The knee lies between the second level and the last but one: each line needs two points. Raises
    UserError with fewer than four distinct levels, or if a number is not above 0.

    >>> import numpy as np
    >>> jobs = np.array([1.0, 2, 4, 8, 16, 32])
    >>> fit = hinge(jobs, 1000 * np.minimum(jobs, 8))
    >>> round(fit.knee, 6), round(fit.before, 6), round(fit.after + 0.0, 6) + 0.0
    (8.0, 1.0, 0.0)
    """
    order = np.argsort(levels, kind="stable")
    x, y = np.asarray(levels, dtype=np.float64)[order], np.asarray(values, dtype=np.float64)[order]
    if np.unique(x).size < _FEWEST_LEVELS:
        raise UserError(f"a knee needs at least {_FEWEST_LEVELS} levels, not {np.unique(x).size}")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and x[0] > 0 and y.min() > 0):
        raise UserError("a knee is found in logarithms: levels and values must be above 0")
    x, y = np.log(x), np.log(y)

    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - as in estimates.py

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
    cells: pd.DataFrame, factor: str, value: str = "iops", *, confidence: float = CONFIDENCE
) -> Knee:
    """Estimate the knee of one condition, from cells that differ in nothing but `factor`.

    Raises UserError as `knee_table`, and for cells of several conditions.

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
    """Estimate the knee of each condition, along a factor of numbers above 0.

    A boot whose value does not grow by a tenth per doubling before the hinge has its knee under the
    measured range; one that still does behind the hinge has it over the range. A hinge on the
    second level or the last but one counts as outside too, for the knee may lie beyond it. Boots
    with fewer than four levels (gated cells) are left out.

    A row has the columns `by` (by default those of a cell's condition except `factor`) and the
    fields of `Knee`. Raises UserError if the cells lack the factor, it is not of numbers above 0,
    or no boot has four levels; else as `boot_means`.
    """
    conditions, knees = _knees(cells, factor, value, by, confidence)
    results = pd.DataFrame([asdict(one) for one in knees])
    return in_kernel_order(pd.concat([conditions, results], axis=1), conditions.columns.tolist())


def _knees(
    cells: pd.DataFrame, factor: str, value: str, by: Sequence[str] | None, confidence: float
) -> tuple[pd.DataFrame, list[Knee]]:
    check_confidence(confidence)
    if factor not in cells.columns or not pd.api.types.is_numeric_dtype(cells[factor]):
        raise UserError(f"{factor} is not a numeric factor of these cells")
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
    hinges = [hinge(levels, values) for levels, values in curves]
    sides = [_side(levels, fitted) for (levels, _), fitted in zip(curves, hinges, strict=True)]
    within = [fitted for side, fitted in zip(sides, hinges, strict=True) if side == "within"]
    n, under, over = len(sides), sides.count("under"), sides.count("over")
    lowest = float(min(levels.min() for levels, _ in curves))
    highest = float(max(levels.max() for levels, _ in curves))
    middle = low = high = math.nan
    boots = counted(n, "boot")
    missing = ", ".join(
        f"{where} in {'every boot' if count == n else f'{count} of {boots}'}"
        for count, where in (
            (under, f"it lies near or below the lowest level ({lowest:g})"),
            (over, f"it lies near or above the highest level ({highest:g})"),
        )
        if count
    )
    if not missing:
        y = np.log([fitted.knee for fitted in within])
        middle, low, high = (math.exp(end) for end in t_interval(y, confidence))
        missing = what_is_missing(y)
    return Knee(
        factor=factor,
        knee=middle,
        low=low,
        high=high,
        n=n,
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


def _side(levels: Floats, fitted: Hinge) -> str:
    inner = np.unique(levels)[1:-1]
    # Growth at the end comes first: on a straight line the hinge may lie anywhere.
    if fitted.after >= GROWS:
        return "over"
    if fitted.before < GROWS or math.isclose(fitted.knee, inner[0], rel_tol=1e-6):
        return "under"
    return "over" if math.isclose(fitted.knee, inner[-1], rel_tol=1e-6) else "within"


@dataclass(frozen=True, slots=True, repr=False)
class Threshold(Statistic):
    """The lowest level of the treatment at which a value reaches a limit.

    ``estimate`` is exp(mean over boots of the logarithm of the crossing, interpolated between the
    two measured levels around it), in the unit of the treatment: a guess if the threshold is sharp.
    ``low`` and ``high`` are the measured bracket: the lowest level that was the last below the
    limit in a boot, and the highest that was the first to reach it; NaN where a boot has none.
    ``censored`` says which of the ``n`` boots do not cross the limit within the measured levels; ""
    if all do.

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
            f"the measured levels around it in {counted(self.n, 'boot')}"
        )


def threshold(cells: pd.DataFrame, value: str, limit: float) -> Threshold:
    """Find the lowest level of the treatment at which a value reaches a limit, in the value's unit.

    The cells are of one kernel, equal except for the treatment, which must be a number; valid
    treated ones without tracing count. The value must not fall as the treatment rises. Raises
    UserError if they mix conditions, a cell lacks the value, or a boot has fewer than two levels.

    >>> one = cells[cells["kernel"] == "6.1"]
    >>> threshold(one, "switches_per_io", 1.0)
    544.3 [100, 1000], the measured levels around it in 6 boots
    """
    boots = _by_boot(cells, value)
    crossings = [_crossing(np.log(x), y, limit) for x, y in boots]
    firsts = [first for _, first in crossings]
    # The measured levels around each crossing; NaN where there is none, which low and high inherit.
    ends = zip(boots, firsts, strict=True)
    below, above = np.transpose([[math.nan, *x, math.nan][i : i + 2] for (x, _), i in ends])
    censored = _uncrossed([x for x, _ in boots], firsts, limit)
    return Threshold(
        estimate=math.nan if censored else math.exp(np.mean([log for log, _ in crossings])),
        low=float(below.min()),
        high=float(above.max()),
        n=len(boots),
        censored=censored,
    )


def _by_boot(cells: pd.DataFrame, value: str) -> list[tuple[Floats, Floats]]:
    """Return each boot's levels of the treatment, ascending, and the mean value at each."""
    pathology = pathology_of(cells)
    name = pathology.treatment
    if not isinstance(pathology.factors[name], IntegerFactor):
        raise UserError(f"{name} is not a number, so it has no threshold")
    treated = cells[cells[name].notna()]
    if not (treated["valid"] & ~treated["recorded"]).any():
        raise UserError("there is no valid treated cell")
    kept = valid_cells(treated, value)
    refuse_mixture(kept, ["kernel"], shared_columns(kept))
    if kept["kernel"].nunique() > 1:
        raise UserError("these cells have more than one kernel: choose one")
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - as in estimates.py

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


def _uncrossed(boots: list[Floats], firsts: list[int], limit: float) -> str:
    """Return which boots have no crossing, by their levels, in words; "" if each has one."""
    never = [x[-1] for x, i in zip(boots, firsts, strict=True) if i == x.size]
    at_once = [x[0] for x, i in zip(boots, firsts, strict=True) if i == 0]
    parts = []
    if never:
        parts.append(f"{len(never)} of {len(boots)} boots are below {limit:g} up to {min(never):g}")
    if at_once:
        parts.append(
            f"{len(at_once)} of {len(boots)} boots have {limit:g} at {max(at_once):g} already"
        )
    return "; ".join(parts)
