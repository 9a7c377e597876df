# SPDX-License-Identifier: MIT
from __future__ import annotations

import math

import numpy as np
import pytest

from iolab.errors import UserError
from iolab.stats.boots import boots_needed, minimum_detectable
from iolab.stats.plans import pairs_per_boot, plan_table
from iolab.stats.variance import Components, components, components_of
from tests.support import synthetic


def pilot(boot_sd: float = 0.02, within_sd: float = 0.02, *, per_boot: int = 2) -> Components:
    rng = np.random.default_rng(1)
    boot = np.repeat(np.arange(8), per_boot)
    y = boot_sd * rng.standard_normal(8)[boot] + within_sd * rng.standard_normal(boot.size)
    return components(y, boot)


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


def test_a_table_plans_from_the_pilots_cells() -> None:
    cells = synthetic.dataset(kernels=("6.1",), iodepths=(64,), boots=6, invalid=False).cells
    plan = plan_table(cells, 0.97)
    assert plan["weight"].tolist() == [100, 1000, 3000, 10000, None] or len(plan) == 5
    row = plan[plan["weight"] == 1000].iloc[0]
    spread = components_of(cells, {"weight": 1000})
    assert row["boots"] == boots_needed(spread, 0.97).boots
    against = plan_table(cells, 0.90, limit=0.95)
    assert (against["boots"] >= plan_table(cells, 0.90)["boots"]).all()
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
