# SPDX-License-Identifier: MIT
"""Estimates from one number per boot: mean, interval and p-value.

The boot is the replicate. Cells of one boot share a booted kernel, an order of cells and a layout
of memory, so they are not independent (Hurlbert, *Ecological Monographs* 54, 1984, calls runs that
are counted as replicates pseudoreplication; Kalibera and Jones, *ISMM* 2013, show it for
benchmarks). ``docs/statistics.md`` simulates what these intervals and tests are worth.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from iolab.stats.intervals import (
    ROUNDING,
    Floats,
    crossover_interval,
    format_boots,
    what_is_missing,
    without_order,
)

__all__ = [
    "CONFIDENCE",
    "Estimate",
    "Statistic",
    "estimate",
    "ratio_of",
    "sign_flip",
]


CONFIDENCE: Final = 0.95
# Sign flips are enumerated up to 2**16; more boots than that are sampled with a fixed seed.
_EXACT_BOOTS: Final = 16


class Statistic:
    """Base of results: a dataclass that prints as a sentence and converts to plain JSON."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values.

        Returns
        -------
        dict of str to Any
            The fields by name. A float that is not finite becomes None.
        """
        fields: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()
        }

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(Statistic):
    """A ratio treated/control with its interval.

    Parameters
    ----------
    ratio : float
        exp(mean over boots of ln(treated/control)), without unit.
    low, high : float
        Ends of the interval, without unit. NaN with fewer than two boots and where the boots do
        not differ.
    n : int
        Number of boots.
    pairs : float
        Median number of valid pairs in a boot.
    p_value : float
        Two-sided p-value of the sign-flip test, 0..1. NaN with fewer than two boots.
    confidence : float
        Confidence level of the interval, 0..1.
    missing : str, optional
        Why there is no interval, or no estimate. Empty if nothing is missing.

    See Also
    --------
    estimate : Computes it.
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
        interval = f" [{self.low:.3f}, {self.high:.3f}]{at}, {format_boots(self.n)}"
        p_value = "< 0.001" if self.p_value < 0.001 else f"= {self.p_value:.3f}"
        return (
            f"{self.ratio:.3f}"
            + (f" (no interval: {self.missing})" if self.missing else interval)
            + ("" if math.isnan(self.p_value) else f", p {p_value}")
        )


def sign_flip(differences: npt.ArrayLike) -> float:
    """Test whether differences are symmetric about zero, by flipping their signs.

    All 2**n patterns of signs are enumerated for up to 16 values. For more values, 65,535 patterns
    are drawn with a fixed seed. The smallest p-value that n values can give is 2 / 2**n, so five
    boots never reach 0.05.

    Parameters
    ----------
    differences : array_like, shape (n,)
        One difference per boot, in any unit.

    Returns
    -------
    float
        Two-sided p-value, 0..1. NaN with fewer than two values.

    References
    ----------
    R. A. Fisher, *The Design of Experiments*, Oliver and Boyd 1935, chapter III.

    Examples
    --------
    >>> sign_flip([-0.31, -0.29, -0.30, -0.33, -0.28, -0.30])
    0.03125
    >>> sign_flip([-0.31, -0.29, -0.30, -0.33, -0.28])
    0.0625
    """
    y = np.asarray(differences, dtype=np.float64)
    if y.size < 2:
        return float("nan")
    from scipy.stats import permutation_test  # noqa: PLC0415 - as in welch.py

    result = permutation_test(
        (_in_units_of_the_largest(y),),
        _rounded_mean,
        permutation_type="samples",
        n_resamples=2 ** min(y.size, _EXACT_BOOTS) - (y.size > _EXACT_BOOTS),
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
    """Estimate a ratio from one mean log ratio per boot.

    Parameters
    ----------
    differences : array_like, shape (n,)
        Mean of ln(treated/control) of each boot.
    order : array_like, shape (n,), optional
        Mean order of each boot's pairs, from -1 (controls first) to 1 (treated cells first).
    pairs : float, optional
        Pairs per boot, which the result repeats.
    confidence : float, optional
        Confidence level of the interval, 0..1.

    Returns
    -------
    Estimate
        exp(mean) with the interval of `iolab.stats.intervals.crossover_interval`, and the p-value
        of `sign_flip`, which does not use the order: a drift makes it larger, never smaller.

    Raises
    ------
    UserError
        If there is no value, a value is not finite, or the level lies outside 0..1.

    Examples
    --------
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
    exact = np.where(np.abs(y) <= ROUNDING, 0.0, y)
    return Estimate(
        ratio=ratio,
        low=low,
        high=high,
        n=int(y.size),
        pairs=float(pairs),
        p_value=sign_flip(exact),
        confidence=confidence,
        missing=what_is_missing(without_order(y, orders)),
    )


def ratio_of(log: float) -> float:
    """Return the ratio that has a logarithm.

    Parameters
    ----------
    log : float
        Natural logarithm of a ratio.

    Returns
    -------
    float
        exp(log), without unit; inf where that overflows.

    Examples
    --------
    >>> ratio_of(0.0), ratio_of(1000.0), ratio_of(-1000.0)
    (1.0, inf, 0.0)
    """
    with np.errstate(over="ignore", under="ignore"):
        return float(np.exp(log))


def _in_units_of_the_largest(y: Floats) -> Floats:
    """Scale values to at most 1, so that rounding them does not depend on their unit."""
    largest = float(np.abs(y).max())
    return y / largest if largest > 0 else y


def _rounded_mean(y: Floats, axis: int) -> Floats:
    # Mathematically equal sums round differently, and a missed tie shifts the p-value.
    return np.asarray(np.mean(y, axis=axis)).round(12)
