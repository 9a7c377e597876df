# SPDX-License-Identifier: MIT
from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from iolab import stats
from iolab.stats.power import power_of, sign_flip_boots, simulated_power
from tests.bench.bench_statistics import sign_flip_p


@pytest.mark.parametrize("n", [2, 3, 6, 10, 40])
@pytest.mark.parametrize("alpha", [0.05, 0.00625])
def test_power_is_statsmodels_where_that_is_a_number(n: int, alpha: float) -> None:
    known = 0
    for effect in (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0):
        expected = float(TTestPower().power(effect, n, alpha))
        if math.isfinite(expected):
            known += 1
            assert power_of(effect, n, alpha) == pytest.approx(expected, abs=1e-9)
    assert known >= 5


def test_power_is_a_number_where_statsmodels_is_not() -> None:
    assert power_of(15, 2, 0.00625) == pytest.approx(0.165, abs=0.001)
    assert power_of(10, 6, 0.05) == 1


@pytest.mark.parametrize(("n", "claims"), [(7, 1), (9, 3), (12, 2)])
def test_simulated_power_is_what_the_package_itself_decides(n: int, claims: int) -> None:
    mean, margin = 1.1, 0.9
    rows = mean + np.random.default_rng(5).standard_normal((1000, n))
    beyond = np.array([stats.t_interval(y, 0.95)[1] > mean - margin for y in rows])
    wins = (beyond & (sign_flip_p(rows) <= 0.05 / claims)).mean()
    found = simulated_power(mean, margin, n, 0.95, claims)
    # Four binomial standard errors of the smaller simulation.
    assert found == pytest.approx(wins, abs=4 * math.sqrt(0.25 / 1000))
    mirrored = simulated_power(-mean, -margin, n, 0.95, claims)
    assert mirrored == pytest.approx(found, abs=4 * math.sqrt(0.5 / 4000))


def test_the_p_value_has_less_power_than_the_interval_on_few_boots() -> None:
    effect = 1.08
    assert power_of(effect, 9, 0.05) > 0.8
    assert simulated_power(effect, effect, 9, 0.95, 1) < 0.8


def test_with_many_boots_both_criteria_agree() -> None:
    effect = 0.36
    simulated = simulated_power(effect, effect, 64, 0.95, 1)
    assert simulated == pytest.approx(power_of(effect, 64, 0.05), abs=4 * math.sqrt(0.25 / 4000))


@pytest.mark.parametrize(("claims", "boots"), [(1, 6), (2, 7), (3, 7), (4, 8), (6, 8), (8, 9)])
def test_the_p_value_of_a_family_takes_its_boots(claims: int, boots: int) -> None:
    assert sign_flip_boots(claims) == boots
    assert stats.holm([stats.sign_flip(np.full(boots, 0.5))] * claims).max() <= 0.05
    assert stats.holm([stats.sign_flip(np.full(boots - 1, 0.5))] * claims).min() > 0.05
