# SPDX-License-Identifier: MIT
"""Estimates from one number per boot: mean, interval and p-value.

The boot is the replicate. Cells of one boot share a booted kernel, an order of cells and a layout
of memory, so they are not independent (Hurlbert, *Ecological Monographs* 54, 1984, calls runs that
are counted as replicates pseudoreplication; Kalibera and Jones, *ISMM* 2013, show it for
benchmarks).

A drift of the machine adds to one order of a pair (treated first, or control first) what it takes
from the other. The design measures a pair in one order in one boot and in the other in the next.
Drift then cancels from the mean of both orders, and the spread within an order says how well this
mean is known: the analysis of the two-period crossover (J. E. Grizzle, "The two-period change-over
design and its use in clinical trials", *Biometrics* 21, 1965), without its carry-over, for each
cell has a fresh device. ``docs/statistics.md`` simulates what these intervals and tests are worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, stdtrit

from iolab.shown import counted
from iolab_base.errors import UserError

Floats = npt.NDArray[np.float64]

CONFIDENCE: Final = 0.95
# A spread of logarithms below this is rounding, not spread.
ROUNDING: Final = 1e-12
# With fewer boots than these, the second mean would cost more than drift does.
_FEWEST_BOOTS: Final = 4
# What an interval at the level CONFIDENCE covers over so few boots, with the noise as measured (the
# rows "as measured" of docs/statistics.md).
COVERS: Final = {3: "87 %"}
# In each unit of a claim, less than this is what the arithmetic rounded.
_ROUNDED_OFF: Final = 1e-6
# Sign flips are enumerated up to 2**16; more boots than that are sampled with a fixed seed.
_EXACT_BOOTS: Final = 16


def check_confidence(confidence: float) -> None:
    """Reject a confidence level outside 0..1."""
    if not 0 < confidence < 1:
        raise UserError(f"a confidence level lies between 0 and 1, not at {confidence}")


def boots_text(n: int, confidence: float) -> str:
    """Return how many boots an interval is over, and its level: three boots do not reach it.

    >>> boots_text(6, 0.95), boots_text(3, 0.95)
    ('95%, 6 boots', 'n = 3: interval too short (87 %)')
    """
    if n > max(COVERS):
        return f"{confidence:.0%}, {counted(n, 'boot')}"
    covers = f" ({COVERS[n]})" if confidence == CONFIDENCE and n in COVERS else ""
    return f"n = {n}: interval too short{covers}"


def number_text(value: float, sign: str = "") -> str:
    """Return a number with three digits: 0.0123, 1,130, 2.5e+06; `sign` is as in a format.

    >>> number_text(1234.5), number_text(-3e-08)
    ('1,230', '0')
    """
    rounded = 0.0 if abs(value) < _ROUNDED_OFF else float(f"{value:.3g}")
    return f"{rounded:{sign},.0f}" if 1000 <= abs(rounded) < 1e6 else f"{rounded:{sign}.3g}"


def interval_text(low: float, high: float) -> str:
    """Return an interval in words, " [0.1, 0.2]"; "" where boots agree, or say nothing."""
    known = math.isfinite(low) and low < high
    return f" [{number_text(low)}, {number_text(high)}]" if known else ""


def what_is_missing(y: Floats) -> str:
    """Return why the values of some boots give no interval; "" if they do."""
    # In virtual time a value may move in steps: agreement to the last digit shows only that the
    # boots differ by less than a step.
    if y.size < 2:
        return "one boot"
    if np.ptp(y) <= ROUNDING * max(1.0, float(np.abs(y).max())):
        return f"the {y.size} boots do not differ"
    return ""


def t_interval(y: Floats, confidence: float) -> tuple[float, float, float]:
    """Return the mean of one value per boot and the ends of its t interval, in the values' unit.

    The ends are NaN where `what_is_missing` gives a reason. Raises UserError if there is no value,
    a value is not finite, or the level lies outside 0..1. (Student, "The probable error of a mean",
    *Biometrika* 6, 1908.)

    >>> import numpy as np
    >>> mean, low, high = t_interval(np.array([1.0, 2.0, 3.0]), 0.95)
    >>> print(f"{mean:.2f} [{low:.2f}, {high:.2f}]")
    2.00 [-0.48, 4.48]
    """
    _check(y, confidence)
    mean = float(np.mean(y))
    if what_is_missing(y):
        return mean, float("nan"), float("nan")
    half = float(_t_quantile(confidence, y.size - 1) * (np.std(y, ddof=1) / np.sqrt(y.size)))
    return mean, mean - half, mean + half


def _t_quantile(confidence: float, freedom: int) -> float:
    """Return what `scipy.stats.t.ppf` does, without a second for importing scipy.stats."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def _by_order(y: Floats, order: Floats) -> bool:
    """Return whether boots are analysed by order: at least four, not all of one order."""
    return y.size >= _FEWEST_BOOTS and bool(np.ptp(order) > 0)


def without_order(y: Floats, order: Floats) -> Floats:
    """Return the boots' values less their order times the slope of values on order."""
    if not _by_order(y, order):
        return y
    centred = order - order.mean()
    return np.asarray(y - (float(centred @ y) / float(centred @ centred)) * order, dtype=np.float64)


def crossover_interval(y: Floats, order: Floats, confidence: float) -> tuple[float, float, float]:
    """Return the mean of both orders of pairs and the ends of its t interval, in the values' unit.

    `y` and `order` have a value per boot: the order is 1 if treated cells came first, -1 if
    controls did, 0 if both did as often. With one pair in each boot this is the mean of the two
    orders' means, with the spread within the orders and n - 2 degrees of freedom. Fewer than four
    boots, and boots of one order, are analysed as plain pairs (`t_interval`), whose interval
    holds the drift as spread. The ends are NaN where the boots do not differ but for their order.
    Raises UserError as `t_interval`.

    >>> y, order = np.array([3.1, 0.9, 2.9, 1.1]), np.array([1.0, -1.0, 1.0, -1.0])
    >>> "{:.2f} [{:.2f}, {:.2f}]".format(*crossover_interval(y, order, 0.95))
    '2.00 [1.70, 2.30]'
    >>> "{:.2f} [{:.2f}, {:.2f}]".format(*t_interval(y, 0.95))
    '2.00 [0.15, 3.85]'
    """
    _check(y, confidence)
    if not _by_order(y, order):
        return t_interval(y, confidence)
    alone = without_order(y, order)
    mean = float(alone.mean())
    if what_is_missing(alone):
        return mean, float("nan"), float("nan")
    n, centred = y.size, order - order.mean()
    variance = float(((alone - mean) ** 2).sum()) / (n - 2)
    share = 1 / n + float(order.mean()) ** 2 / float(centred @ centred)
    half = _t_quantile(confidence, n - 2) * float(np.sqrt(variance * share))
    return mean, mean - half, mean + half


def from_zero(y: Floats, low: float, high: float) -> tuple[float, float]:
    """Cut an interval at 0 for counts, rates, shares and times, which are never negative."""
    # The part cut off cannot contain the truth, so the coverage is unchanged.
    if (y < 0).any():
        return low, high
    return (low, high) if np.isnan(low) else (max(low, 0.0), max(high, 0.0))


def poisson_interval(events: int, confidence: float) -> tuple[float, float]:
    """Return the ends of the exact interval of the number of events that a count stands for.

    Events are taken as independent: bursts spread more. (F. Garwood, "Fiducial limits for the
    Poisson distribution", *Biometrika* 28, 1936; quantiles of chi-square as those of gamma.)

    >>> "{:.2f} {:.2f}".format(*poisson_interval(0, 0.95))
    '0.00 3.69'
    >>> "{:.2f} {:.2f}".format(*poisson_interval(10, 0.95))
    '4.80 18.39'
    """
    check_confidence(confidence)
    miss = (1 - confidence) / 2
    low = float(gammaincinv(events, miss)) if events else 0.0
    return low, float(gammaincinv(events + 1, 1 - miss))


def _check(y: Floats, confidence: float) -> None:
    check_confidence(confidence)
    if y.size == 0:
        raise UserError("there is no boot to estimate from")
    if not np.isfinite(y).all():
        raise UserError(
            f"{counted(int((~np.isfinite(y)).sum()), 'boot')} of {y.size} have no finite value"
        )


class Statistic:
    """Base of results: a dataclass that prints as a sentence."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(Statistic):
    """A ratio treated/control with its interval, as `estimate` computes it.

    ``ratio`` is exp(mean over boots of ln(treated/control)). ``low`` and ``high`` are NaN with
    fewer than two boots and where the boots do not differ. ``pairs`` is the median number of valid
    pairs in a boot, ``p_value`` that of the two-sided sign-flip test, NaN with fewer than two
    boots. ``missing`` says why there is no interval, or no estimate; "" if nothing is missing.
    """

    ratio: float
    low: float
    high: float
    n: int
    pairs: float
    p_value: float
    confidence: float
    missing: str = ""

    def __str__(self) -> str:
        if self.n == 0:
            return f"no estimate: {self.missing}"
        at = "" if self.confidence == CONFIDENCE else f" ({self.confidence:.0%})"
        interval = f" [{self.low:.3f}, {self.high:.3f}]{at}, {counted(self.n, 'boot')}"
        p_value = "< 0.001" if self.p_value < 0.001 else f"= {self.p_value:.3f}"
        return (
            f"{self.ratio:.3f}"
            + (f" (no interval: {self.missing})" if self.missing else interval)
            + ("" if math.isnan(self.p_value) else f", p {p_value}")
        )


def sign_flip(differences: npt.ArrayLike) -> float:
    """Test whether one difference per boot is symmetric about zero, by flipping signs.

    Returns the two-sided p-value, NaN with fewer than two values. All 2**n patterns of signs are
    enumerated for up to 16 values. For more values, 65,535 patterns are drawn with a fixed seed.
    The smallest p-value that n values can give is 2 / 2**n, so five boots never reach 0.05. (R. A.
    Fisher, *The Design of Experiments*, Oliver and Boyd 1935, chapter III.)

    >>> sign_flip([-0.31, -0.29, -0.30, -0.33, -0.28, -0.30])
    0.03125
    >>> sign_flip([-0.31, -0.29, -0.30, -0.33, -0.28])
    0.0625
    """
    y = np.asarray(differences, dtype=np.float64)
    if y.size < 2:
        return float("nan")
    from scipy.stats import permutation_test  # noqa: PLC0415 - as in welch_difference

    result = permutation_test(
        (_in_units_of_the_largest(y),),
        _rounded_mean,
        permutation_type="samples",
        n_resamples=2 ** min(y.size, _EXACT_BOOTS) - (y.size > _EXACT_BOOTS),
        # All at once they would take half a MiB per boot, several times.
        batch=(_EXACT_BOOTS << _EXACT_BOOTS) // y.size or 1,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def estimate(
    differences: npt.ArrayLike,
    *,
    order: npt.ArrayLike = 0.0,
    pairs: float = 1.0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Estimate a ratio from the mean of ln(treated/control) of each boot.

    `order` is the mean order of each boot's pairs, from -1 (controls first) to 1 (treated cells
    first); `pairs`, the pairs per boot, is repeated in the result. The interval is
    `crossover_interval`'s. The p-value of `sign_flip` does not use the order: a drift makes it
    larger, never smaller. Raises UserError as `t_interval`.

    >>> import numpy as np
    >>> estimate(np.log([0.76, 0.77, 0.75, 0.76, 0.78, 0.74]))
    0.760 [0.745, 0.775], 6 boots, p = 0.031
    >>> estimate(np.log([0.76]))
    0.760 (no interval: one boot)
    """
    y = np.asarray(differences, dtype=np.float64)
    orders = np.broadcast_to(np.asarray(order, dtype=np.float64), y.shape)
    ratio, low, high = (ratio_of(log) for log in crossover_interval(y, orders, confidence))
    # Logarithms have no unit: one that is only rounding is a ratio of 1.
    return Estimate(
        ratio=ratio,
        low=low,
        high=high,
        n=int(y.size),
        pairs=float(pairs),
        p_value=sign_flip(np.where(np.abs(y) <= ROUNDING, 0.0, y)),
        confidence=confidence,
        missing=what_is_missing(without_order(y, orders)),
    )


def ratio_of(log: float) -> float:
    """Return the ratio that has a natural logarithm; inf where that overflows."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.exp(log))


def _in_units_of_the_largest(y: Floats) -> Floats:
    """Scale values to at most 1, so that rounding them does not depend on their unit."""
    largest = float(np.abs(y).max())
    return y / largest if largest > 0 else y


def _rounded_mean(y: Floats, axis: int) -> Floats:
    # Mathematically equal sums round differently, and a missed tie shifts the p-value.
    return np.asarray(np.mean(y, axis=axis)).round(12)


class Difference(NamedTuple):
    """The mean of a second sample minus that of a first, with Welch's interval and p-value.

    ``mean``, ``low`` and ``high`` are in the unit of the values, ``p_value`` is two-sided. Ends and
    p-value are NaN where ``missing`` says why there is no interval.
    """

    mean: float
    low: float
    high: float
    p_value: float
    missing: str


def welch_difference(a: Floats, b: Floats, confidence: float) -> Difference:
    """Return the mean of `b` minus that of `a`: unpaired samples that may spread differently.

    A sample has a value for each boot. There is no interval if one has a single boot, or if the
    boots of neither differ. (B. L. Welch, "The generalization of 'Student's' problem when several
    different population variances are involved", *Biometrika* 34, 1947.)

    >>> compared = welch_difference(np.array([1.0, 1.5, 2.5]), np.array([4.0, 4.1]), 0.95)
    >>> print(f"{compared.mean:.2f} [{compared.low:.2f}, {compared.high:.2f}]")
    2.38 [0.52, 4.25]
    """
    mean = float(np.mean(b) - np.mean(a))
    nan = float("nan")
    if min(a.size, b.size) < 2:
        return Difference(mean, nan, nan, nan, "one boot")
    if what_is_missing(a) and what_is_missing(b):
        return Difference(mean, nan, nan, nan, "the boots of a kernel do not differ")
    # The import takes a second, which verdicts do not need.
    from statsmodels.stats.weightstats import CompareMeans, DescrStatsW  # noqa: PLC0415

    compared = CompareMeans(DescrStatsW(b), DescrStatsW(a))
    low, high = compared.tconfint_diff(alpha=1 - confidence, usevar="unequal")
    p_value = compared.ttest_ind(usevar="unequal")[1]
    return Difference(mean, float(low), float(high), float(p_value), "")
