# SPDX-License-Identifier: MIT
"""Knees and thresholds of made-up curves with known answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from iolab.stats.estimates import Floats
from iolab.stats.shape import Threshold, hinge, knee, knee_table, threshold
from iolab_base.errors import UserError
from tests.support import synthetic

JOBS = (1, 2, 4, 8, 16, 32, 48)


def curve(
    jobs: Sequence[int], at: float, *, before: float = 0.95, after: float = 0.0
) -> list[float]:
    x = np.log(np.array(jobs, dtype=np.float64) / at)
    y = np.where(x < 0, before * x, after * x)
    return list(50_000 * np.exp(y))


def cells_of(
    knees: Sequence[float],
    *,
    jobs: Sequence[int] = JOBS,
    noise: float = 0.0,
    after: float = -0.3,
    kernel: str = "6.1",
    before: float = 0.95,
) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    template = synthetic.block_cells(kernel=kernel, effects={1000: 1.0})[0]
    rows = []
    for boot, at in enumerate(knees):
        for position, (level, iops) in enumerate(
            zip(jobs, curve(jobs, at, before=before, after=after), strict=True)
        ):
            block = f"{kernel}-{boot}"
            here = {"block": block, "boot": boot, "numjobs": level, "position": position}
            here |= {"cell": f"{block}/{position}", "pair": position, "role": "control"}
            here |= {"weight": pd.NA, "aa": False}
            rows.append(template | here | {"iops": iops * math.exp(noise * rng.standard_normal())})
    return synthetic.frame(rows)


@pytest.mark.parametrize("at", [3.0, 4.0, 15.0, 20.0])
@pytest.mark.parametrize("after", [0.0, -0.5, 0.05])
def test_a_hinge_without_noise_is_found_exactly(at: float, after: float) -> None:
    found = hinge(np.array(JOBS), np.array(curve(JOBS, at, after=after)))
    assert found.knee == pytest.approx(at, rel=1e-4)
    assert (found.before, found.after) == pytest.approx((0.95, after), abs=1e-4)
    assert found.misfit == pytest.approx(0, abs=1e-8)


def test_a_noisy_hinge_is_the_least_squares_one() -> None:
    rng = np.random.default_rng(2)
    jobs = np.array(JOBS, dtype=np.float64)
    values = np.array(curve(JOBS, 12)) * np.exp(0.03 * rng.standard_normal(len(JOBS)))
    found = hinge(jobs, values)

    def line(x: Floats, level: float, before: float, after: float, at: float) -> Floats:
        return level + before * np.minimum(x - at, 0) + after * np.maximum(x - at, 0)

    x, y = np.log(jobs), np.log(values)
    start = [y.max(), 1.0, 0.0, math.log(10)]
    best, *_ = optimize.curve_fit(line, x, y, p0=start)
    assert found.knee == pytest.approx(math.exp(best[3]), rel=1e-3)
    assert found.misfit <= float(((y - line(x, *best)) ** 2).sum()) * (1 + 1e-9)


def test_the_order_of_the_levels_does_not_matter() -> None:
    values = np.array(curve(JOBS, 12))
    assert hinge(np.array(JOBS)[::-1], values[::-1]) == hinge(np.array(JOBS), values)


@pytest.mark.parametrize(
    ("levels", "values", "message"),
    [
        ([1, 2, 4], [1, 2, 3], "at least 4 levels, not 3"),
        ([0, 1, 2, 4], [1, 2, 3, 4], "above 0"),
        ([1, 2, 4, 8], [1, 2, 3, 0], "above 0"),
        ([1, 2, 4, 8], [1, 2, 3, math.nan], "above 0"),
    ],
)
def test_what_is_no_curve_is_refused(
    levels: list[float], values: list[float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        hinge(np.array(levels, dtype=np.float64), np.array(values, dtype=np.float64))


def test_the_interval_rests_on_the_boots() -> None:
    knees = [11.0, 13.0, 12.0, 14.0, 12.5, 13.5]
    found = knee(cells_of(knees), "numjobs")
    assert (found.n, found.within, found.missing) == (6, 6, "")
    assert found.knee == pytest.approx(math.exp(np.log(knees).mean()), rel=1e-4)
    assert found.low < found.knee < found.high
    assert found.before == pytest.approx(0.95, abs=1e-3)
    assert found.after == pytest.approx(-0.3, abs=1e-3)
    assert str(found).startswith("knee at numjobs 12.6 [")
    assert str(found).endswith("6 boots")


def test_the_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(4)
    sweeps = 60
    tables = [
        cells_of(list(15 * np.exp(0.05 * rng.standard_normal(5))), kernel=f"k{n}")
        for n in range(sweeps)
    ]
    table = knee_table(pd.concat(tables, ignore_index=True), "numjobs")
    assert len(table) == sweeps
    covered = ((table["low"] <= 15) & (table["high"] >= 15)).mean()
    # Four binomial standard errors below 95 %.
    assert covered >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / sweeps)


def test_noise_of_the_runs_leaves_the_knee_where_it_is() -> None:
    found = knee(cells_of([12.0] * 8, noise=0.02), "numjobs")
    assert found.low <= 12 <= found.high
    assert found.high / found.low < 1.5


def test_a_curve_that_grows_to_its_end_has_no_knee_yet() -> None:
    found = knee(cells_of([400.0] * 3), "numjobs")
    assert (found.over, found.within) == (3, 0)
    assert math.isnan(found.knee)
    assert "near or above the highest level (48) in every boot" in str(found)


@pytest.mark.parametrize("at", [0.5, 1.5])
def test_a_curve_that_never_grows_has_its_knee_before(at: float) -> None:
    found = knee(cells_of([at] * 3), "numjobs")
    assert found.under == 3
    assert "near or below the lowest level (1) in every boot" in str(found)


def test_some_boots_without_a_knee_leave_no_estimate() -> None:
    found = knee(cells_of([12.0, 13.0, 400.0]), "numjobs")
    assert (found.within, found.over) == (2, 1)
    assert math.isnan(found.knee)
    assert "in 1 of 3 boots" in found.missing


def test_a_knee_without_spread_or_boots_has_no_interval() -> None:
    one = knee(cells_of([12.0]), "numjobs")
    assert one.knee == pytest.approx(12, rel=1e-4)
    assert (math.isnan(one.low), one.missing) == (True, "one boot")
    assert "(no interval: one boot)" in str(one)
    same = knee(cells_of([12.0] * 4), "numjobs")
    assert same.missing == "the 4 boots do not differ"


def test_gated_levels_are_left_out_of_their_boot() -> None:
    cells = cells_of([12.0, 12.5, 13.0])
    cells.loc[(cells["boot"] == 0) & (cells["numjobs"] > 4), "valid"] = False
    cells.loc[(cells["boot"] == 1) & (cells["numjobs"] == 2), "valid"] = False
    assert knee(cells, "numjobs").n == 2


def test_conditions_are_kept_apart() -> None:
    cells = pd.concat(
        [cells_of([12.0, 13.0], kernel="6.12"), cells_of([6.0, 7.0])], ignore_index=True
    )
    table = knee_table(cells, "numjobs")
    assert table["kernel"].tolist() == ["6.1", "6.12"]
    assert table["knee"].tolist() == pytest.approx([math.sqrt(42), math.sqrt(156)], rel=1e-3)
    with pytest.raises(UserError, match="hold 2 conditions"):
        knee(cells, "numjobs")
    with pytest.raises(UserError, match="several values of kernel"):
        knee_table(cells, "numjobs", by=["iodepth"])


def test_bad_requests_are_said() -> None:
    cells = cells_of([12.0, 13.0])
    with pytest.raises(UserError, match="not a numeric factor"):
        knee(cells, "colour")
    with pytest.raises(UserError, match="not a numeric factor"):
        knee(cells, "scheduler")
    with pytest.raises(UserError, match="no boot has 4 levels"):
        knee(cells[cells["numjobs"] < 8], "numjobs")
    with pytest.raises(UserError, match="confidence level"):
        knee(cells, "numjobs", confidence=95)


_WEIGHTS = (100, 200, 400, 800, 1600, 3200, 6400)


def _cells(
    truth: Callable[[float, int], float], *, boots: int = 6, weights: Sequence[int] = _WEIGHTS
) -> pd.DataFrame:
    """Return cells whose switches_per_io are `truth(weight, boot)`, in controls 0.01."""
    rows = [
        row
        for boot in range(boots)
        for row in synthetic.block_cells(
            block=f"b{boot}",
            boot=boot,
            conditions=[(272, None), *((272, weight) for weight in weights)],
            effects=dict.fromkeys(weights, 1.0),
            rng=np.random.default_rng(boot),
        )
    ]
    cells = synthetic.frame(rows)
    cells["switches_per_io"] = [
        0.01 if pd.isna(weight) else truth(float(weight), boot)
        for weight, boot in zip(cells["weight"], cells["boot"], strict=True)
    ]
    return cells


def _find(cells: pd.DataFrame) -> Threshold:
    return threshold(cells, "switches_per_io", 1.0)


def test_a_straight_line_in_the_logarithm_is_found_exactly() -> None:
    found = _find(_cells(lambda weight, boot: math.log(weight / 100) / math.log(7)))
    assert found.estimate == pytest.approx(700)
    assert (found.low, found.high, found.n) == (400, 800, 6)
    assert str(found) == "700 [400, 800], the measured levels around it in 6 boots"
    assert found.censored == ""


def test_a_step_lies_between_the_two_strengths_that_were_measured() -> None:
    found = _find(_cells(lambda weight, boot: 2.0 if weight > 500 + 400 * (boot % 2) else 0.02))
    assert (found.low, found.high) == (400, 1600)
    assert found.low < found.estimate < found.high


def test_the_bracket_always_holds_a_sharp_threshold() -> None:
    rng = np.random.default_rng(1)
    tries = 100
    cells = _cells(lambda weight, boot: weight)
    for _ in range(tries):
        truth = math.exp(rng.uniform(math.log(101), math.log(6400)))
        reached = (cells["weight"] >= truth).fillna(False)
        noise = 0.05 * rng.standard_normal(len(cells))
        found = _find(cells.assign(switches_per_io=np.where(reached, 2.0, 0.1) + noise))
        assert found.low <= truth <= found.high
        # As narrow as the measured levels allow.
        assert found.high == 2 * found.low


def test_the_bracket_holds_the_median_threshold_of_boots_that_differ() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    tries = 100
    for _ in range(tries):
        own = 700 * np.exp(0.2 * rng.standard_normal(6))
        # Bound, so that the next try does not change it.
        cells = _cells(lambda weight, boot, own=own: math.log(weight / own[boot]) + 1)  # type: ignore[misc]
        found = _find(cells)
        hits += found.low <= 700 <= found.high
    # At least 1 - 2 ** (1 - 6); four binomial standard errors.
    assert hits / tries >= 31 / 32 - 4 * math.sqrt(31 / 32**2 / tries)


def test_the_order_of_the_cells_and_a_dent_do_not_matter() -> None:
    dented = _cells(lambda weight, boot: {400.0: 0.5, 800.0: 0.4}.get(weight, weight / 1600))
    found = _find(dented)
    assert 800 < found.estimate <= 1600
    for other in synthetic.shuffled(dented):
        assert _find(other) == found


@pytest.mark.parametrize(
    ("truth", "sentence", "below", "above"),
    [
        (lambda w, b: 0.01, "6 of 6 boots are below 1 up to 6400", 6400, math.nan),
        (lambda w, b: 2.0, "6 of 6 boots have 1 at 100 already", math.nan, 100),
        (
            lambda w, b: 0.01 if b == 0 else w / 500,
            "1 of 6 boots are below 1 up to 6400",
            400,
            math.nan,
        ),
        (
            lambda w, b: {0: 0.01, 1: 2.0}.get(b, w / 500),
            "1 of 6 boots are below 1 up to 6400; 1 of 6 boots have 1 at 100 already",
            math.nan,
            math.nan,
        ),
    ],
)
def test_a_level_that_is_not_crossed_is_said_in_words(
    truth: Callable[[float, int], float], sentence: str, below: float, above: float
) -> None:
    found = _find(_cells(truth))
    assert found.censored == sentence
    assert found.low == pytest.approx(below, nan_ok=True)
    assert found.high == pytest.approx(above, nan_ok=True)
    assert math.isnan(found.estimate)


def test_one_boot_is_said_to_be_one() -> None:
    found = _find(_cells(lambda weight, boot: weight / 500, boots=1))
    assert 400 < found.estimate < 800
    assert str(found).endswith("[400, 800], the measured levels around it in 1 boot")


@pytest.mark.parametrize("column", ["clock", "target", "kernel_release", "kernel"])
def test_cells_that_differ_in_their_context_are_not_pooled(column: str) -> None:
    cells = _cells(lambda weight, boot: weight / 500)
    mixed = cells.assign(**{column: cells[column].where(cells["boot"] > 2, "other")})
    with pytest.raises(UserError, match=column):
        _find(mixed)


def test_controls_recorded_and_invalid_cells_do_not_count() -> None:
    cells = _cells(lambda weight, boot: weight / 500)
    expected = _find(cells)
    odd = cells[cells["weight"] == 100].assign(switches_per_io=50.0)
    for different in ({"valid": False}, {"recorded": True}):
        found = _find(pd.concat([cells, odd.assign(**different)]))
        assert found == expected


def test_a_mixture_and_a_treatment_without_an_order_are_refused() -> None:
    cells = _cells(lambda weight, boot: weight / 500)
    half = cells.assign(iodepth=cells["iodepth"] + cells["boot"] % 2)
    with pytest.raises(UserError, match="several values of iodepth"):
        _find(half)
    with pytest.raises(UserError, match="fewer than two levels of weight"):
        _find(cells[cells["weight"].isna() | (cells["weight"] == 100)])
    with pytest.raises(UserError, match="no valid treated cell"):
        _find(cells[cells["weight"].isna()])
    with pytest.raises(UserError, match="no column noise"):
        threshold(cells, "noise", 1.0)
    other = cells.assign(
        pathology="aio_migration", affinity="free", size=512, tuning="", integrity=""
    )
    with pytest.raises(UserError, match="affinity is not a number"):
        _find(other)
