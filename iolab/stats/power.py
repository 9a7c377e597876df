# SPDX-License-Identifier: MIT
"""Before a run: what a number of boots can show, and how many boots it takes.

Power is that of the two-sided t test of the boots' means. It is computed from the noncentral F
distribution: the noncentral t one, on which statsmodels' power rests, is not a number for large
effects on few boots, and large effects on few boots are what this project measures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd
from scipy import optimize, stats

from iolab.errors import UserError
from iolab.stats.estimates import CONFIDENCE, ROUNDING, Statistic, check_confidence, format_boots
from iolab.stats.variance import Components, variance_table

__all__ = [
    "POWER",
    "BootsNeeded",
    "Detectable",
    "TooManyBootsError",
    "boots_needed",
    "minimum_detectable",
    "pairs_per_boot",
    "plan_table",
    "power_of",
]

POWER: Final = 0.8
# Nobody boots more often; a plan that asks for more is said not to work.
_MOST_BOOTS: Final = 10_000
# The spread of a pilot is itself uncertain: plan for its upper limit at this one-sided level.
_CAUTION: Final = 0.8
# A mean so many times its test's limit away is always seen.
_CERTAIN: Final = 40.0


class TooManyBootsError(UserError):
    """No number of boots that anybody would wait for shows the effect."""


@dataclass(frozen=True, slots=True, repr=False)
class Detectable(Statistic):
    """The ratios that a number of boots can tell from 1: below ``below`` and above ``above``.

    ``sd`` is the spread of a boot's mean of ln(ratio), ``claims`` the number of claims that share
    the level (Holm's worst case). ``tested`` is whether the sign-flip p-value can reach it at all.
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
    """The boots that it takes to tell a ratio from 1.

    ``cautious`` is the same if the spread is as large as the pilot does not rule out (its upper 80
    % limit); None where the spread was given as a number. ``sign_flip`` boots are needed for the
    p-value alone, whatever the effect.
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
    """Return the power of a two-sided one-sample t test: `effect` in standard deviations."""
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
    """Return the smallest effect that `n` boots can tell from none.

    `spread` is the standard deviation of a boot's mean of ln(treated/control), or a pilot's
    `Components`; then `pairs` may be another number of pairs per boot than the pilot's. Errors:
    UserError for fewer than two boots, no spread, or a power or level that cannot be meant.
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
    """Return how many boots tell a ratio treated/control from 1, by the interval and the p-value.

    Arguments and errors as in `minimum_detectable`; UserError for a ratio that is 1 or not above 0,
    and where even 10,000 boots do not suffice.
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


def pairs_per_boot(spread: Components, *, boot_s: float, pair_s: float) -> int:
    """Return the pairs per boot that make an interval narrowest for the time spent.

    `boot_s` is what a boot costs before its first pair, `pair_s` what each pair costs. Where the
    boots' share of the variance is large, more boots help and more pairs do not. Errors: UserError
    where the pilot's spread could not be split, or a cost is not above 0.
    """
    if not (boot_s > 0 and pair_s > 0):
        raise UserError("what a boot and a pair cost is above 0 seconds")
    if spread.missing:
        raise UserError(f"whether more pairs help is not known from these data: {spread.missing}")
    if spread.boot_sd == 0:
        raise UserError("no spread between boots was seen: put as many pairs into a boot as fit")

    def cost(pairs: int) -> float:
        # Seconds for one boot, times the boots that a given precision takes.
        return (boot_s + pairs * pair_s) * spread.sd_with(pairs) ** 2

    best = spread.within_sd / spread.boot_sd * math.sqrt(boot_s / pair_s)
    return min(max(1, math.floor(best)), math.floor(best) + 1, key=cost)


def plan_table(
    cells: pd.DataFrame,
    ratio: float,
    value: str = "iops",
    by: Sequence[str] | None = None,
    *,
    power: float = POWER,
    confidence: float = CONFIDENCE,
    claims: int = 1,
) -> pd.DataFrame:
    """Plan from a pilot, condition by condition, with its number of pairs per boot.

    Columns `by`, sd (of a boot's mean), n (the pilot's boots), below and above (what these tell
    from 1), boots and cautious (for `ratio`), missing: why there is no plan. Errors: as
    `boots_needed` and `iolab.stats.tables.ratio_table`.
    """
    pilot = variance_table(cells, value, by, confidence=confidence)
    fields = list(Components.__dataclass_fields__)
    condition = [name for name in pilot.columns if name not in fields]
    rows = []
    for row in pilot.to_dict("records"):
        spread = Components(**{name: row[name] for name in fields})
        missing = _no_plan(spread)
        found: dict[str, object] = {"sd": spread.mean_sd, "n": spread.n, "missing": missing}
        if not missing:
            seen = minimum_detectable(
                spread, spread.n, power=power, confidence=confidence, claims=claims
            )
            found |= {"below": seen.below, "above": seen.above}
            try:
                needed = boots_needed(
                    spread, ratio, power=power, confidence=confidence, claims=claims
                )
            except TooManyBootsError as error:
                found["missing"] = str(error)
            else:
                found |= {"boots": needed.boots, "cautious": needed.cautious}
        rows.append(found)
    columns = ["sd", "n", "below", "above", "boots", "cautious", "missing"]
    plan = pd.DataFrame(rows, columns=columns).astype({"boots": "Int64", "cautious": "Int64"})
    return pd.concat([pilot[condition], plan], axis=1)


def _spread(spread: float | Components, pairs: float | None) -> float:
    if isinstance(spread, Components):
        missing = _no_plan(spread)
        if missing:
            raise UserError(f"nothing can be planned from this pilot: {missing}")
        return spread.mean_sd if pairs is None else spread.sd_with(pairs)
    if not (math.isfinite(spread) and spread > 0):
        raise UserError(f"a spread to plan with is above 0, not {spread:g}")
    if pairs is not None:
        raise UserError("what other numbers of pairs give takes a pilot's Components")
    return spread


def _no_plan(spread: Components) -> str:
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
