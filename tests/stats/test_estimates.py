# SPDX-License-Identifier: MIT
from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.lib.pretty import pretty
from scipy import stats as sp

from iolab.errors import UserError
from iolab.stats import estimates

LOGS = st.floats(-1, 1).map(lambda x: round(x, 6))


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


def test_an_estimate_becomes_plain_json() -> None:
    whole = estimates.estimate([-0.3, -0.2], pairs=2)
    assert json.loads(json.dumps(whole.as_dict(), allow_nan=False)) == whole.as_dict()
    assert whole.as_dict()["n"] == 2
    single = estimates.estimate([-0.3]).as_dict()
    assert (single["low"], single["p_value"], single["missing"]) == (None, None, "one boot")


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


def test_a_difference_by_welch_is_in_the_values_own_unit() -> None:
    a, b = np.array([1.0, 1.5, 2.5]), np.array([4.0, 4.1])
    found = estimates.welch_difference(a, b, 0.9)
    wanted = sp.ttest_ind(b, a, equal_var=False)
    interval = wanted.confidence_interval(0.9)
    assert found.mean == pytest.approx(4.05 - 5 / 3)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p_value == pytest.approx(wanted.pvalue)
    assert found.missing == ""


def test_welch_says_what_is_missing() -> None:
    one, same, spread = np.array([0.1]), np.array([0.1, 0.1]), np.array([0.1, 0.3])
    assert estimates.welch_difference(one, spread, 0.95).missing == "one boot"
    neither = estimates.welch_difference(same, same, 0.95)
    assert neither.missing == "the boots of a kernel do not differ"
    found = estimates.welch_difference(same, spread, 0.95)
    assert found.missing == ""
    assert math.isfinite(found.low)
