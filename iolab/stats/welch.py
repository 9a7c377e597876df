# SPDX-License-Identifier: MIT
"""Comparison of two unpaired samples of boots that may spread differently."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from iolab.stats.intervals import Floats, what_is_missing

__all__ = ["Difference", "welch_difference"]


class Difference(NamedTuple):
    """A difference of two means with Welch's interval and p-value.

    Parameters
    ----------
    mean : float
        Mean of the second sample minus mean of the first, in the unit of the values.
    low, high : float
        Ends of the interval, in the same unit; NaN where `missing` says why.
    p_value : float
        Two-sided p-value, 0..1; NaN where `missing` says why.
    missing : str
        Why there is no interval; empty if there is one.
    """

    mean: float
    low: float
    high: float
    p_value: float
    missing: str


def welch_difference(a: Floats, b: Floats, confidence: float) -> Difference:
    """Compare two unpaired samples that may spread differently.

    Parameters
    ----------
    a, b : ndarray of float, shapes (n,) and (m,)
        One value per boot, in the same unit.
    confidence : float
        Confidence level of the interval, 0..1.

    Returns
    -------
    Difference
        Mean of `b` minus mean of `a`. It has no interval if a sample has a single boot or if
        neither sample's boots differ.

    References
    ----------
    B. L. Welch, "The generalization of 'Student's' problem when several different population
    variances are involved", *Biometrika* 34, 1947.

    Examples
    --------
    >>> import numpy as np
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
