# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from iolab.stats.intervals import Floats
from iolab.stats.knee import hinge, knee, knee_table
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
    json.dumps(found.as_dict(), allow_nan=False)
    assert found.as_dict()["knee"] is None


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
    with pytest.raises(UserError, match="no factor of numbers"):
        knee(cells, "colour")
    with pytest.raises(UserError, match="no factor of numbers"):
        knee(cells, "scheduler")
    with pytest.raises(UserError, match="no boot has 4 levels"):
        knee(cells[cells["numjobs"] < 8], "numjobs")
    with pytest.raises(UserError, match="confidence level"):
        knee(cells, "numjobs", confidence=95)
