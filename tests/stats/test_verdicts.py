# SPDX-License-Identifier: MIT
"""Verdicts on data of known truth: each rule, each reason why there is none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from iolab.errors import UserError
from iolab.figures.verdicts import verdict_grid
from iolab.pathology.base import Claim
from iolab.stats.verdicts import judge, verdict_summary, verdict_table, verdict_text
from iolab.store.dataset import Dataset, with_measure
from tests.support import synthetic

_CONDITION = {
    "weight": 10000,
    "iodepth": 192,
    "numjobs": 1,
    "extents": "overwrite",
    "clumping": "tick",
}


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
    assert (unmeasured.verdict, unmeasured.n) == ("cannot run here", 0)
    assert unmeasured.reason == "its condition was not measured"
    unknown = judge(data, claim(value="no_such_measure"), "6.1")
    assert "no cell has the measure no_such_measure" in unknown.reason
    single = replace(data, cells=data.cells[data.cells["boot"] == 0])
    one = judge(single, claim(), "6.1")
    assert (one.verdict, one.reason, one.n) == ("inconclusive", "one boot", 1)
    assert math.isnan(one.low)


def test_a_kernel_of_which_a_part_cannot_run_is_judged_by_the_rest(data: Dataset) -> None:
    # On a real machine some blocks of its one kernel may lack what they need.
    partly = replace(data, unavailable=pd.DataFrame([{"kernel": "6.1", "reason": "highres=on"}]))
    assert judge(partly, claim(), "6.1") == judge(data, claim(), "6.1")
    lost = judge(partly, claim(condition={**_CONDITION, "clumping": "even"}), "6.1")
    assert (lost.verdict, lost.reason) == ("cannot run here", "highres=on")
    unknown = judge(partly, claim(value="no_such_measure"), "6.1")
    assert "no cell has the measure" in unknown.reason
    assert not verdict_table(partly).duplicated(["kernel", "claim"]).any()


def test_gated_cells_give_their_gate_as_the_reason(data: Dataset) -> None:
    cells = data.cells.copy()
    hit = (cells["weight"] == 10000).fillna(False)
    cells.loc[hit, "valid"] = False
    cells.loc[hit, "gate"] = "cannot run here: no cgroup"
    found = judge(replace(data, cells=cells), claim(), "6.1")
    assert (found.verdict, found.reason) == ("cannot run here", "cannot run here: no cgroup")


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
    with pytest.raises(UserError, match="there are: gaps"):
        with_measure(told, "gasp")


def test_the_table_has_every_claim_on_every_kernel(data: Dataset) -> None:
    table = verdict_table(data)
    assert table["kernel"].unique().tolist() == ["6.1", "6.12", "6.8"]
    assert set(table.loc[table["kernel"] == "6.8", "verdict"]) == {"cannot run here"}
    assert table["rule"].str.contains("above|below").all()
    summary = verdict_summary(table)
    assert summary["kernel"].tolist() == ["6.1", "6.12", "6.8"]
    assert summary["page"].unique().tolist() == ["dio_kworker.ipynb"]
    assert summary["confidence"].tolist()[-1] == "none"


def test_claims_of_one_kind_are_joined() -> None:
    rows = [
        {
            "pathology": "dio_kworker",
            "kernel": "6.1",
            "kind": kind,
            "secondary": side,
            "verdict": verdict,
            "n": 6,
        }
        for kind, side, verdict in (
            ("mechanism", False, "reproduced"),
            ("mechanism", False, "not reproduced"),
            ("mechanism", True, "reproduced"),
            ("magnitude", False, "inconclusive"),
            ("magnitude", False, "inconclusive"),
        )
    ]
    (row,) = verdict_summary(pd.DataFrame(rows)).to_dict("records")
    assert row["mechanism"] == "1 of 2 reproduced"
    assert row["magnitude"] == "inconclusive"
    assert row["secondary claims"] == "reproduced"
    assert row["confidence"] == "95%, 6 boots"


def test_a_result_is_said_with_its_interval_or_reason() -> None:
    row = {"estimate": 0.7612, "low": 0.7601, "high": 0.7623, "reason": ""}
    assert verdict_text(row) == "0.761 [0.76, 0.762]"
    assert verdict_text({**row, "low": math.nan}) == "0.761"
    assert verdict_text({**row, "estimate": math.nan, "reason": "no tool"}) == "no tool"


def test_the_figure_has_a_field_for_each_claim_and_kernel(data: Dataset) -> None:
    table = verdict_table(data)
    figure = verdict_grid(table)
    assert len(figure.axes[0].patches) == len(table)
    with pytest.raises(UserError, match="no claim"):
        verdict_grid(table[:0])
