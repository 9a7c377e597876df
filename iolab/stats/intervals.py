# SPDX-License-Identifier: MIT
"""Intervals of one number per boot: plain ones, and by the order of a pair's two cells.

A drift of the machine adds to one order (treated first, or control first) what it takes from the
other. The design measures a pair in one order in one boot and in the other in the next. Drift then
cancels from the mean of both orders, and the spread within an order says how well this mean is
known: the analysis of the two-period crossover (J. E. Grizzle, "The two-period change-over design
and its use in clinical trials", *Biometrics* 21, 1965), without its carry-over, for each cell has a
fresh device.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from iolab_base.errors import UserError

__all__ = [
    "ROUNDING",
    "Floats",
    "check_confidence",
    "crossover_interval",
    "format_boots",
    "from_zero",
    "t_interval",
    "what_is_missing",
    "without_order",
]

Floats = npt.NDArray[np.float64]

# A spread of logarithms below this is rounding, not spread.
ROUNDING: Final = 1e-12
# With fewer boots than these, the second mean would cost more than drift does.
FEWEST_BOOTS: Final = 4


def check_confidence(confidence: float) -> None:
    """Reject a confidence level outside 0..1.

    Parameters
    ----------
    confidence : float
        Confidence level.

    Raises
    ------
    UserError
        If the level is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise UserError(f"a confidence level lies between 0 and 1, not at {confidence}")


def format_boots(n: int) -> str:
    """Format a number of boots.

    Parameters
    ----------
    n : int
        Number of boots.

    Returns
    -------
    str
        The number with its noun.

    Examples
    --------
    >>> format_boots(1), format_boots(6)
    ('1 boot', '6 boots')
    """
    return "1 boot" if n == 1 else f"{n} boots"


def what_is_missing(y: Floats) -> str:
    """Return why the values of some boots give no interval.

    Boots that agree to the last digit give none. In virtual time a value may move in steps, and
    agreement shows only that the boots differ by less than a step.

    Parameters
    ----------
    y : ndarray of float, shape (n,)
        One value per boot, in any unit.

    Returns
    -------
    str
        The reason; empty if there is an interval.

    Examples
    --------
    >>> import numpy as np
    >>> what_is_missing(np.array([0.1, 0.1, 0.1]))
    'the 3 boots do not differ'
    >>> what_is_missing(np.array([0.1, 0.2, 0.1]))
    ''
    """
    if y.size < 2:
        return "one boot"
    if np.ptp(y) <= ROUNDING * max(1.0, float(np.abs(y).max())):
        return f"the {y.size} boots do not differ"
    return ""


def t_interval(y: Floats, confidence: float) -> tuple[float, float, float]:
    """Compute a mean and its t interval.

    Parameters
    ----------
    y : ndarray of float, shape (n,)
        One value per boot, in any unit.
    confidence : float
        Confidence level of the interval, 0..1.

    Returns
    -------
    mean, low, high : float
        In the unit of the values. The ends are NaN where `what_is_missing` gives a reason.

    Raises
    ------
    UserError
        If there is no value, a value is not finite, or the level lies outside 0..1.

    References
    ----------
    Student, "The probable error of a mean", *Biometrika* 6, 1908.

    Examples
    --------
    >>> import numpy as np
    >>> mean, low, high = t_interval(np.array([1.0, 2.0, 3.0]), 0.95)
    >>> print(f"{mean:.2f} [{low:.2f}, {high:.2f}]")
    2.00 [-0.48, 4.48]
    """
    _check(y, confidence)
    mean = float(np.mean(y))
    if what_is_missing(y):
        return mean, float("nan"), float("nan")
    error = np.std(y, ddof=1) / np.sqrt(y.size)
    half = float(t_quantile(confidence, y.size - 1) * error)
    return mean, mean - half, mean + half


def t_quantile(confidence: float, freedom: int) -> float:
    """Return the quantile of Student's t that bounds its middle, as `scipy.stats.t.ppf` does.

    To import scipy.stats takes a second, which verdicts do not need.
    """
    return float(stdtrit(freedom, (1 + confidence) / 2))


def by_order(y: Floats, order: Floats) -> bool:
    """Return whether boots are analysed by order: at least four, not all of one order.

    `y` has one value per boot, a mean of treated - control or of ln(treated/control). `order` is
    the mean order of its pairs: 1 if treated cells came first, -1 if controls did, 0 if balanced.
    """
    return y.size >= FEWEST_BOOTS and bool(np.ptp(order) > 0)


def without_order(y: Floats, order: Floats) -> Floats:
    """Return the boots' values without the effect of the order of their cells.

    Each value less its order times the slope of values on order; unchanged if `by_order` is false.
    """
    if not by_order(y, order):
        return y
    centred = order - order.mean()
    slope = float(centred @ y) / float(centred @ centred)
    return np.asarray(y - slope * order, dtype=np.float64)


def crossover_interval(y: Floats, order: Floats, confidence: float) -> tuple[float, float, float]:
    """Compute the mean of both orders and its t interval.

    With one pair in each boot this is the mean of the two orders' means, with the spread within
    the orders and n - 2 degrees of freedom. Fewer than four boots, and boots of one order, are
    analysed as plain pairs (`t_interval`), whose interval holds the drift as
    spread.

    Parameters
    ----------
    y, order : ndarray of float, shape (n,)
        As for `by_order`.
    confidence : float
        Confidence level of the interval, 0..1.

    Returns
    -------
    mean, low, high : float
        In the unit of the values. The ends are NaN where the boots do not differ but for their
        order.

    Raises
    ------
    UserError
        As `t_interval`.

    Examples
    --------
    >>> y, order = np.array([3.1, 0.9, 2.9, 1.1]), np.array([1.0, -1.0, 1.0, -1.0])
    >>> "{:.2f} [{:.2f}, {:.2f}]".format(*crossover_interval(y, order, 0.95))
    '2.00 [1.70, 2.30]'
    >>> "{:.2f} [{:.2f}, {:.2f}]".format(*t_interval(y, 0.95))
    '2.00 [0.15, 3.85]'
    """
    _check(y, confidence)
    if not by_order(y, order):
        return t_interval(y, confidence)
    alone = without_order(y, order)
    mean = float(alone.mean())
    if what_is_missing(alone):
        return mean, float("nan"), float("nan")
    n, centred = y.size, order - order.mean()
    variance = float(((alone - mean) ** 2).sum()) / (n - 2)
    share = 1 / n + float(order.mean()) ** 2 / float(centred @ centred)
    half = t_quantile(confidence, n - 2) * float(np.sqrt(variance * share))
    return mean, mean - half, mean + half


def from_zero(y: Floats, low: float, high: float) -> tuple[float, float]:
    """Cut an interval at 0 for counts, rates, shares and times, which are never negative.

    Neither end is then below 0 unless a value is. The part cut off cannot contain the truth, so the
    coverage is unchanged.
    """
    if (y < 0).any():
        return low, high
    return (low, high) if np.isnan(low) else (max(low, 0.0), max(high, 0.0))


def _check(y: Floats, confidence: float) -> None:
    check_confidence(confidence)
    if y.size == 0:
        raise UserError("there is no boot to estimate from")
    if not np.isfinite(y).all():
        raise UserError(
            f"{format_boots(int((~np.isfinite(y)).sum()))} of {y.size} have no finite value"
        )
