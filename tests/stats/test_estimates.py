# SPDX-License-Identifier: MIT
"""Estimates and intervals: against enumeration, statsmodels, and simulation with a known truth."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.lib.pretty import pretty
from scipy import stats as sp

from iolab.stats import estimates
from iolab.stats.estimates import (
    Floats,
    crossover_interval,
    from_zero,
    t_interval,
    welch_difference,
)
from iolab_base.errors import UserError

LOGS = st.floats(-1, 1).map(lambda x: round(x, 6))


@given(st.floats(1e-9, 1e12))
def test_a_number_has_three_digits_and_no_power_of_ten_where_it_can_be_read(value: float) -> None:
    text = estimates.number_text(value)
    if value < 1e-6:
        assert text == "0"
        return
    assert float(text.replace(",", "")) == float(f"{value:.3g}")
    assert ("e" in text) == (not 0.0001 <= float(f"{value:.3g}") < 1e6)


@given(st.lists(LOGS, min_size=2, max_size=9))
@settings(max_examples=40, deadline=None)
def test_sign_flip_is_what_enumeration_gives(values: list[float]) -> None:
    y = np.array(values)
    signs = np.array(list(itertools.product([1, -1], repeat=y.size)))
    null = (signs * y).mean(axis=1)
    one_sided = [np.mean(null >= y.mean() - 1e-9), np.mean(null <= y.mean() + 1e-9)]
    assert estimates.sign_flip(y) == pytest.approx(min(1.0, 2 * min(one_sided)), abs=1e-9)


def test_sign_flip_of_many_boots_is_sampled_and_repeats() -> None:
    y = np.random.default_rng(1).normal(0.02, 0.05, 20)
    assert estimates.sign_flip(y) == estimates.sign_flip(y)
    assert estimates.sign_flip(y) == pytest.approx(sp.ttest_1samp(y, 0.0).pvalue, abs=0.02)


def test_sign_flip_of_many_boots_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        estimates.sign_flip(np.random.default_rng(1).normal(size=300))
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("n", "smallest"), [(5, 0.0625), (6, 0.03125)])
def test_five_boots_never_reach_the_five_percent(n: int, smallest: float) -> None:
    assert estimates.sign_flip(np.full(n, -0.3)) == smallest


@given(st.lists(LOGS, min_size=2, max_size=8), st.floats(0.5, 2))
@settings(max_examples=40, deadline=None)
def test_turning_a_ratio_over_turns_its_interval_over(values: list[float], factor: float) -> None:
    y = np.array(values) * factor
    there, back = estimates.estimate(y), estimates.estimate(-y)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.p_value == pytest.approx(back.p_value)
    assert there.missing == back.missing
    if there.missing:
        assert math.isnan(there.low)
    else:
        assert there.low == pytest.approx(1 / back.high)
        assert there.low <= there.ratio * (1 + 1e-12)


def test_an_estimate_prints_itself_as_a_sentence() -> None:
    y = np.log([0.76, 0.761, 0.762, 0.761, 0.76, 0.762])
    assert str(estimates.estimate(y)) == "0.761 [0.760, 0.762], 6 boots, p = 0.031"
    assert "(90%)" in str(estimates.estimate(y, confidence=0.9))
    assert str(estimates.estimate(y[:1])) == "0.760 (no interval: one boot)"
    assert "p < 0.001" in str(estimates.estimate(np.linspace(0.4, 0.5, 15)))


def test_a_notebook_shows_the_sentence() -> None:
    found = estimates.estimate([0.1, 0.2, 0.3])
    assert pretty(found) == str(found)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("value", [0.0, -0.3, 0.1])
def test_boots_that_do_not_differ_give_no_interval(value: float) -> None:
    found = estimates.estimate(np.full(6, value))
    assert found.ratio == pytest.approx(math.exp(value))
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert found.missing == "the 6 boots do not differ"
    # The sign-flip test needs no spread.
    assert found.p_value == (1.0 if value == 0 else 0.03125)


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "no boot"), ([0.1, math.nan, 0.2], "1 boot of 3"), ([math.inf, 0.1], "1 boot of 2")],
)
def test_values_that_are_none_are_refused(values: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        estimates.estimate(values)


@given(st.lists(LOGS, min_size=2, max_size=8), st.integers(-40, 40))
@settings(max_examples=40, deadline=None)
def test_a_p_value_does_not_depend_on_the_unit(values: list[float], exponent: int) -> None:
    y = np.array(values)
    assert estimates.sign_flip(y * 2.0**exponent) == estimates.sign_flip(y)


def test_values_in_tiny_units_are_tested_too() -> None:
    y = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert estimates.sign_flip(1e-15 * y) == estimates.sign_flip(y) == 0.03125


def test_logarithms_that_are_rounding_show_nothing() -> None:
    assert estimates.estimate(np.full(6, 1e-16)).p_value == 1
    assert estimates.sign_flip(np.zeros(6)) == 1


def test_an_interval_without_end_is_infinite() -> None:
    found = estimates.estimate(np.log([1.0, 20.0]), confidence=0.999)
    assert (found.low, found.high) == (0.0, math.inf)


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


@pytest.mark.parametrize("events", [0, 1, 7, 300])
def test_an_interval_of_a_count_is_that_of_chi_square(events: int) -> None:
    low, high = estimates.poisson_interval(events, 0.95)
    assert high == pytest.approx(sp.chi2.ppf(0.975, 2 * events + 2) / 2)
    assert low == (pytest.approx(sp.chi2.ppf(0.025, 2 * events) / 2) if events else 0)


@pytest.mark.parametrize("truth", [0.5, 3.5, 12.0])
def test_intervals_of_counts_cover(truth: float) -> None:
    counts = np.random.default_rng(1).poisson(truth, _RUNS)
    ends = [estimates.poisson_interval(int(events), 0.95) for events in counts]
    # Exact intervals of whole numbers cover at least as often as they say.
    assert np.mean([low <= truth <= high for low, high in ends]) >= 0.95


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
