# SPDX-License-Identifier: MIT
"""From one number per boot to an estimate with its interval and its p-value."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from iolab.errors import UserError

__all__ = [
    "CONFIDENCE",
    "ROUNDING",
    "WELCH",
    "Difference",
    "Estimate",
    "Floats",
    "Statistic",
    "check_confidence",
    "estimate",
    "format_boots",
    "sign_flip",
    "t_interval",
    "welch",
    "welch_difference",
    "what_is_missing",
]

Floats = npt.NDArray[np.float64]

CONFIDENCE: Final = 0.95
# A spread of logarithms below this is rounding, not spread.
ROUNDING: Final = 1e-12
# The columns of a comparison of kernels.
WELCH: Final = ("ratio", "low", "high", "n_base", "n_other", "p_value", "confidence", "missing")
# Sign flips are enumerated up to 2**16; more boots than that are sampled with a fixed seed.
_EXACT_BOOTS: Final = 16


class Statistic:
    """A result: a dataclass that prints itself as a sentence and turns into plain JSON."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values; what is not there is None, never NaN."""
        found: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in found.items()
        }

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(Statistic):
    """A ratio treated/control with its interval.

    ``n`` boots were measured with ``pairs`` valid pairs each (median). ``low`` and ``high`` are NaN
    where boots are too few or do not differ, ``p_value`` (sign flip, two-sided) where they are too
    few; ``missing`` then says what is missing.
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


def format_boots(n: int) -> str:
    """Return a number of boots in words."""
    return "1 boot" if n == 1 else f"{n} boots"


def sign_flip(differences: npt.ArrayLike) -> float:
    """Return the two-sided p-value of a sign-flip test of mean zero; NaN below two values.

    All 2**n sign patterns are enumerated up to 16 values; above, 65,535 are drawn with a fixed
    seed. The smallest p-value n values can give is 2 / 2**n: five boots never reach 0.05.
    """
    y = np.asarray(differences, dtype=np.float64)
    if y.size < 2:
        return float("nan")
    result = stats.permutation_test(
        (y,),
        _rounded_mean,
        permutation_type="samples",
        n_resamples=2 ** min(y.size, _EXACT_BOOTS) - (y.size > _EXACT_BOOTS),
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def estimate(
    differences: npt.ArrayLike, *, pairs: float = 1.0, confidence: float = CONFIDENCE
) -> Estimate:
    """Estimate a ratio from one mean log ratio per boot.

    The estimate is exp(mean), the interval exp(t interval). Errors: UserError without a value, with
    one that is not finite, or with a level outside 0..1.
    """
    y = np.asarray(differences, dtype=np.float64)
    mean, low, high = t_interval(y, confidence)
    return Estimate(
        ratio=float(np.exp(mean)),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        n=int(y.size),
        pairs=float(pairs),
        p_value=sign_flip(y),
        confidence=confidence,
        missing=what_is_missing(y),
    )


def check_confidence(confidence: float) -> None:
    """Raise UserError unless a confidence level lies between 0 and 1."""
    if not 0 < confidence < 1:
        raise UserError(f"a confidence level lies between 0 and 1, not at {confidence}")


def what_is_missing(y: Floats) -> str:
    """Say why these boots give no interval; empty if they do.

    Boots that agree to the last digit say nothing of how far another boot would be: in virtual time
    a value may move in steps, and their common value is then known to within such a step.
    """
    if y.size < 2:
        return "one boot"
    if np.ptp(y) <= ROUNDING * max(1.0, float(np.abs(y).max())):
        return f"the {y.size} boots do not differ"
    return ""


def t_interval(y: Floats, confidence: float) -> tuple[float, float, float]:
    """Return the mean and the ends of its t interval, NaN where `what_is_missing` says why.

    Errors: UserError without a value, with one that is not finite, or with a level outside 0..1.
    """
    check_confidence(confidence)
    if y.size == 0:
        raise UserError("there is no boot to estimate from")
    if not np.isfinite(y).all():
        raise UserError(
            f"{format_boots(int((~np.isfinite(y)).sum()))} of {y.size} have no finite value"
        )
    mean = float(np.mean(y))
    if what_is_missing(y):
        return mean, float("nan"), float("nan")
    half = float(stats.t.ppf((1 + confidence) / 2, y.size - 1) * stats.sem(y))
    return mean, mean - half, mean + half


def _rounded_mean(y: Floats, axis: int) -> Floats:
    # Sums that are equal on paper round differently, and a tie that is missed shifts the p-value.
    return np.asarray(np.mean(y, axis=axis)).round(12)


class Difference(NamedTuple):
    """A difference of means with Welch's interval and p-value; ``missing`` says why there is none.

    In the unit of the values, logarithms or not.
    """

    mean: float
    low: float
    high: float
    p_value: float
    missing: str


def welch_difference(a: Floats, b: Floats, confidence: float) -> Difference:
    """Return mean of b - mean of a, neither paired nor of equal spread: one value a boot in each.

    There is no interval with a single boot on a side, or where neither side's boots differ.
    """
    mean = float(np.mean(b) - np.mean(a))
    nan = float("nan")
    if min(a.size, b.size) < 2:
        return Difference(mean, nan, nan, nan, "one boot")
    if what_is_missing(a) and what_is_missing(b):
        return Difference(mean, nan, nan, nan, "the boots of a kernel do not differ")
    compared = CompareMeans(DescrStatsW(b), DescrStatsW(a))
    low, high = compared.tconfint_diff(alpha=1 - confidence, usevar="unequal")
    p_value = compared.ttest_ind(usevar="unequal")[1]
    return Difference(mean, float(low), float(high), float(p_value), "")


def welch(a: Floats, b: Floats, confidence: float) -> dict[str, float | str]:
    """Return exp(mean of b - mean of a) with Welch's interval and p-value, as a row.

    Keys ratio, low, high, n_base, n_other, p_value, level, missing: why there is no interval.
    """
    found = welch_difference(a, b, confidence)
    return {
        "ratio": float(np.exp(found.mean)),
        "low": float(np.exp(found.low)),
        "high": float(np.exp(found.high)),
        "n_base": a.size,
        "n_other": b.size,
        "p_value": found.p_value,
        "confidence": confidence,
        "missing": found.missing,
    }
