# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from iolab import stats
from iolab.errors import UserError
from iolab.stats.plans import pairs_per_boot, plan_table
from iolab.stats.power import boots_needed, minimum_detectable, power_of
from iolab.stats.variance import Components, components, components_of
from tests.support import synthetic


def pilot(boot_sd: float = 0.02, within_sd: float = 0.02, *, per_boot: int = 2) -> Components:
    rng = np.random.default_rng(1)
    boot = np.repeat(np.arange(8), per_boot)
    y = boot_sd * rng.standard_normal(8)[boot] + within_sd * rng.standard_normal(boot.size)
    return components(y, boot)


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


@pytest.mark.parametrize(("n", "claims"), [(3, 1), (6, 1), (10, 8), (30, 1)])
def test_what_is_detectable_is_statsmodels_effect(n: int, claims: int) -> None:
    found = minimum_detectable(0.02, n, claims=claims)
    effect = TTestPower().solve_power(nobs=n, alpha=0.05 / claims, power=0.8)
    assert found.below == pytest.approx(math.exp(-0.02 * effect), rel=1e-6)
    assert found.above == pytest.approx(1 / found.below)


@pytest.mark.parametrize("ratio", [0.97, 1.02, 0.99])
def test_boots_needed_are_the_fewest_with_the_power(ratio: float) -> None:
    found = boots_needed(0.02, ratio)
    effect = abs(math.log(ratio)) / 0.02
    assert TTestPower().power(effect, found.boots, 0.05) >= 0.8
    assert TTestPower().power(effect, found.boots - 1, 0.05) < 0.8
    there = minimum_detectable(0.02, found.boots)
    assert (ratio > there.above) if ratio > 1 else (ratio < there.below)


def test_planned_boots_find_the_effect_as_often_as_promised() -> None:
    ratio, sd = 0.97, 0.025
    n = boots_needed(sd, ratio).boots
    rng = np.random.default_rng(3)
    y = math.log(ratio) + sd * rng.standard_normal((2000, n))
    found = np.mean([stats.estimate(row).high < 1 for row in y[:400]])
    # The power with whole boots is a little above 80 %; four binomial standard errors.
    truth = power_of(abs(math.log(ratio)) / sd, n, 0.05)
    assert found == pytest.approx(truth, abs=4 * math.sqrt(truth * (1 - truth) / 400))


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
    one, two, many = (boots_needed(even, 0.98, pairs=n).boots for n in (1, 2, 50))
    assert one > two > many
    # However many pairs: the boots' own spread stays.
    assert many >= boots_needed(even.boot_sd, 0.98).boots
    with pytest.raises(UserError, match="each boot measured it once"):
        minimum_detectable(pilot(per_boot=1), 6, pairs=2)
    with pytest.raises(UserError, match="Components"):
        minimum_detectable(0.02, 6, pairs=2)


@pytest.mark.parametrize(("boot_s", "pair_s"), [(60, 5), (1, 30), (600, 1), (10, 10)])
def test_pairs_per_boot_is_the_cheapest(boot_s: float, pair_s: float) -> None:
    even = pilot(0.01, 0.04)
    costs = {
        n: (boot_s + n * pair_s) * math.hypot(even.boot_sd, even.within_sd / math.sqrt(n)) ** 2
        for n in range(1, 2000)
        if n != even.per_boot
    }
    best = pairs_per_boot(even, boot_s=boot_s, pair_s=pair_s)
    assert best == min(costs, key=lambda n: costs[n]) or best == even.per_boot


def test_pairs_without_a_split_are_not_guessed() -> None:
    with pytest.raises(UserError, match="each boot measured it once"):
        pairs_per_boot(pilot(per_boot=1), boot_s=10, pair_s=1)
    with pytest.raises(UserError, match="above 0 seconds"):
        pairs_per_boot(pilot(), boot_s=0, pair_s=1)
    level = components([1.0, 2.0, 1.0, 2.0], [0, 0, 1, 1])
    with pytest.raises(UserError, match="as fit"):
        pairs_per_boot(level, boot_s=10, pair_s=1)


def test_a_plan_is_a_sentence_and_plain_json() -> None:
    found = boots_needed(0.028, 0.97)
    assert str(found) == (
        "you need 9 boots to tell a ratio of 0.97 from 1 with power 0.80 "
        "(spread of a boot 2.80%, level 0.95)"
    )
    assert "to be safe" in str(boots_needed(pilot(), 0.97))
    seen = minimum_detectable(0.028, 9, claims=4)
    assert str(seen).startswith("9 boots tell a ratio below 0.9")
    assert "shared by 4 claims" in str(seen)
    for result in (found, seen):
        json.dumps(result.as_dict(), allow_nan=False)


def test_a_table_plans_from_the_pilots_cells() -> None:
    cells = synthetic.dataset(kernels=("6.1",), iodepths=(64,), boots=6, invalid=False).cells
    plan = plan_table(cells, 0.97)
    assert plan["weight"].tolist() == [100, 1000, 3000, 10000, None] or len(plan) == 5
    row = plan[plan["weight"] == 1000].iloc[0]
    spread = components_of(cells, {"weight": 1000})
    assert row["boots"] == boots_needed(spread, 0.97).boots
    assert row["below"] == minimum_detectable(spread, 6).below
    tiny = plan_table(cells, 0.999999)
    assert tiny["boots"].isna().all()
    assert tiny["missing"].str.contains("10,000 boots").all()
    single = plan_table(cells[cells["boot"] == 0], 0.97)
    assert set(single["missing"]) == {"one boot has no spread"}
    still = synthetic.frame(
        [row for boot in range(3) for row in synthetic.block_cells(block=f"b{boot}", boot=boot)]
    )
    assert set(plan_table(still, 0.97)["missing"]) == {"its boots do not differ"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ratio": 1.0}, "not 1"),
        ({"ratio": -1.0}, "above 0"),
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
