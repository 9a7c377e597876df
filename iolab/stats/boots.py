# SPDX-License-Identifier: MIT
"""Numbers of boots: what a number of boots can show, and how many boots a run takes.

`boots_needed` plans for both criteria of a result at once: the t interval lies beyond a limit, and
the sign-flip p-value reaches its level. `minimum_detectable` is about the interval alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from scipy import optimize, stats

from iolab.errors import UserError
from iolab.stats.estimates import CONFIDENCE, Statistic
from iolab.stats.intervals import ROUNDING, check_confidence, format_boots
from iolab.stats.power import CERTAIN, POWER, power_of, sign_flip_boots, simulated_power
from iolab.stats.variance import Components

__all__ = [
    "BootsNeeded",
    "Detectable",
    "TooManyBootsError",
    "boots_needed",
    "minimum_detectable",
    "why_no_plan",
]

# Nobody boots more often; a plan that asks for more is said not to work.
_MOST_BOOTS: Final = 10_000
# The spread of a pilot is itself uncertain: plan for its upper limit at this one-sided level
# (R. H. Browne, "On the use of a pilot sample for sample size determination", Statistics in
# Medicine 14, 1995).
_CAUTION: Final = 0.8
# With more boots than this the two criteria agree, and the power of the t test serves.
_SIMULATED_BOOTS: Final = 64


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
        least = sign_flip_boots(self.claims, self.confidence)
        return f"{text}; only by its interval: a sign-flip p-value takes {least} boots"


@dataclass(frozen=True, slots=True, repr=False)
class BootsNeeded(Statistic):
    """The number of boots that tells a ratio from a limit.

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
        Ratio treated/control that is expected, without unit.
    limit : float
        Ratio to tell it from, without unit.
    sd : float
        Standard deviation of a boot's mean of ln(ratio).
    power : float
        Probability of success, 0..1.
    confidence : float
        Confidence level, 0..1.
    claims : int
        Number of claims that share the level of the p-value (Holm's worst case).
    """

    boots: int
    cautious: int | None
    sign_flip: int
    ratio: float
    limit: float
    sd: float
    power: float
    confidence: float
    claims: int

    def __str__(self) -> str:
        to_be_safe = f" ({self.cautious} to be safe)" if self.cautious is not None else ""
        why = "; fewer have no sign-flip p-value below that" if self.boots == self.sign_flip else ""
        return (
            f"you need {format_boots(self.boots)}{to_be_safe} to tell a ratio of {self.ratio:g} "
            f"from {self.limit:g} with power {self.power:.2f}"
            f"{_terms(self.sd, self.confidence, self.claims)}{why}"
        )


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

    certain = CERTAIN * float(stats.t.isf(alpha / 2, n - 1))
    effect = math.exp(optimize.brentq(lacking, math.log(1e-6), math.log(certain), xtol=1e-10))
    return Detectable(
        below=math.exp(-effect * sd),
        above=math.exp(effect * sd),
        boots=n,
        sd=sd,
        power=power,
        confidence=confidence,
        claims=claims,
        tested=n >= sign_flip_boots(claims, confidence),
    )


def boots_needed(
    spread: float | Components,
    ratio: float,
    *,
    limit: float = 1.0,
    pairs: float | None = None,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    claims: int = 1,
) -> BootsNeeded:
    """Compute how many boots tell a ratio treated/control from a limit.

    A run succeeds if its t interval lies beyond the limit, on the side of the ratio, and its
    sign-flip p-value against a ratio of 1 is at most (1 - confidence) / claims. The number of boots
    is raised until enough of 4000 simulated runs with normal noise succeed (the same ones every
    time). Beyond 64 boots the power of the interval is computed instead.

    Parameters
    ----------
    spread : float or Components
        Standard deviation of a boot's mean of ln(treated/control), or a pilot's components.
    ratio : float
        Expected ratio, above 0, without unit.
    limit : float, optional
        Ratio to tell it from, above 0: the limit of a claim, or 1 for any effect at all.
    pairs : float, optional
        Pairs per boot, if other than the pilot's; this takes a pilot's components.
    power : float, optional
        Probability of success, 0..1.
    confidence : float, optional
        Confidence level, 0..1.
    claims : int, optional
        Number of claims that share the level of the p-value: the size of their family (Holm's worst
        case).

    Returns
    -------
    BootsNeeded
        Enough boots for the interval and for the p-value.

    Raises
    ------
    TooManyBootsError
        If 10,000 boots do not suffice.
    UserError
        If the ratio is 1, equal to the limit or not above 0, or the limit is not above 0; else as
        in `minimum_detectable`.

    Examples
    --------
    >>> boots_needed(0.028, 0.97)
    you need 10 boots to tell a ratio of 0.97 from 1 with power 0.80
    (spread of a boot 2.80%, level 0.95)
    >>> boots_needed(0.15, 0.80, limit=0.88).boots
    22
    """
    sd = _spread(spread, pairs)
    _check(power, confidence, claims)
    if ratio <= 0 or ratio == 1:
        raise UserError(f"a ratio to plan for is above 0 and not 1, not {ratio:g}")
    if limit <= 0 or limit == ratio:
        raise UserError(f"a limit to plan for is above 0 and not the ratio, not {limit:g}")

    def enough(worse: float) -> int:
        mean, margin = (math.log(ratio / other) / (sd * worse) for other in (1, limit))
        return _enough_boots(mean, margin, power, confidence, claims)

    cautious = None
    if isinstance(spread, Components):
        worst = math.sqrt((spread.n - 1) / stats.chi2.ppf(1 - _CAUTION, spread.n - 1))
        cautious = enough(worst)
    return BootsNeeded(
        boots=enough(1.0),
        cautious=cautious,
        sign_flip=sign_flip_boots(claims, confidence),
        ratio=ratio,
        limit=limit,
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


def _enough_boots(mean: float, margin: float, power: float, confidence: float, claims: int) -> int:
    """Return the fewest boots that succeed: `mean` and `margin` are in standard deviations.

    They are the distances of the expected logarithm from 0 and from the logarithm of the limit.
    """
    n = max(
        sign_flip_boots(claims, confidence),
        _boots(abs(margin), power, 1 - confidence),
        _boots(abs(mean), power, (1 - confidence) / claims),
    )
    while n <= _SIMULATED_BOOTS and simulated_power(mean, margin, n, confidence, claims) < power:
        n += 1
    return n


def _terms(sd: float, confidence: float, claims: int) -> str:
    shared = f" shared by {claims} claims" if claims > 1 else ""
    return f" (spread of a boot {sd:.2%}, level {confidence:g}{shared})"
