# SPDX-License-Identifier: MIT
from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as sp

from iolab.stats.welch import welch_difference


def test_a_difference_by_welch_is_in_the_values_own_unit() -> None:
    a, b = np.array([1.0, 1.5, 2.5]), np.array([4.0, 4.1])
    found = welch_difference(a, b, 0.9)
    wanted = sp.ttest_ind(b, a, equal_var=False)
    interval = wanted.confidence_interval(0.9)
    assert found.mean == pytest.approx(4.05 - 5 / 3)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p_value == pytest.approx(wanted.pvalue)
    assert found.missing == ""


def test_welch_says_what_is_missing() -> None:
    one, same, spread = np.array([0.1]), np.array([0.1, 0.1]), np.array([0.1, 0.3])
    assert welch_difference(one, spread, 0.95).missing == "one boot"
    neither = welch_difference(same, same, 0.95)
    assert neither.missing == "the boots of a kernel do not differ"
    found = welch_difference(same, spread, 0.95)
    assert found.missing == ""
    assert math.isfinite(found.low)
