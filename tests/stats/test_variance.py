# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import math
import warnings

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM

from iolab.errors import UserError
from iolab.stats.variance import components, components_of, variance_table
from tests.support import synthetic


def grouped(
    boots: int, per_boot: int, *, boot_sd: float, within_sd: float, seed: int = 0
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    boot = np.repeat(np.arange(boots), per_boot)
    values = boot_sd * rng.standard_normal(boots)[boot]
    return values + within_sd * rng.standard_normal(boot.size), boot


def test_many_boots_give_the_truth() -> None:
    found = components(*grouped(4000, 3, boot_sd=0.03, within_sd=0.02))
    assert found.boot_sd == pytest.approx(0.03, rel=0.04)
    assert found.within_sd == pytest.approx(0.02, rel=0.04)
    assert found.low < 9 / 13 < found.high
    assert found.sd_with(12) == pytest.approx(math.hypot(0.03, 0.02 / math.sqrt(12)), rel=0.04)


def test_equal_boots_agree_with_restricted_maximum_likelihood() -> None:
    y, boot = grouped(12, 4, boot_sd=0.03, within_sd=0.02, seed=4)
    found = components(y, boot)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # In per cent: the optimiser stops early on tiny numbers.
        model = MixedLM(100 * y, np.ones_like(y), groups=boot).fit(reml=True)
    assert found.boot_sd == pytest.approx(math.sqrt(model.cov_re[0][0]) / 100, rel=1e-3)
    assert found.within_sd == pytest.approx(math.sqrt(model.scale) / 100, rel=1e-3)


def test_the_interval_of_the_share_covers_it() -> None:
    rng = np.random.default_rng(8)
    hits = 0
    for _ in range(400):
        y, boot = grouped(6, 2, boot_sd=2, within_sd=1, seed=int(rng.integers(2**31)))
        found = components(y, boot)
        hits += found.low <= 0.8 <= found.high
    # Four binomial standard errors around 95 %.
    assert 0.906 <= hits / 400 <= 0.994


def test_unequal_boots_are_weighted_as_the_expected_squares_say() -> None:
    rng = np.random.default_rng(5)
    boot = np.repeat(np.arange(3000), rng.integers(1, 5, 3000))
    y = 0.03 * rng.standard_normal(3000)[boot] + 0.02 * rng.standard_normal(boot.size)
    found = components(y, boot)
    assert found.boot_sd == pytest.approx(0.03, rel=0.05)
    assert found.within_sd == pytest.approx(0.02, rel=0.05)


def test_a_negative_component_is_none() -> None:
    found = components([1.0, 2.0, 1.0, 2.0, 1.0, 2.0], [0, 0, 1, 1, 2, 2])
    assert (found.boot_sd, found.share, found.low) == (0, 0, 0)
    assert components([1.0, 1.0, 2.0, 2.0], [0, 0, 1, 1]).share == 1


def test_what_is_missing_is_said() -> None:
    one = components([0.1, 0.2], ["a", "a"])
    assert one.missing == "one boot"
    assert str(one) == "no spread known: one boot"
    once = components([0.1, 0.2, 0.4], ["a", "b", "c"])
    assert once.missing == "each boot measured it once"
    assert once.mean_sd == pytest.approx(np.std([0.1, 0.2, 0.4], ddof=1))
    assert "not split: each boot measured it once" in str(once)
    assert once.sd_with(1) == once.mean_sd
    with pytest.raises(UserError, match="each boot measured it once"):
        once.sd_with(2)
    assert components([0.5] * 4, [0, 0, 1, 1]).missing == "no two values differ"
    with pytest.raises(UserError, match="no boot"):
        components([], [])
    with pytest.raises(UserError, match="confidence level"):
        components([0.1, 0.2], [0, 1], confidence=95)


def test_it_prints_and_becomes_json() -> None:
    found = components(*grouped(6, 2, boot_sd=0.03, within_sd=0.01))
    assert str(found).startswith("a boot's mean spreads by ")
    assert "(6 boots)" in str(found)
    json.dumps(found.as_dict(), allow_nan=False)
    assert components([0.1], [0]).as_dict()["mean_sd"] is None


def noisy() -> pd.DataFrame:
    return synthetic.noisy_cells(repetitions=1, boots=200, pairs=2, ratio=0.8, seed=3)


def test_pairs_and_cells_have_their_own_spread() -> None:
    cells = noisy()
    pairs = variance_table(cells)
    assert pairs["aa"].tolist() == [False, True]
    treated, aa = pairs.iloc[0], pairs.iloc[1]
    # The boots change the effect by 4 %; an A/A pair takes its boot's level out.
    assert treated["boot_sd"] == pytest.approx(0.04, rel=0.15)
    assert aa["boot_sd"] < 0.005
    runs = variance_table(cells, effect=False)
    control = runs[runs["weight"].isna()].iloc[0]
    assert control["boot_sd"] == pytest.approx(0.04, rel=0.15)
    assert control["per_boot"] == 6


def test_one_condition_is_picked_by_name() -> None:
    cells = noisy()
    table = variance_table(cells)
    assert components_of(cells, {"weight": 1000}).boot_sd == table.iloc[0]["boot_sd"]
    with pytest.raises(UserError, match="picks 2 conditions"):
        components_of(cells, {"iodepth": 128})
    with pytest.raises(UserError, match="picks no conditions"):
        components_of(cells, {"weight": 7})
    with pytest.raises(UserError, match="has no colour"):
        components_of(cells, {"colour": 7})
    with pytest.raises(UserError, match="several values of weight"):
        variance_table(cells, by=["kernel"], effect=False)
