# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from iolab import stats
from iolab.errors import UserError
from iolab.stats.boots import boots_needed, minimum_detectable
from iolab.stats.power import power_of, simulated_power
from iolab.stats.variance import Components, components


def pilot(boot_sd: float = 0.02, within_sd: float = 0.02, *, per_boot: int = 2) -> Components:
    rng = np.random.default_rng(1)
    boot = np.repeat(np.arange(8), per_boot)
    y = boot_sd * rng.standard_normal(8)[boot] + within_sd * rng.standard_normal(boot.size)
    return components(y, boot)


@pytest.mark.parametrize(("n", "claims"), [(3, 1), (6, 1), (10, 8), (30, 1)])
def test_what_is_detectable_is_statsmodels_effect(n: int, claims: int) -> None:
    found = minimum_detectable(0.02, n, claims=claims)
    effect = TTestPower().solve_power(nobs=n, alpha=0.05 / claims, power=0.8)
    assert found.below == pytest.approx(math.exp(-0.02 * effect), rel=1e-6)
    assert found.above == pytest.approx(1 / found.below)


@pytest.mark.parametrize(("ratio", "limit"), [(0.97, 1.0), (1.02, 1.0), (0.95, 0.97), (0.95, 0.93)])
def test_boots_needed_are_the_fewest_with_the_power(ratio: float, limit: float) -> None:
    found = boots_needed(0.02, ratio, limit=limit)
    mean, margin = math.log(ratio) / 0.02, math.log(ratio / limit) / 0.02
    assert simulated_power(mean, margin, found.boots, 0.95, 1) >= 0.8
    fewer = found.boots - 1
    # The t test's power is computed, the rest simulated: they differ by that error.
    error = 4 * math.sqrt(0.16 / 4000)
    assert fewer < found.sign_flip or simulated_power(mean, margin, fewer, 0.95, 1) < 0.8 + error
    there = minimum_detectable(0.02, found.boots)
    assert (ratio > there.above) if ratio > 1 else (ratio < there.below)


def test_a_plan_against_a_claims_limit_keeps_its_promise() -> None:
    # Planned against 1, "below 0.88" would be met in a quarter of the runs.
    sd, ratio, limit = 0.15, 0.80, 0.88
    mean, margin = math.log(ratio) / sd, math.log(ratio / limit) / sd
    naive = boots_needed(sd, ratio).boots
    assert simulated_power(mean, margin, naive, 0.95, 1) < 0.4
    planned = boots_needed(sd, ratio, limit=limit)
    assert planned.boots > 2 * naive
    rng = np.random.default_rng(7)
    runs = 400
    rows = math.log(ratio) + sd * rng.standard_normal((runs, planned.boots))
    hits = sum(stats.t_interval(row, 0.95)[2] < math.log(limit) for row in rows)
    assert hits / runs >= 0.8 - 4 * math.sqrt(0.16 / runs)
    assert "from 0.88 with power" in str(planned)


def test_beyond_the_simulated_boots_the_t_test_plans() -> None:
    found = boots_needed(0.02, 0.995)
    assert found.boots > 100
    effect = abs(math.log(0.995)) / 0.02
    assert power_of(effect, found.boots, 0.05) >= 0.8 > power_of(effect, found.boots - 1, 0.05)


def test_planned_boots_show_the_effect_as_often_as_promised() -> None:
    ratio, sd, claims = 0.97, 0.025, 2
    n = boots_needed(sd, ratio, claims=claims).boots
    rng = np.random.default_rng(3)
    runs = 400
    hits = 0
    for row in math.log(ratio) + sd * rng.standard_normal((runs, n)):
        found = stats.estimate(row)
        hits += found.high < 1 and found.p_value <= 0.05 / claims
    # Four binomial standard errors below 80 %.
    assert hits / runs >= 0.8 - 4 * math.sqrt(0.16 / runs)


@pytest.mark.parametrize(("claims", "least"), [(1, 6), (2, 7), (8, 9)])
def test_a_large_effect_still_takes_the_boots_of_its_p_value(claims: int, least: int) -> None:
    found = boots_needed(0.001, 0.5, claims=claims)
    assert (found.boots, found.sign_flip) == (least, least)
    assert "sign-flip" in str(found)
    assert stats.sign_flip(np.full(least, 0.5)) <= 0.05 / claims
    assert stats.sign_flip(np.full(least - 1, 0.5)) > 0.05 / claims
    assert not minimum_detectable(0.001, least - 1, claims=claims).tested
    assert f"takes {least} boots" in str(minimum_detectable(0.001, least - 1, claims=claims))


def test_a_pilot_is_not_known_exactly() -> None:
    found = boots_needed(pilot(), 0.98)
    assert found.cautious is not None
    assert found.cautious > found.boots
    assert boots_needed(pilot().mean_sd, 0.98).cautious is None


def test_other_numbers_of_pairs_use_the_components() -> None:
    even = pilot()
    one, two, many = (boots_needed(even, 0.985, pairs=n).boots for n in (1, 2, 50))
    assert one > two > many
    # However many pairs: the boots' own spread stays.
    assert many >= boots_needed(even.boot_sd, 0.985).boots
    with pytest.raises(UserError, match="each boot measured it once"):
        minimum_detectable(pilot(per_boot=1), 6, pairs=2)
    with pytest.raises(UserError, match="Components"):
        minimum_detectable(0.02, 6, pairs=2)


def test_a_plan_is_a_sentence_and_plain_json() -> None:
    found = boots_needed(0.028, 0.97)
    assert str(found) == (
        "you need 10 boots to tell a ratio of 0.97 from 1 with power 0.80 "
        "(spread of a boot 2.80%, level 0.95)"
    )
    assert "to be safe" in str(boots_needed(pilot(), 0.97))
    seen = minimum_detectable(0.028, 9, claims=4)
    assert str(seen).startswith("9 boots tell a ratio below 0.9")
    assert "shared by 4 claims" in str(seen)
    for result in (found, seen):
        json.dumps(result.as_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ratio": 1.0}, "not 1"),
        ({"ratio": -1.0}, "above 0"),
        ({"limit": 0.0}, "a limit to plan for"),
        ({"limit": 0.97}, "not the ratio"),
        ({"spread": 0.0}, "spread to plan with"),
        ({"spread": math.nan}, "spread to plan with"),
        ({"power": 0.01}, "a power lies"),
        ({"confidence": 95}, "confidence level"),
        ({"claims": 0}, "at least one claim"),
        ({"ratio": 1 + 1e-9}, "10,000 boots"),
        ({"spread": components([0.1], [0])}, "one boot"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        boots_needed(**{"spread": 0.02, "ratio": 0.97, **arguments})  # type: ignore[arg-type]


def test_one_boot_detects_nothing() -> None:
    with pytest.raises(UserError, match="at least two"):
        minimum_detectable(0.02, 1)
