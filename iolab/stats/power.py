# SPDX-License-Identifier: MIT
"""Power of the interval and of the p-value, computed and simulated.

The power of the interval alone is that of the two-sided t test. It is computed from the noncentral
F distribution: the noncentral t distribution, which statsmodels uses, gives NaN for large effects
on few boots, and large effects on few boots are what this project measures. The sign-flip test has
less power on few boots, so the power of both together is simulated.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np
from scipy import stats

from iolab.stats.estimates import CONFIDENCE

__all__ = ["CERTAIN", "POWER", "power_of", "sign_flip_boots", "simulated_power"]

POWER: Final = 0.8
# A mean so many times its test's limit away is always seen.
CERTAIN: Final = 40.0
# Simulated runs for each number of boots: 80 % is known to about a point.
_RUNS: Final = 4000
# So many sign patterns are drawn where enumerating them would take longer.
_PATTERNS: Final = 4096


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
    shift = min(effect * math.sqrt(n), CERTAIN * limit)
    return float(stats.ncf.sf(limit**2, 1, n - 1, shift**2))


def simulated_power(mean: float, margin: float, n: int, confidence: float, claims: int) -> float:
    """Simulate how often an interval lies beyond a limit and its p-value reaches its level.

    Parameters
    ----------
    mean : float
        Expected mean of a boot, in standard deviations: its distance from no effect.
    margin : float
        Distance of that mean from the limit, in standard deviations; negative below it.
    n : int
        Number of boots, at least two.
    confidence : float
        Confidence level of the t interval, 0..1.
    claims : int
        Number of claims that share the level 1 - confidence of the sign-flip p-value.

    Returns
    -------
    float
        Share of 4000 simulated runs with normal noise that meet both criteria, 0..1; the same
        runs every time.

    Examples
    --------
    >>> simulated_power(3.0, 3.0, 5, 0.95, 1)
    0.0
    >>> simulated_power(3.0, 3.0, 6, 0.95, 1) > 0.99
    True
    """
    rng = np.random.default_rng(n)
    boots = mean + rng.standard_normal((_RUNS, n))
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * stats.sem(boots, axis=1)
    # The distance from the limit, in the direction of the ratio.
    beyond = math.copysign(1, margin) * (boots.mean(axis=1) - mean + margin) > half
    if 2**n <= _PATTERNS:
        signs = np.array(list(itertools.product([1.0, -1.0], repeat=n)))
    else:
        signs = rng.choice([1.0, -1.0], (_PATTERNS, n))
        signs[0] = 1.0
    means = np.abs(boots[beyond] @ signs.T)
    p_values = (means >= means[:, :1] * (1 - 1e-12)).mean(axis=1)
    # Rounded: 1 - 0.95 is a hair above 0.05.
    level = round((1 - confidence) / claims, 12)
    return float((p_values <= level).sum()) / _RUNS


def sign_flip_boots(claims: int = 1, confidence: float = CONFIDENCE) -> int:
    """Compute how many boots a sign-flip p-value takes to reach a level at all.

    Parameters
    ----------
    claims : int, optional
        Number of claims that share the level (Holm's worst case): the size of their family.
    confidence : float, optional
        Confidence level, 0..1.

    Returns
    -------
    int
        The fewest boots whose smallest p-value, 2 / 2**n, is at most (1 - confidence) / claims.

    Examples
    --------
    >>> [sign_flip_boots(claims) for claims in (1, 2, 3, 4, 8)]
    [6, 7, 7, 8, 9]
    """
    # Rounded: 1 - 0.95 is a hair above 0.05.
    return math.ceil(round(1 + math.log2(claims / (1 - confidence)), 9))
