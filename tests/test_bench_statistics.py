# SPDX-License-Identifier: MIT
"""The simulation's own functions, each against a second tool or a known truth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as sp
from statsmodels.stats.multitest import multipletests

from iolab import stats
from tests.bench import bench_statistics as bench

pytestmark = pytest.mark.nightly

DOCS = Path(__file__).parents[1] / "docs" / "statistics.md"


def four_errors(share: float, count: int) -> float:
    return 4 * math.sqrt(share * (1 - share) / count)


def test_its_intervals_and_p_values_are_those_of_the_package() -> None:
    means = np.random.default_rng(1).normal(0.4, 1, (40, 6))
    covers, spread = bench.t_covers(means)
    p = bench.sign_flip_p(means)
    for row, covered, reach, small in zip(means, covers, spread, p, strict=True):
        found = stats.estimate(row)
        assert covered == (found.low <= 1 <= found.high)
        assert reach == pytest.approx(np.ptp(row))
        assert small == pytest.approx(found.p_value)
    assert 0 < covers.sum() < 40


def test_its_holm_is_statsmodels() -> None:
    p = np.random.default_rng(2).uniform(size=(20, 8)) ** 3
    expected = [multipletests(row, alpha=0.05, method="holm")[0].any() for row in p]
    assert bench.holm_rejects(p).tolist() == expected
    assert 0 < sum(expected) < 20


def test_its_bootstrap_is_scipys() -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((60, 12)) + 0.5
    agree = 0
    for row, covers in zip(rows, bench.bootstrap_covers(rows, rng), strict=True):
        ends = sp.bootstrap((row,), np.mean, method="percentile", n_resamples=999, rng=rng)
        agree += covers == (ends.confidence_interval.low <= 0 <= ends.confidence_interval.high)
    # Both draw at random: a row at the very edge may fall on either side.
    assert agree >= 57


def test_noise_is_what_it_says() -> None:
    rng = np.random.default_rng(4)
    noise = bench.Noise(boot=3, run=1)
    control, treated = bench.sweeps(noise, 10, 2, 300, rng)
    y = treated - control
    assert y.shape == (300, bench.CLAIMS, 10, 2)
    # A boot's effect is in both of its pairs; neighbours of correlation 0.6 differ by 0.8 in all.
    between = np.mean(y[..., 0] * y[..., 1])
    assert between == pytest.approx(9, rel=0.05)
    assert np.var(y) == pytest.approx(9 + 2 * (1 - 0.6), rel=0.05)
    assert np.var(control) == pytest.approx(9 + 1, rel=0.1)


def test_drift_spreads_and_does_not_shift() -> None:
    rng = np.random.default_rng(5)
    control, treated = bench.sweeps(bench.Noise(boot=0, run=0, drift=2), 6, 1, 400, rng)
    y = treated - control
    assert set(np.unique(y.round(9))) == {-2.0, 2.0}
    assert y.mean() == pytest.approx(0, abs=4 * 2 / math.sqrt(y.size))


def test_heavy_tails_keep_their_spread() -> None:
    rng = np.random.default_rng(6)
    control, treated = bench.sweeps(bench.Noise(boot=1, run=0, freedom=5), 10, 1, 2000, rng)
    assert np.std(treated - control) == pytest.approx(1, rel=0.05)
    assert sp.kurtosis((treated - control).ravel()) > 2


def test_measured_noise_comes_from_the_reference_data() -> None:
    found = bench.measured()
    rng = np.random.default_rng(7)
    control, treated = bench.sweeps(bench.NOISES["as measured, A/A"], 6, 1, 50, rng)
    assert set(np.abs(treated - control).round(9).ravel()) <= set(np.abs(found.aa).round(9))
    assert found.treated.mean() == pytest.approx(0, abs=1e-12)
    assert 0 < found.level_sd < 0.05


@pytest.mark.parametrize(("boots", "pairs"), [(6, 1), (10, 2)])
def test_intervals_cover_as_they_say(boots: int, pairs: int) -> None:
    row = bench.simulate("boots and runs", boots, pairs, count=300)
    assert row.covered == pytest.approx(0.95, abs=four_errors(0.95, 300 * bench.CLAIMS))
    assert row.sign_flip <= 0.05 + four_errors(0.05, 300 * bench.CLAIMS)
    assert row.holm <= 0.05 + four_errors(0.05, 300)
    assert row.no_interval == 0


def test_what_pools_rows_does_not() -> None:
    row = bench.simulate("as measured", 6, 2, count=400)
    assert row.pooled_runs < 0.9
    assert row.bootstrap_rows < 0.85


def test_the_whole_pipeline_finds_nothing_where_nothing_is() -> None:
    table = bench.aa_check(6, 1, count=23)
    n = len(table)
    assert n == 23 * (bench.CLAIMS + 1) >= 200
    outside = (table["low"] > 1) | (table["high"] < 1)
    assert outside.mean() <= 0.05 + four_errors(0.05, n)
    # Six boots: the exact test's own level is 1/32.
    assert (table["p_value"] <= 0.05).mean() <= 1 / 32 + four_errors(1 / 32, n)
    assert table.loc[table["aa"], "p_holm"].isna().all()
    # With eight claims no six boots can pass.
    assert table["p_holm"].min() > 0.05


@pytest.mark.parametrize(
    ("noise", "boots", "pairs"),
    [("boots and runs", 6, 1), ("as measured", 6, 1), ("as measured, A/A", 10, 2)],
)
def test_the_documented_table_is_what_comes_out(noise: str, boots: int, pairs: int) -> None:
    assert bench.line(bench.simulate(noise, boots, pairs)) in DOCS.read_text()
