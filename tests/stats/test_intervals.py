# SPDX-License-Identifier: MIT
"""Intervals by the order of pairs, on noise of known truth, with a drift and without."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as sp

from iolab.stats.intervals import Floats, crossover_interval, from_zero, t_interval

_RUNS = 1000


def _orders(n: int) -> Floats:
    return np.resize([1.0, -1.0], n)


def _share(n: int, drift: float, truth: float, seed: int) -> tuple[float, float]:
    """Return how often the interval covers the truth, and the plain interval over all boots."""
    rng = np.random.default_rng(seed)
    order = _orders(n)
    covered = plain = 0
    for _ in range(_RUNS):
        # The first of two boots draws its order, the next has the other one.
        drawn = order * rng.choice([-1.0, 1.0])
        y = truth + drift * drawn + rng.standard_normal(n)
        _, low, high = crossover_interval(y, drawn, 0.95)
        covered += low <= truth <= high
        _, low, high = t_interval(y, 0.95)
        plain += low <= truth <= high
    return covered / _RUNS, plain / _RUNS


@pytest.mark.parametrize(("n", "drift"), [(4, 2.0), (6, 0.0), (6, 2.0), (10, 2.0)])
def test_intervals_cover_whatever_the_drift(n: int, drift: float) -> None:
    covered, plain = _share(n, drift, truth=0.3, seed=n)
    # Of 1000 runs: 0.7 points are a standard error.
    assert 0.93 <= covered <= 0.97
    # Plain pairs take a drift for spread, and are then far too cautious.
    assert (plain > 0.97) is (drift > 0)


def test_a_drift_is_no_effect() -> None:
    covered, _ = _share(6, 2.0, truth=0.0, seed=7)
    assert 0.03 <= 1 - covered <= 0.07


def test_one_fixed_order_is_what_errs() -> None:
    # Treated first in every boot, as orders once were drawn: the drift is all there is to see.
    rng = np.random.default_rng(1)
    first = np.ones(6)
    wrong = 0
    for _ in range(400):
        _, low, high = crossover_interval(2 * first + rng.standard_normal(6), first, 0.95)
        wrong += not low <= 0 <= high
    assert wrong > 200


def test_intervals_by_order_are_less_than_half_as_wide_under_drift() -> None:
    rng = np.random.default_rng(2)
    order = _orders(6)
    widths = []
    for _ in range(400):
        y = 2 * order + rng.standard_normal(6)
        _, low, high = crossover_interval(y, order, 0.95)
        _, plain_low, plain_high = t_interval(y, 0.95)
        widths.append((high - low) / (plain_high - plain_low))
    assert float(np.mean(widths)) < 0.5


def test_it_is_the_two_means_of_the_crossover() -> None:
    y = np.array([3.1, 0.9, 2.7, 1.4, 3.3, 1.0])
    order = _orders(6)
    one, other = y[order > 0], y[order < 0]
    mean, low, high = crossover_interval(y, order, 0.9)
    assert mean == pytest.approx((one.mean() + other.mean()) / 2)
    pooled = math.sqrt((one.var(ddof=1) * 2 + other.var(ddof=1) * 2) / 4)
    half = sp.t.ppf(0.95, 4) * pooled * math.sqrt(1 / 3 + 1 / 3) / 2
    assert (low, high) == pytest.approx((mean - half, mean + half))


@given(
    st.lists(
        st.tuples(st.floats(-5, 5), st.sampled_from([-1.0, 0.0, 1.0])), min_size=4, max_size=12
    )
)
@settings(max_examples=60, deadline=None)
def test_it_is_the_constant_of_a_regression_on_the_order(boots: list[tuple[float, float]]) -> None:
    y, order = np.array(boots).T
    mean, low, high = crossover_interval(y, order, 0.95)
    if np.ptp(order) == 0:
        assert (mean, low, high) == pytest.approx(t_interval(y, 0.95), nan_ok=True)
        return
    fit = sm.OLS(y, sm.add_constant(order)).fit()
    assert mean == pytest.approx(fit.params[0], abs=1e-9)
    if fit.mse_resid > 1e-12:
        assert (low, high) == pytest.approx(tuple(fit.conf_int(0.05)[0]), abs=1e-6)


def test_too_few_boots_are_plain_pairs() -> None:
    y = np.array([3.0, 1.0, 2.5])
    assert crossover_interval(y, _orders(3), 0.95) == t_interval(y, 0.95)


def test_boots_that_differ_in_their_order_alone_have_no_interval() -> None:
    mean, low, high = crossover_interval(np.array([3.0, 1.0, 3.0, 1.0]), _orders(4), 0.95)
    assert mean == 2
    assert math.isnan(low)
    assert math.isnan(high)


def test_what_is_never_below_zero_has_no_interval_below_zero() -> None:
    y = np.array([4.0, 7.0, 51.0])
    _, low, high = t_interval(y, 0.95)
    assert low < 0
    assert from_zero(y, low, high) == (0.0, high)
    assert from_zero(-y, -high, -low) == (-high, -low)
    assert from_zero(y, 1.0, 2.0) == (1.0, 2.0)
