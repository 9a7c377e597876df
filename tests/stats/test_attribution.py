# SPDX-License-Identifier: MIT
"""Attribution against synthetic data in which it is known what each intervention does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from iolab.stats.attribution import (
    attribution,
    candidates,
    change_of,
    change_text,
    crosses,
    keep_question,
    lasting,
    screening,
)
from tests.support.interventions import claim, measured


def effects(table: pd.DataFrame) -> dict[str, str]:
    return dict(zip(table["intervention"], table["effect"], strict=True))


def test_what_removes_weakens_strengthens_and_does_nothing_is_told_apart() -> None:
    truth = {"none": 0.72, "NO_CURE": 1.0, "NO_HALF": 0.80, "NO_WORSE": 0.60, "NO_THING": 0.72}
    levels = list(truth)[1:]
    table = attribution(measured(truth, boots=8), [claim()], "6.1", levels)
    assert effects(table) == {
        "NO_CURE": "removes",
        "NO_HALF": "weakens",
        "NO_WORSE": "strengthens",
        "NO_THING": "changes nothing",
    }
    cure = table.iloc[0]
    assert (cure["stage"], cure["n"]) == ("confirmed", 8)
    assert (cure["baseline_verdict"], cure["verdict"]) == ("reproduced", "not reproduced")
    assert cure["estimate"] == pytest.approx(1.0, abs=0.02)
    assert cure["low"] < cure["estimate"] < cure["high"]
    # ln(1 / 0.72) of the way of ln(0.88 / 0.72).
    assert cure["share"] == pytest.approx(np.log(1 / 0.72) / np.log(0.88 / 0.72), rel=0.1)


def test_what_moves_the_control_changes_the_workload() -> None:
    truth = {"none": 0.72, "NO_CURE": 1.0, "highres=on": 1.0, "NO_THING": 0.72}
    data = measured(truth, boots=8)
    # 6 % more and 4 % fewer IOPS, inside and outside: the ratios are as before.
    more = {"highres=on": 1.06, "NO_CURE": 0.96, "NO_THING": 1.06}
    iops = data.cells["iops"] * data.cells["intervention"].map(more).fillna(1).astype(float)
    moved = replace(data, cells=data.cells.assign(iops=iops))
    levels = list(truth)[1:]
    table = attribution(moved, [claim()], "6.1", levels)
    assert effects(table)["highres=on"] == "removes"
    kept = keep_question(table, moved, [claim()], "6.1")
    said = {"NO_CURE": "removes", "highres=on": "changes the workload"}
    assert effects(kept) == {**said, "NO_THING": "changes nothing"}
    assert kept.loc[kept["intervention"] == "highres=on", "reason"].iloc[0].endswith("+6%")
    # Without controls nothing is known of the workload.
    alone = replace(moved, cells=moved.cells[moved.cells["role"] == "treatment"])
    assert effects(keep_question(table, alone, [claim()], "6.1")) == effects(table)


def test_a_change_has_its_interval_beside_the_values() -> None:
    row = {"baseline": 2.0, "estimate": 0.0, "low": -0.5, "high": 0.5}
    difference = replace(claim(), contrast="difference", below=0.1)
    assert change_of(difference, row) == {"estimate": -2.0, "low": -2.5, "high": -1.5}
    assert change_text(difference, row) == "-2 [-2.5, -1.5]"
    ratio = {"baseline": 0.8, "estimate": 1.0, "low": 0.9, "high": 1.2}
    assert change_text(claim(), ratio) == "x 1.25 [1.12, 1.5]"
    assert change_text(claim(), {**ratio, "low": float("nan")}) == "x 1.25"


def test_a_kernel_without_the_pathology_may_have_it_restored() -> None:
    truth = {"none": 1.0, "preempt=full": 0.75, "NO_THING": 1.0}
    table = attribution(measured(truth, boots=8), [claim()], "6.1", ["preempt=full", "NO_THING"])
    assert effects(table) == {"preempt=full": "restores", "NO_THING": "changes nothing"}


@pytest.mark.parametrize(
    ("short", "long", "said"),
    [
        ({"none": 0.72, "NO_X": 1.0}, {"none": 0.72, "NO_X": 1.0}, "removes"),
        ({"none": 0.72, "NO_X": 1.0}, {"none": 0.70, "NO_X": 0.71}, "delays"),
        ({"none": 1.0, "NO_X": 0.72}, {"none": 1.0, "NO_X": 0.70}, "restores"),
        ({"none": 1.0, "NO_X": 0.72}, {"none": 0.70, "NO_X": 0.70}, "hastens"),
        # The change lasts, and the longer runs have it on one side of the limit.
        ({"none": 0.72, "NO_X": 0.92}, {"none": 0.70, "NO_X": 0.85}, "weakens"),
        ({"none": 1.0, "NO_X": 0.80}, {"none": 1.0, "NO_X": 0.91}, "strengthens"),
    ],
)
def test_longer_runs_tell_a_delay_from_a_cure(
    short: dict[str, float], long: dict[str, float], said: str
) -> None:
    decided = attribution(measured(short, boots=8), [claim()], "6.1", ["NO_X"])
    assert effects(decided)["NO_X"] in ("removes", "restores")
    table = lasting(decided, measured(long, boots=2), [claim()], "6.1")
    assert effects(table) == {"NO_X": said}
    assert bool(table["reason"].iloc[0]) is (said not in ("removes", "restores"))
    unmeasured = lasting(decided, measured({"none": 0.72}, boots=2), [claim()], "6.1")
    assert effects(unmeasured) == effects(decided)
    assert unmeasured["reason"].iloc[0].startswith("not measured in longer runs: ")


@pytest.mark.parametrize(("apart"), [(), ("NO_CURE",)])
def test_screening_measures_how_far_it_goes_to_the_limit(apart: tuple[str, ...]) -> None:
    truth = {"none": 0.72, "NO_CURE": 1.0, "NO_THING": 0.72, "NO_BIT": 0.74}
    levels = list(truth)[1:]
    data = measured(truth, boots=2, noise=0.001, apart=apart)
    table = screening(data, [claim()], "6.1", levels)
    assert set(table["stage"]) == {"screened"}
    assert candidates(table, [claim()], 8) == ["NO_CURE"]
    assert table.set_index("intervention").loc["NO_CURE", "n"] == 2
    assert effects(table)["NO_THING"] == "changes nothing"


def test_at_most_so_many_are_picked_and_the_furthest_first() -> None:
    truth = {"none": 0.72, "NO_A1": 0.9, "NO_B1": 1.0, "NO_C1": 0.95}
    table = screening(measured(truth, boots=2), [claim()], "6.1", list(truth)[1:])
    assert candidates(table, [claim()], 2) == ["NO_B1", "NO_C1"]


@pytest.mark.parametrize(("share", "effect"), [(0.1, "weakens"), (0.7, "removes")])
def test_the_way_of_a_treated_value_begins_at_its_baseline(share: float, effect: str) -> None:
    # The control does 29,333 IOPS: from the baseline to the limit are 880, from 0 to it 22,000.
    asked = claim(contrast="treated", below=22_000.0)
    truth = {"none": 0.72, "NO_CAUSE": 0.72 + share / 10, "NO_THING": 0.72}
    levels = list(truth)[1:]
    screened = screening(measured(truth, boots=2, noise=0.0002), [asked], "6.1", levels)
    assert candidates(screened, [asked], 8) == ["NO_CAUSE"]
    cause = screened.set_index("intervention").loc["NO_CAUSE"]
    base = 44_000 * 128 / 192
    assert cause["share"] == pytest.approx(share / 10 * base / (22_000 - 0.72 * base), rel=0.05)
    decided = attribution(measured(truth, boots=8, noise=0.0002), [asked], "6.1", levels)
    assert effects(decided) == {"NO_CAUSE": effect, "NO_THING": "changes nothing"}


def test_what_passes_the_limit_is_picked_however_short_its_way() -> None:
    # "No effect" is 1, so this way is 0.07 of the whole.
    truth = {"none": 0.495, "NO_CAUSE": 0.52, "NO_THING": 0.495}
    asked = claim(below=0.5)
    levels = list(truth)[1:]
    screened = screening(measured(truth, boots=2, noise=0.0002), [asked], "6.1", levels)
    assert crosses(screened, [asked]).tolist() == [True, False]
    assert candidates(screened, [asked], 8) == ["NO_CAUSE"]
    decided = attribution(measured(truth, boots=8, noise=0.0002), [asked], "6.1", levels)
    assert effects(decided) == {"NO_CAUSE": "removes", "NO_THING": "changes nothing"}


def test_what_was_refused_says_so() -> None:
    data = measured({"none": 0.72, "NO_SUCH": 0.72}, boots=8)
    refused = data.cells["intervention"] == "NO_SUCH"
    gate = "cannot run here: this kernel's scheduler has no feature SUCH"
    cells = data.cells.assign(
        valid=data.cells["valid"] & ~refused, gate=data.cells["gate"].mask(refused, gate)
    )
    for table in (
        screening(replace(data, cells=cells), [claim()], "6.1", ["NO_SUCH"]),
        attribution(replace(data, cells=cells), [claim()], "6.1", ["NO_SUCH"]),
    ):
        (row,) = table.to_dict("records")
        assert (row["effect"], row["n"], row["reason"]) == ("cannot run here", 0, gate)


def test_boots_that_agree_to_the_last_digit_are_too_few_below_their_bound() -> None:
    truth = {"none": 0.72, "NO_CURE": 1.0}
    few = attribution(measured(truth, boots=3, noise=0.0), [claim()], "6.1", ["NO_CURE"])
    assert effects(few) == {"NO_CURE": "inconclusive"}
    assert "agree to the last digit" in few["reason"].iloc[0]
    enough = attribution(measured(truth, boots=8, noise=0.0), [claim()], "6.1", ["NO_CURE"])
    assert effects(enough) == {"NO_CURE": "removes"}


def test_a_cure_that_leaves_no_spread_is_a_cure() -> None:
    """Three such boots have no verdict, but the change from a baseline that varies has one."""
    data = measured({"none": 0.72, "NO_CURE": 1.0}, boots=3)
    cured = data.cells["intervention"] == "NO_CURE"
    data = replace(data, cells=data.cells.assign(iops=data.cells["iops"].mask(cured, 1000.0)))
    (row,) = attribution(data, [claim()], "6.1", ["NO_CURE"]).to_dict("records")
    assert (row["effect"], row["verdict"]) == ("removes", "inconclusive")
    assert 0.88 < row["low"] < row["high"]


def test_more_candidates_widen_the_intervals() -> None:
    truth = {"none": 0.72, "NO_CURE": 1.0, **{f"NO_T{n}": 0.72 for n in range(9)}}
    data = measured(truth, boots=8)
    alone = attribution(data, [claim()], "6.1", ["NO_CURE"]).iloc[0]
    among = attribution(data, [claim()], "6.1", list(truth)[1:]).iloc[0]
    assert among["high"] - among["low"] > 1.3 * (alone["high"] - alone["low"])


@pytest.mark.nightly
def test_nothing_is_found_where_nothing_happens() -> None:
    """The whole procedure, screening included, errs in at most 5 % of runs."""
    truth = {"none": 0.72, **{f"NO_T{n}": 0.72 for n in range(6)}}
    levels = list(truth)[1:]
    wrong = 0
    runs = 20
    for run in range(runs):
        # A spread at which screening picks some by chance.
        data = measured(truth, boots=2, noise=0.08, seed=2 * run)
        picked = candidates(screening(data, [claim()], "6.1", levels), [claim()], 8)
        if picked:
            fresh = measured(
                {"none": 0.72, **dict.fromkeys(picked, 0.72)},
                boots=8,
                noise=0.08,
                seed=2 * run + 1,
            )
            table = attribution(fresh, [claim()], "6.1", picked)
            said = {"removes", "restores", "weakens", "strengthens"}
            wrong += bool(said & set(table["effect"]))
    # 1 of 20 is expected at most; 6 or more have a chance of 1 in 3,000 then.
    assert wrong <= 5
