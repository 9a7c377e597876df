# SPDX-License-Identifier: MIT
"""Power: what a number of boots can show, and how many boots a run takes.

Power is that of the two-sided t test of the boots' means. It is computed from the noncentral F
distribution: the noncentral t distribution, which statsmodels uses, gives NaN for large effects on
few boots, and large effects on few boots are what this project measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from scipy import optimize, stats

from iolab.errors import UserError
from iolab.stats.estimates import CONFIDENCE, ROUNDING, Statistic, check_confidence, format_boots
from iolab.stats.variance import Components

__all__ = [
    "POWER",
    "BootsNeeded",
    "Detectable",
    "TooManyBootsError",
    "boots_needed",
    "minimum_detectable",
    "power_of",
    "why_no_plan",
]

POWER: Final = 0.8
# Nobody boots more often; a plan that asks for more is said not to work.
_MOST_BOOTS: Final = 10_000
# The spread of a pilot is itself uncertain: plan for its upper limit at this one-sided level
# (R. H. Browne, "On the use of a pilot sample for sample size determination", Statistics in
# Medicine 14, 1995).
_CAUTION: Final = 0.8
# A mean so many times its test's limit away is always seen.
_CERTAIN: Final = 40.0


class TooManyBootsError(UserError):
    """No number of boots that anybody would wait for shows the effect."""


@dataclass(frozen=True, slots=True, repr=False)
class Detectable(Statistic):
    """The ratios that a number of boots can distinguish from 1.

    Parameters
    ----------
    below, above : float
        A ratio below `below` or above `above` is distinguished from 1, without unit.
    boots : int
        Number of boots.
    sd : float
        Standard deviation of a boot's mean of ln(ratio).
    power : float
        Probability that such a ratio is distinguished from 1, 0..1.
    confidence : float
        Confidence level, 0..1.
    claims : int
        Number of claims that share the level (Holm's worst case).
    tested : bool
        Whether the p-value of a sign-flip test of so many boots can reach the level.
    """

    below: float
    above: float
    boots: int
    sd: float
    power: float
    confidence: float
    claims: int
    tested: bool

    def __str__(self) -> str:
        text = (
            f"{format_boots(self.boots)} tell a ratio below {self.below:.3f} or above "
            f"{self.above:.3f} from 1 "
            f"with power {self.power:.2f}{_terms(self.sd, self.confidence, self.claims)}"
        )
        if self.tested:
            return text
        least = _sign_flip_boots(self.confidence, self.claims)
        return f"{text}; only by its interval: a sign-flip p-value takes {least} boots"


@dataclass(frozen=True, slots=True, repr=False)
class BootsNeeded(Statistic):
    """The number of boots that tells a ratio from 1.

    Parameters
    ----------
    boots : int
        Number of boots, if the spread is `sd`.
    cautious : int or None
        The same if the spread is at the pilot's upper 80 % limit. None where the spread was given
        as a number.
    sign_flip : int
        Number of boots that the p-value takes, whatever the effect.
    ratio : float
        Ratio treated/control to distinguish from 1, without unit.
    sd : float
        Standard deviation of a boot's mean of ln(ratio).
    power : float
        Probability that the ratio is distinguished from 1, 0..1.
    confidence : float
        Confidence level, 0..1.
    claims : int
        Number of claims that share the level (Holm's worst case).
    """

    boots: int
    cautious: int | None
    sign_flip: int
    ratio: float
    sd: float
    power: float
    confidence: float
    claims: int

    def __str__(self) -> str:
        to_be_safe = f" ({self.cautious} to be safe)" if self.cautious is not None else ""
        why = "; fewer have no sign-flip p-value below that" if self.boots == self.sign_flip else ""
        return (
            f"you need {format_boots(self.boots)}{to_be_safe} to tell a ratio of {self.ratio:g} "
            f"from 1 with power {self.power:.2f}"
            f"{_terms(self.sd, self.confidence, self.claims)}{why}"
        )


def power_of(effect: float, n: int, alpha: float) -> float:
    """Compute the power of a two-sided one-sample t test.

    Parameters
    ----------
    effect : float
        Mean in standard deviations of a value.
    n : int
        Number of values, at least two.
    alpha : float
        Level of the test, 0..1.

    Returns
    -------
    float
        Power, 0..1.

    References
    ----------
    J. Cohen, *Statistical Power Analysis for the Behavioral Sciences*, 2nd ed., Erlbaum 1988,
    chapter 2.

    Examples
    --------
    >>> round(power_of(1.0, 10, 0.05), 3)
    0.803
    """
    limit = float(stats.t.isf(alpha / 2, n - 1))
    # So far beyond its limit a mean never falls back, and the distribution ends in overflow.
    shift = min(effect * math.sqrt(n), _CERTAIN * limit)
    return float(stats.ncf.sf(limit**2, 1, n - 1, shift**2))


def minimum_detectable(
    spread: float | Components,
    n: int,
    *,
    pairs: float | None = None,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    claims: int = 1,
) -> Detectable:
    """Compute the smallest effect that a number of boots can tell from none.

    Parameters
    ----------
    spread : float or Components
        Standard deviation of a boot's mean of ln(treated/control), or a pilot's components.
    n : int
        Number of boots.
    pairs : float, optional
        Pairs per boot, if other than the pilot's; this takes a pilot's components.
    power : float, optional
        Probability that the effect is seen, 0..1.
    confidence : float, optional
        Confidence level, 0..1.
    claims : int, optional
        Number of claims that share the level (Holm's worst case).

    Returns
    -------
    Detectable
        The ratios that can be distinguished from 1.

    Raises
    ------
    UserError
        If there are fewer than two boots, there is no spread, or the power, the level or the number
        of claims is out of range.

    Examples
    --------
    >>> minimum_detectable(0.02, 6)
    6 boots tell a ratio below 0.972 or above 1.029 from 1 with power 0.80
    (spread of a boot 2.00%, level 0.95)
    """
    sd = _spread(spread, pairs)
    _check(power, confidence, claims)
    if n < 2:
        raise UserError("one boot has no interval: plan at least two")
    alpha = (1 - confidence) / claims

    def lacking(log_effect: float) -> float:
        return power_of(math.exp(log_effect), n, alpha) - power

    certain = _CERTAIN * float(stats.t.isf(alpha / 2, n - 1))
    effect = math.exp(optimize.brentq(lacking, math.log(1e-6), math.log(certain), xtol=1e-10))
    return Detectable(
        below=math.exp(-effect * sd),
        above=math.exp(effect * sd),
        boots=n,
        sd=sd,
        power=power,
        confidence=confidence,
        claims=claims,
        tested=n >= _sign_flip_boots(confidence, claims),
    )


def boots_needed(
    spread: float | Components,
    ratio: float,
    *,
    pairs: float | None = None,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    claims: int = 1,
) -> BootsNeeded:
    """Compute how many boots tell a ratio treated/control from 1.

    Parameters
    ----------
    spread : float or Components
        Standard deviation of a boot's mean of ln(treated/control), or a pilot's components.
    ratio : float
        Ratio to distinguish from 1, above 0, without unit.
    pairs : float, optional
        Pairs per boot, if other than the pilot's; this takes a pilot's components.
    power : float, optional
        Probability that the ratio is distinguished from 1, 0..1.
    confidence : float, optional
        Confidence level, 0..1.
    claims : int, optional
        Number of claims that share the level (Holm's worst case).

    Returns
    -------
    BootsNeeded
        Enough boots for the interval and for the p-value.

    Raises
    ------
    TooManyBootsError
        If 10,000 boots do not suffice.
    UserError
        If the ratio is 1 or not above 0; else as in `minimum_detectable`.

    Examples
    --------
    >>> boots_needed(0.028, 0.97)
    you need 9 boots to tell a ratio of 0.97 from 1 with power 0.80
    (spread of a boot 2.80%, level 0.95)
    """
    sd = _spread(spread, pairs)
    _check(power, confidence, claims)
    if ratio <= 0 or ratio == 1:
        raise UserError(f"a ratio to plan for is above 0 and not 1, not {ratio:g}")
    alpha = (1 - confidence) / claims
    effect = abs(math.log(ratio)) / sd
    least = _sign_flip_boots(confidence, claims)
    cautious = None
    if isinstance(spread, Components):
        worse = math.sqrt((spread.n - 1) / stats.chi2.ppf(1 - _CAUTION, spread.n - 1))
        cautious = max(least, _boots(effect / worse, power, alpha))
    return BootsNeeded(
        boots=max(least, _boots(effect, power, alpha)),
        cautious=cautious,
        sign_flip=least,
        ratio=ratio,
        sd=sd,
        power=power,
        confidence=confidence,
        claims=claims,
    )


def _spread(spread: float | Components, pairs: float | None) -> float:
    if isinstance(spread, Components):
        missing = why_no_plan(spread)
        if missing:
            raise UserError(f"nothing can be planned from this pilot: {missing}")
        return spread.mean_sd if pairs is None else spread.sd_with(pairs)
    if not (math.isfinite(spread) and spread > 0):
        raise UserError(f"a spread to plan with is above 0, not {spread:g}")
    if pairs is not None:
        raise UserError("what other numbers of pairs give takes a pilot's Components")
    return spread


def why_no_plan(spread: Components) -> str:
    """Return why nothing can be planned from a pilot.

    Parameters
    ----------
    spread : Components
        The pilot's components.

    Returns
    -------
    str
        The reason; empty if a plan can be made.
    """
    if spread.n < 2:
        return "one boot has no spread"
    return "" if spread.mean_sd > ROUNDING else "its boots do not differ"


def _check(power: float, confidence: float, claims: int) -> None:
    check_confidence(confidence)
    if not (1 - confidence) < power < 1:
        raise UserError(f"a power lies between {1 - confidence:.2g} and 1, not at {power:g}")
    if claims < 1:
        raise UserError(f"there is at least one claim, not {claims}")


def _sign_flip_boots(confidence: float, claims: int) -> int:
    """Return the boots whose smallest p-value, 2 / 2**n, reaches the level."""
    # Rounded: 1 - 0.95 is a hair above 0.05.
    return math.ceil(round(1 + math.log2(claims / (1 - confidence)), 9))


def _boots(effect: float, power: float, alpha: float) -> int:
    few, enough = 1, 2
    while power_of(effect, enough, alpha) < power:
        few, enough = enough, 2 * enough
        if few > _MOST_BOOTS:
            raise TooManyBootsError(f"even {_MOST_BOOTS:,} boots do not show a change that small")
    while enough - few > 1:
        middle = (few + enough) // 2
        if power_of(effect, middle, alpha) < power:
            few = middle
        else:
            enough = middle
    return enough


def _terms(sd: float, confidence: float, claims: int) -> str:
    shared = f" shared by {claims} claims" if claims > 1 else ""
    return f" (spread of a boot {sd:.2%}, level {confidence:g}{shared})"
