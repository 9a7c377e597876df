# SPDX-License-Identifier: MIT
"""Claims judged on data of known truth: each rule, each reason for no verdict, and the looks."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from iolab.pathology import get_pathology
from iolab.pathology.base import Pathology
from iolab.pathology.claims import Claim
from iolab.pathology.registry import register
from iolab.stats.claims import LOOKS, boot_values, cells_of, judge, look_at
from iolab.stats.estimates import t_interval
from iolab.store.dataset import Dataset, with_measure
from iolab_base.errors import UserError
from tests.bench import bench_looks as bench
from tests.support import synthetic

_CONDITION = {"weight": 10000, "iodepth": 192, "numjobs": 1, "intervention": "none"}
_CONDITION |= {"extents": "overwrite", "clumping": "tick"}


_OPEN = "it is open whether there is anything to cure: 'illness', inconclusive"


def claim(**different: Any) -> Claim:
    return Claim(
        **{
            "name": "slower",
            "kind": "magnitude",
            "statement": "it is slower",
            "condition": _CONDITION,
            "value": "iops",
            "contrast": "ratio",
            "below": 0.9,
            **different,
        }
    )


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic.dataset(kernels=["6.1", "6.12"])


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        # The truth is 0.79.
        ({"below": 0.9}, "reproduced"),
        ({"below": 0.7}, "not reproduced"),
        ({"below": 0.79}, "inconclusive"),
        ({"below": None, "above": 0.7}, "reproduced"),
        ({"below": None, "above": 0.9}, "not reproduced"),
        ({"below": None, "above": 0.79}, "inconclusive"),
    ],
)
def test_a_rule_is_met_missed_or_neither(
    data: Dataset, rule: dict[str, float | None], verdict: str
) -> None:
    found = judge(data, claim(**rule), "6.1")
    assert found.verdict == verdict
    assert found.n == 6
    assert found.low < 0.79 < found.high
    assert found.estimate == pytest.approx(0.79, abs=0.02)


def test_what_the_machine_does_not_count_cannot_be_judged(data: Dataset) -> None:
    uncounted = replace(data, cells=data.cells.assign(idle=math.nan))
    found = judge(uncounted, claim(value="idle", contrast="difference"), "6.1")
    reason = "the measured machine does not count idle"
    assert (found.verdict, found.reason, found.n) == ("cannot run here", reason, 0)


def test_what_the_control_lacks_is_not_compared(data: Dataset) -> None:
    control = data.cells["role"] == "control"
    beside = data.cells["antagonist_cpu"].mask(~control, 0.25)
    own = replace(data, cells=data.cells.assign(antagonist_cpu=beside))
    found = judge(own, claim(value="antagonist_cpu", contrast="difference"), "6.1")
    reason = "the control had no antagonist_cpu to compare"
    assert (found.verdict, found.reason) == ("inconclusive", reason)


def test_a_difference_and_a_treated_value_are_in_their_own_unit(data: Dataset) -> None:
    switches = {"value": "switches_per_io", "below": None, "above": 1.0}
    difference = judge(data, claim(contrast="difference", **switches), "6.1")
    treated = judge(data, claim(contrast="treated", **switches), "6.1")
    assert difference.estimate == pytest.approx(2.1, abs=0.01)
    assert treated.estimate == pytest.approx(2.111, abs=0.01)


def test_there_is_no_verdict_without_a_reason(data: Dataset) -> None:
    needs = judge(data, claim(requires="it takes sixteen cores"), "6.1")
    assert (needs.verdict, needs.reason) == ("cannot run here", "it takes sixteen cores")
    absent = judge(data, claim(), "6.8")
    assert (absent.verdict, absent.reason) == ("cannot run here", "its archive cannot be reached")
    unmeasured = judge(data, claim(condition={**_CONDITION, "weight": 77}), "6.1")
    assert (unmeasured.verdict, unmeasured.n) == ("not measured", 0)
    assert unmeasured.reason == "its condition was not measured"
    unknown = judge(data, claim(value="no_such_measure"), "6.1")
    assert "no cell has the measure no_such_measure" in unknown.reason
    single = replace(data, cells=data.cells[data.cells["boot"] == 0])
    one = judge(single, claim(), "6.1")
    assert (one.verdict, one.reason, one.n) == ("inconclusive", "one boot", 1)
    assert math.isnan(one.low)


def test_gated_cells_give_their_gate_as_the_reason(data: Dataset) -> None:
    lacks = data.cells["weight"] == 10000
    cells = synthetic.gated(data.cells, lacks, "cannot run here: no cgroup")
    found = judge(replace(data, cells=cells), claim(), "6.1")
    assert (found.verdict, found.reason) == ("cannot run here", "no cgroup")
    # One run was disturbed: that is no property of the kernel.
    treated = cells_of(data, claim(), "6.1", cells).query("role == 'treatment'")
    cells.loc[treated.index[-1], "gate"] = "busy"
    mixed = judge(replace(data, cells=cells), claim(), "6.1")
    assert (mixed.verdict, mixed.reason) == ("not measured", "busy")


def test_a_measure_of_recorded_cells_alone_is_judged_from_them(data: Dataset) -> None:
    cells = data.cells.copy()
    cells["recorded"] = True
    rows = [
        {"cell": row["cell"], "measure": "gaps", "value": 20.0 if row["role"] == "treatment" else 0}
        for row in cells.to_dict("records")
    ]
    told = replace(data, cells=cells, mechanism=pd.DataFrame(rows))
    found = judge(told, claim(value="gaps", contrast="difference", below=None, above=5.0), "6.1")
    assert (found.verdict, found.estimate) == ("reproduced", 20.0)
    with pytest.raises(UserError, match="known: gaps"):
        with_measure(told, "gasp")
    twice = replace(told, mechanism=pd.concat([told.mechanism] * 2))
    name = twice.mechanism["measure"].iloc[0]
    with pytest.raises(UserError, match=f"{name} twice"):
        with_measure(twice, name)


def test_a_kernel_of_which_a_part_cannot_run_is_judged_by_the_rest(data: Dataset) -> None:
    # On a real machine some blocks of its one kernel may lack what they need.
    partly = replace(data, unavailable=pd.DataFrame([{"kernel": "6.1", "reason": "highres=on"}]))
    assert judge(partly, claim(), "6.1") == judge(data, claim(), "6.1")
    lost = judge(partly, claim(condition={**_CONDITION, "clumping": "even"}), "6.1")
    assert (lost.verdict, lost.reason) == ("cannot run here", "highres=on")
    unknown = judge(partly, claim(value="no_such_measure"), "6.1")
    assert "no cell has the measure" in unknown.reason


def changed(data: Dataset, where: dict[str, Any], **values: Any) -> tuple[Dataset, str]:
    """Return the data with values changed in one cell of the claim on 6.1, and that cell."""
    cells = data.cells.copy()
    here = (cells["kernel"] == "6.1") & (cells["iodepth"] == 192) & ~cells["aa"]
    pair = cells[here & (cells["weight"] == 10000).fillna(False)].iloc[1][["block", "pair"]]
    here &= (cells["block"] == pair["block"]) & (cells["pair"] == pair["pair"])
    for name, value in where.items():
        here &= cells[name] == value
    (index,) = cells.index[here]
    for name, value in values.items():
        cells.loc[index, name] = value
    return replace(data, cells=cells), str(cells.loc[index, "cell"])


@pytest.mark.parametrize("role", ["treatment", "control"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "the valid cell {} has no finite iops"),
        (math.inf, "the valid cell {} has no finite iops"),
        (0.0, "iops of cell {} is not above 0, so it has no logarithm"),
    ],
)
def test_a_valid_cell_that_has_no_ratio_is_named(
    data: Dataset, role: str, value: float, message: str
) -> None:
    broken, cell = changed(data, {"role": role}, iops=value)
    found = judge(broken, claim(), "6.1")
    assert (found.verdict, found.n) == ("inconclusive", 0)
    assert found.reason == message.format(cell)
    gated, _ = changed(data, {"role": role}, iops=value, valid=False)
    other = judge(gated, claim(), "6.1")
    assert (other.verdict, other.n) == ("reproduced", 5)
    # A claim of the treated value alone does not look at controls.
    alone = judge(broken, claim(contrast="treated", below=1e9), "6.1")
    assert (alone.verdict == "reproduced") is (role == "control" or value == 0)


def test_a_measure_that_one_cell_lacks_is_missed(data: Dataset) -> None:
    cells = data.cells
    rows = pd.DataFrame({"cell": cells["cell"], "measure": "gaps", "value": 20.0})
    gaps = claim(value="gaps", contrast="treated", below=None, above=5.0)
    treated = cells[(cells["weight"] == 10000).fillna(False) & (cells["iodepth"] == 192)]
    lost = treated[treated["kernel"] == "6.1"]["cell"].iloc[0]
    partly = replace(data, mechanism=rows[rows["cell"] != lost])
    assert judge(partly, gaps, "6.1").reason == f"the valid cell {lost} has no finite gaps"


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("clock", "more than one clock"),
        ("target", "more than one target"),
        ("kernel_release", "several values of kernel_release"),
        ("numjobs", "several values of numjobs"),
    ],
)
def test_cells_that_differ_in_their_context_are_not_pooled(
    data: Dataset, column: str, message: str
) -> None:
    other = 2 if column == "numjobs" else "other"
    late = data.cells["boot"] > 2
    cells = data.cells.assign(**{column: data.cells[column].where(~late, other)})
    vague = claim(condition={k: v for k, v in _CONDITION.items() if k != "numjobs"})
    with pytest.raises(UserError, match=message):
        judge(replace(data, cells=cells), vague, "6.1")


def test_controls_that_are_not_there_are_said(data: Dataset) -> None:
    treated = replace(data, cells=data.cells[data.cells["role"] == "treatment"])
    found = judge(treated, claim(), "6.1")
    assert found.reason == "no valid control beside its treated cells"
    assert (found.verdict, found.n) == ("not measured", 0)
    twice = pd.concat([data.cells, data.cells.assign(cell=data.cells["cell"] + "'")])
    assert "more than one control" in judge(replace(data, cells=twice), claim(), "6.1").reason


def test_two_boots_ten_times_apart_have_an_interval_without_end(data: Dataset) -> None:
    two = data.cells[data.cells["boot"] < 2].copy()
    two.loc[(two["role"] == "treatment") & (two["boot"] == 1), "iops"] *= 10
    found = judge(replace(data, cells=two), claim(), "6.1", confidence=0.999)
    assert (found.high, found.verdict) == (math.inf, "inconclusive")
    assert 0 <= found.low < 1e-300


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("n", range(2, 13))
def test_boots_that_agree_are_judged_only_where_so_many_cannot_agree_by_chance(
    confidence: float, n: int
) -> None:
    rows = [row for boot in range(n) for row in synthetic.block_cells(block=f"b{boot}", boot=boot)]
    cells = synthetic.frame(rows)
    alike = replace(synthetic.dataset(boots=1), cells=cells)
    here = {**_CONDITION, "weight": 1000, "iodepth": 128}
    found = judge(alike, claim(condition=here, below=0.95), "6.1", confidence=confidence)
    assert (found.low, found.high, found.n) == (found.estimate, found.estimate, n)
    # Half of all boots beyond the limit: none of n boots is, by chance.
    by_chance = 0.5**n
    if by_chance < (1 - confidence) / 2:
        assert (found.verdict, found.reason) == ("reproduced", "")
        missed = judge(alike, claim(condition=here, below=0.9), "6.1", confidence=confidence)
        assert missed.verdict == "not reproduced"
    else:
        assert found.verdict == "inconclusive"
        who = "both boots agree" if n == 2 else f"all {n} boots agree"
        enough = int(found.reason.split()[-3])
        assert found.reason == f"{who} to the last digit: a verdict needs {enough} such boots"
        assert 0.5**enough < (1 - confidence) / 2 <= 0.5 ** (enough - 1)


def test_boot_values_are_means_of_log_ratios_of_pairs(data: Dataset) -> None:
    cells = data.cells[(data.cells["kernel"] == "6.1") & (data.cells["iodepth"] == 192)]
    pairs = cells[(cells["weight"] == 10000).fillna(False)][["block", "pair"]]
    wide = cells.merge(pairs, on=["block", "pair"]).pivot(
        index="block", columns="role", values="iops"
    )
    expected = (wide["treatment"] / wide["control"]).map(math.log)
    found = boot_values(data, claim(), "6.1")
    pd.testing.assert_series_equal(found, expected, check_names=False)


def _with_claims(**by_name: dict[str, Any]) -> Pathology:
    """Return a pathology like dio_kworker, with claims of these limits in one condition."""
    claims = tuple(claim(name=name, **different) for name, different in by_name.items())
    return replace(get_pathology("dio_kworker"), name="cures_tested", claims=claims)


@pytest.mark.parametrize(
    ("illness", "cure", "verdict", "reason"),
    [
        # The truth is 0.79.
        (0.9, {}, "reproduced", ""),
        (0.9, {"above": 0.9}, "not reproduced", ""),
        (0.7, {}, "not applicable", "nothing to cure: 'illness' is not reproduced"),
        (0.79, {}, "inconclusive", _OPEN),
    ],
)
def test_a_cure_is_judged_where_there_is_something_to_cure(
    data: Dataset, illness: float, cure: dict[str, Any], verdict: str, reason: str
) -> None:
    cured = {"below": None, "above": 0.7, "cures": "illness", "secondary": True, **cure}
    made = _with_claims(illness={"below": illness}, cure=cured)
    register(made)
    cells = data.cells.assign(pathology="cures_tested")
    found = judge(replace(data, cells=cells), made.claims[1], "6.1")
    assert (found.verdict, found.reason, found.n) == (verdict, reason, 6)
    assert found.estimate == pytest.approx(0.79, abs=0.02)


@pytest.mark.parametrize(
    ("limit", "different", "verdict", "reason"),
    [
        # The truth is 0.79 at weight 10000 and 1 at 100.
        (0.9, {"weight": 100}, "reproduced", ""),
        (0.9, {"weight": 3000}, "other cause", "its negative control (weight=3000: "),
        (0.9, {"weight": 77}, "reproduced", "its negative control (weight=77) is not measured"),
        (0.7, {"weight": 3000}, "not reproduced", ""),
        # The truth of the control, 0.80.
        (0.8, {"weight": 3000}, "inconclusive", ""),
    ],
)
def test_a_yes_needs_its_control(
    data: Dataset, limit: float, different: dict[str, Any], verdict: str, reason: str
) -> None:
    found = judge(data, claim(below=limit, control=different), "6.1")
    assert found.verdict == verdict
    assert found.reason.startswith(reason)
    assert found.estimate == judge(data, claim(below=limit), "6.1").estimate


def test_a_control_that_does_not_decide_leaves_the_claim_open(data: Dataset) -> None:
    hit = (data.cells["weight"] == 100).fillna(False) & (data.cells["boot"] > 1)
    two = replace(data, cells=data.cells.assign(valid=data.cells["valid"] & ~hit))
    found = judge(two, claim(control={"weight": 100}), "6.1")
    assert (found.verdict, found.n) == ("inconclusive", 6)
    assert "weight=100" in found.reason


def counted(data: Dataset, moves: dict[int, int], boots: int) -> Dataset:
    """Return boots in which events were counted for 1.4 s; another kernel counted one in some."""
    cells = data.cells[(data.cells["boot"] < boots) & ~data.cells["aa"]]
    here = cells["kernel"] == "6.1"
    events = cells["boot"].map(moves).where(here, cells["boot"] % 2)
    rows = pd.DataFrame({"cell": cells["cell"], "measure": "rate", "value": events / 1.4})
    return replace(data, cells=cells, mechanism=rows)


def test_no_event_in_three_boots_bounds_the_rate(data: Dataset) -> None:
    rate = claim(value="rate", contrast="treated", below=None, above=10.0, counts=True)
    none = counted(data, dict.fromkeys(range(3), 0), 3)
    found = judge(none, rate, "6.1")
    assert (found.verdict, found.estimate, found.low) == ("not reproduced", 0, 0)
    # 3.69 events in the three boots' 4.2 s.
    assert found.high == pytest.approx(3.689 / 4.2, rel=1e-3)
    assert judge(none, replace(rate, counts=False), "6.1").verdict == "inconclusive"
    # 15 events in each of three boots.
    many = judge(counted(data, dict.fromkeys(range(3), 15), 3), rate, "6.1")
    low, high = (events / 4.2 for events in (32.82, 60.21))
    assert many.low == pytest.approx(low, 1e-3)
    assert many.high == pytest.approx(high, 1e-3)
    assert many.verdict == "inconclusive"
    # Two boots say too little, and boots that differ have their spread.
    assert judge(counted(data, {0: 0, 1: 0}, 2), rate, "6.1").verdict == "inconclusive"
    uneven = judge(counted(data, {0: 0, 1: 0, 2: 9}, 3), rate, "6.1")
    assert uneven.high > 9


def test_two_boots_give_an_interval_and_no_verdict(data: Dataset) -> None:
    two = replace(data, cells=data.cells[data.cells["boot"] < 2])
    found = judge(two, claim(below=100.0), "6.1")
    assert (found.verdict, found.n) == ("inconclusive", 2)
    assert found.reason == "2 boots: a verdict needs 3"
    assert found.low < found.estimate < found.high < 100
    three = replace(data, cells=data.cells[data.cells["boot"] < 3])
    assert judge(three, claim(below=100.0), "6.1").verdict == "reproduced"


def test_a_rate_has_no_interval_below_zero(data: Dataset) -> None:
    cells = data.cells[data.cells["boot"] < 3]
    rates = [60.0 if boot == 0 else 1.0 for boot in cells["boot"]]
    rows = pd.DataFrame({"cell": cells["cell"], "measure": "rate", "value": rates})
    moved = replace(data, cells=cells, mechanism=rows)
    treated = {"value": "rate", "contrast": "treated", "below": 200.0}
    found = judge(moved, claim(**treated), "6.1")
    assert (found.low, found.verdict) == (0.0, "reproduced")
    assert found.high > 60


def test_a_skewed_value_is_judged_by_its_geometric_mean(data: Dataset) -> None:
    cells = data.cells
    times = [10.0 ** (1 + boot % 3) for boot in cells["boot"]]
    rows = pd.DataFrame({"cell": cells["cell"], "measure": "time_ms", "value": times})
    slow = replace(data, mechanism=rows)
    treated = {"value": "time_ms", "contrast": "treated", "below": 1000.0, "scale": "log"}
    found = judge(slow, claim(**treated), "6.1")
    assert found.estimate == pytest.approx(100)
    assert found.low * found.high == pytest.approx(100**2)
    assert found.verdict == "reproduced"
    zero = replace(data, mechanism=rows.assign(value=0.0))
    assert "is not above 0" in judge(zero, claim(**treated), "6.1").reason


def test_boots_are_judged_by_the_order_of_their_pairs(data: Dataset) -> None:
    cells = data.cells[(data.cells["kernel"] == "6.1") & ~data.cells["aa"]].copy()
    first = cells.groupby(["block", "pair"])["position"].transform("min") == cells["position"]
    # What comes second does half as much again.
    cells.loc[~first, "iops"] *= 1.5
    drifting = replace(data, cells=cells)
    found = judge(drifting, claim(), "6.1")
    assert found.low < 0.79 < found.high
    plain = t_interval(boot_values(drifting, claim(), "6.1").to_numpy(), 0.95)
    assert found.high / found.low < 0.5 * math.exp(plain[2] - plain[1])


DOCS = Path(__file__).parents[2] / "docs" / "statistics.md"


def test_all_looks_together_err_in_five_percent_at_most() -> None:
    assert sum(1 - look.confidence for look in LOOKS) <= 0.05 + 1e-12
    assert all(one.boots < other.boots for one, other in pairwise(LOOKS))


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "drift"])
def test_where_the_truth_is_at_the_limit_few_decide(noise: str) -> None:
    row = bench.simulate(noise, 0.0, count=600)
    # The lower end of the exact interval: a share of 5 % would pass in all but 2.5 % of seeds.
    assert row.wrong[1] <= 0.05
    assert row.wrong[0] == row.decided


def test_where_the_truth_is_clear_the_first_look_decides() -> None:
    row = bench.simulate("normal", 20.0, count=200)
    assert row.wrong[0] == 0
    assert row.boots < 3.1


@pytest.mark.nightly
@pytest.mark.parametrize(("noise", "distance"), [("heavy tails", 5.0), ("as measured", 0.0)])
def test_the_documented_rows_are_what_comes_out(noise: str, distance: float) -> None:
    assert bench.line(bench.simulate(noise, distance)) in DOCS.read_text()


def test_what_the_last_look_leaves_open_stays_open() -> None:
    data = synthetic.dataset(boots=6, invalid=False)
    lost = get_pathology("dio_kworker").claim("IOPS lost")
    # The synthetic ratio is 0.79 at this weight.
    condition = {**lost.condition, "weight": 3000, "iodepth": 192}
    at_the_limit = replace(lost, condition=condition, below=0.8, published=None, why="of the test")
    three = data.cells["boot"] < LOOKS[0].boots
    few = replace(data, cells=data.cells[three])
    judged, more = look_at(few, at_the_limit, "6.1", LOOKS[0])
    assert (judged.verdict, judged.n, more) == ("inconclusive", 3, True)
    judged, more = look_at(data, at_the_limit, "6.1", LOOKS[1])
    assert (judged.verdict, judged.n, more) == ("inconclusive", 6, False)
    clear = replace(at_the_limit, below=0.99)
    judged, more = look_at(few, clear, "6.1", LOOKS[0])
    assert (judged.verdict, more) == ("reproduced", False)
