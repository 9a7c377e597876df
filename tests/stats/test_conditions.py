# SPDX-License-Identifier: MIT
from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from statsmodels.tsa.stattools import acf

from iolab import stats
from iolab.stats.conditions import _trend, order_effect, order_table
from tests.support import synthetic
from tests.support.synthetic import plain


def test_a_drift_within_the_block_is_found() -> None:
    def measured(drift: float) -> pd.Series:
        rng = np.random.default_rng(3)
        rows = [
            row
            for boot in range(6)
            for row in synthetic.block_cells(
                block=f"b{boot}", boot=boot, drift=drift, noise_sd=0.005, pairs=4, rng=rng
            )
        ]
        return order_table(synthetic.frame(rows)).iloc[0]

    falling = measured(-0.03)
    assert falling["slope"] == pytest.approx(-0.03, abs=0.003)
    assert falling["high"] < 0
    assert falling["lag1"] > 0.3
    still = measured(0.0)
    assert still["low"] <= 0 <= still["high"]
    assert still["n"] == 6


def test_a_block_without_repeats_or_spread_shows_no_order() -> None:
    lonely = synthetic.frame(synthetic.block_cells(conditions=[(128, 1000)]))
    assert np.isnan(order_effect(lonely).iloc[0]["slope"])
    assert order_table(lonely).empty
    flat = order_effect(synthetic.frame(synthetic.block_cells(pairs=3))).iloc[0]
    assert flat["slope"] == 0
    assert np.isnan(flat["lag1"])


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_are_correlated_as_statsmodels_says(seed: int) -> None:
    y = np.cumsum(np.random.default_rng(seed).normal(5, 1, size=seed + 3))
    found = _trend(np.arange(y.size, dtype=np.float64), y)
    assert found["lag1"] == pytest.approx(acf(y, nlags=1, fft=False)[1], rel=1e-12)


def test_outliers_are_marked_and_kept() -> None:
    cells = plain(6)
    cells.loc[5, "iops"] = 10_000.0
    marks = stats.mark_outliers(cells)
    assert marks[5]
    assert marks.index.equals(cells.index)
    assert marks.sum() <= 2
    assert stats.pair_ratios(cells)["pairs"].sum() == len(cells) // 2
    cells.loc[5, "valid"] = False
    assert not stats.mark_outliers(cells)[5]


def test_kernels_stand_in_the_order_of_their_versions() -> None:
    names = ["6.12", "mine", "5.10", "6.8", "7.2", "6.1", "6.1²", "6.1-rt"]
    ordered = ["5.10", "6.1", "6.1-rt", "6.1²", "6.8", "6.12", "7.2", "mine"]
    assert sorted(names, key=stats.kernel_order) == ordered
    table = stats.mean_table(synthetic.dataset(kernels=("6.12", "5.10"), boots=2).cells)
    assert table["kernel"].unique().tolist() == ["5.10", "6.12"]
