# SPDX-License-Identifier: MIT
"""Tables of verdicts on data of known truth."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from iolab.pathology import get_pathology
from iolab.pathology.base import NEAR, Claim, Pathology, neighbours
from iolab.paths import REFERENCE
from iolab.stats.tables import ratio_table
from iolab.stats.verdicts import (
    declared_claims,
    discoveries,
    holm,
    holm_family,
    measured_family,
    neighbourhood_table,
    verdict_summary,
    verdict_table,
    verdict_text,
)
from iolab.store.dataset import Dataset, load
from iolab_base.errors import UserError
from tests.bench.bench_statistics import sign_flip_p
from tests.support import synthetic
from tests.support.reports import report


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic.dataset(kernels=["6.1", "6.12"])


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
            "claim": f"claim {number}",
            "kind": kind,
            "secondary": side,
            "verdict": verdict,
            "n": 6,
        }
        for number, (kind, side, verdict) in enumerate(
            (
                ("mechanism", False, "reproduced"),
                ("mechanism", False, "not reproduced"),
                ("mechanism", True, "reproduced"),
                ("mechanism", False, "not measured"),
                ("mechanism", False, "not reproduced"),
                ("magnitude", False, "inconclusive"),
                ("magnitude", False, "inconclusive"),
            )
        )
    ]
    (row,) = verdict_summary(pd.DataFrame(rows)).to_dict("records")
    whole = "1 of 4 reproduced (not reproduced: claim 1, claim 4; not measured: claim 3)"
    assert row["mechanism"] == whole
    assert row["magnitude"] == "inconclusive"
    assert row["secondary claims"] == "reproduced"
    assert row["confidence"] == "95%, 6 boots"
    (three,) = verdict_summary(pd.DataFrame(rows).assign(n=3)).to_dict("records")
    assert three["confidence"] == "n = 3: interval too short (87 %)"


def test_a_result_is_said_with_its_interval_or_reason() -> None:
    row = {"estimate": 0.7612, "low": 0.7601, "high": 0.7623, "reason": ""}
    assert verdict_text(row) == "0.761 [0.76, 0.762]"
    assert verdict_text({**row, "low": math.nan}) == "0.761"
    assert verdict_text({**row, "estimate": math.nan, "reason": "no tool"}) == "no tool"


def test_a_kernel_that_can_run_in_part_has_one_row_for_each_claim(data: Dataset) -> None:
    partly = replace(data, unavailable=pd.DataFrame([{"kernel": "6.1", "reason": "highres=on"}]))
    assert not verdict_table(partly).duplicated(["kernel", "claim"]).any()


@pytest.mark.parametrize("column", ["clock", "target"])
def test_kernels_of_two_clocks_are_no_one_table(data: Dataset, column: str) -> None:
    other = data.cells[column].where(data.cells["kernel"] == "6.1", "other")
    with pytest.raises(UserError, match=f"more than one {column}"):
        verdict_table(replace(data, cells=data.cells.assign(**{column: other})))


_FSNOTIFY = get_pathology("fsnotify_contention")


def test_claims_of_one_rule_are_one_row_and_those_without_cells_none() -> None:
    table = neighbourhood_table(report("fsnotify_contention"))
    assert set(table["claim"]) == {"a parent reference per read, libaio"}
    # Of its neighbours, the study measured all.
    assert (table.groupby("kernel")["n"].count() == len(neighbours(_FSNOTIFY))).all()


def test_a_neighbourhood_says_where_the_effect_is_and_where_not() -> None:
    # By depth, around the report's own 128: a loss there and deeper, none at 192.
    lost = {128: 0.5, 192: 1.0, 384: 0.5}
    rows = [
        row
        for depth, ratio in lost.items()
        for boot in range(3)
        for row in synthetic.block_cells(
            block=f"{depth}-{boot}",
            boot=boot,
            conditions=[(depth, 1000)],
            effects={1000: ratio},
            noise_sd=0.001,
            rng=np.random.default_rng(boot),
        )
    ]
    data = synthetic.dataset(kernels=["6.1"], boots=1)
    cells = synthetic.frame(rows).assign(tuning="8-cpus")
    table = neighbourhood_table(replace(data, cells=cells)).query("claim == 'IOPS lost' and n > 0")
    verdicts = dict(zip(table["place"], table["verdict"], strict=True))
    no = "not reproduced"
    assert verdicts == {"": "reproduced", "iodepth=192": no, "iodepth=384": "reproduced"}
    assert table["estimate"].tolist() == pytest.approx([0.5, 1.0, 0.5], rel=0.01)
    # So it does where each cell needs the same intervention.
    needed = cells.assign(intervention="boot.hpet=disable")
    again = neighbourhood_table(replace(data, cells=needed)).query("claim == 'IOPS lost' and n > 0")
    assert dict(zip(again["place"], again["verdict"], strict=True)) == verdicts


def test_a_yes_around_a_report_needs_its_control() -> None:
    """BFQ on 5.1 with low_latency=0: dd loses as much in the root cgroup."""
    table = neighbourhood_table(load(REFERENCE / "near" / "bfq_idling"))
    rows = table[table["claim"] == "throughput collapses"]
    judged = dict(zip(rows["place"], rows["verdict"], strict=True))
    assert judged.pop("") == "reproduced"
    same = {place: "other cause" if "throughput" in place else "reproduced" for place in judged}
    assert judged == same
    assert "other cause" in judged.values()


def test_a_report_without_a_neighbourhood_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    undeclared = {n: p for n, p in _FSNOTIFY.profiles.items() if n != NEAR}
    monkeypatch.setitem(vars(_FSNOTIFY), "profiles", undeclared)
    with pytest.raises(UserError, match="fsnotify_contention"):
        neighbourhood_table(report("fsnotify_contention"))


_AT = {"iodepth": 192, "weight": 10000}


@pytest.fixture(autouse=True, scope="module")
def _collects_little() -> Iterator[None]:
    # multipletests collects garbage on each call, half a second among all that pytest has loaded.
    gc.freeze()
    yield
    gc.unfreeze()


def claim(name: str, **different: Any) -> Claim:
    return Claim(
        **{
            "name": name,
            "kind": "magnitude",
            "statement": "it is slower",
            "condition": _AT,
            "value": "iops",
            "contrast": "ratio",
            "below": 0.9,
            **different,
        }
    )


def pathology(*claims: Claim, **condition: Any) -> Pathology:
    return replace(
        get_pathology("dio_kworker"), claims=claims, preregistered=({**_AT, **condition},)
    )


def rows(*p_values: tuple[str, str, float | None]) -> list[dict[str, Any]]:
    return [{"claim": name, "kernel": kernel, "p_value": p} for name, kernel, p in p_values]


def test_claims_of_one_value_and_of_several_are_one_family() -> None:
    declared = pathology(
        claim("a"), claim("b", below=0.8), claim("c", value="idle", contrast="difference")
    )
    p = [0.01, 0.02, 0.03]
    found = holm_family(
        declared, rows(*((name, "6.1", p) for name, p in zip("abc", p, strict=True)))
    )
    assert [one.p_holm for one in found] == pytest.approx(multipletests(p, method="holm")[1])
    assert {(one.preregistered, one.family_size) for one in found} == {(True, 3)}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_holm_is_statsmodels(p: list[float], unmeasured: int) -> None:
    expected = multipletests([*p, *[1.0] * unmeasured], method="holm")[1][: len(p)]
    assert holm(p, unmeasured=unmeasured) == pytest.approx(expected)


def test_what_is_not_primary_or_has_no_p_value_is_no_member() -> None:
    declared = pathology(
        claim("a"),
        claim("elsewhere", condition={**_AT, "weight": 100}),
        claim("secondary", secondary=True),
        claim("treated", contrast="treated"),
        claim("undecidable", requires="it takes real cores"),
    )
    assert declared_claims(declared, ["6.1"]) == [("6.1", "a")]
    names = [one.name for one in declared.claims]
    found = holm_family(declared, rows(*((name, "6.1", 0.01) for name in names)))
    assert found[0] == (True, 1, 0.01)
    assert all(one[:2] == (False, 0) and math.isnan(one.p_holm) for one in found[1:])


def test_a_condition_without_a_kernel_is_declared_on_each() -> None:
    declared = pathology(claim("a"), claim("b"))
    p_values = [("a", "6.1", 0.01), ("b", "6.1", 0.2), ("a", "6.12", None), ("b", "6.12", 0.001)]
    found = holm_family(declared, rows(*p_values))
    assert {one.family_size for one in found} == {4}
    # What could not be tested keeps its place: 4, 3 and 2 are the factors of Holm's steps.
    assert [one.p_holm for one in found] == pytest.approx([0.03, 0.4, math.nan, 0.004], nan_ok=True)


def test_a_kernel_that_was_not_measured_counts() -> None:
    declared = pathology(claim("a"), claim("b"), kernel="6.8")
    assert declared_claims(declared, ["6.1"]) == [("6.8", "a"), ("6.8", "b")]
    none, *_ = holm_family(declared, rows(("a", "6.1", 0.01)))
    assert not none.preregistered
    here, *_ = holm_family(declared, rows(("a", "6.8", 0.01)))
    assert (here.family_size, here.p_holm) == (2, 0.02)


def test_nothing_declared_is_no_family() -> None:
    free = replace(pathology(claim("a")), preregistered=())
    assert declared_claims(free, ["6.1"]) == []
    assert holm_family(free, []) == []
    (found,) = holm_family(free, rows(("a", "6.1", 0.01)))
    assert (found.preregistered, found.family_size) == (False, 0)


@pytest.mark.parametrize("boots", [6, 10])
def test_a_family_of_three_values_errs_in_at_most_one_run_of_twenty(boots: int) -> None:
    declared = pathology(*(claim(name, value=name) for name in "abc"), kernel="6.1")
    runs = 400
    p_values = sign_flip_p(np.random.default_rng(boots).standard_normal((runs, 3, boots)))
    false = 0
    # Holm's method never lowers a p-value.
    for run in p_values[p_values.min(axis=1) <= 0.05]:
        found = holm_family(
            declared, rows(*((n, "6.1", float(p)) for n, p in zip("abc", run, strict=True)))
        )
        false += min(one.p_holm for one in found) <= 0.05
    # Four binomial standard errors above 5 %.
    assert false / runs <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)


def test_controls_are_not_the_declared_weight() -> None:
    cells = synthetic.dataset(kernels=("6.1",), boots=2).cells
    declared = pathology(claim("a"), kernel="6.1")
    assert measured_family(declared, cells) == [{**_AT, "intervention": "none", "kernel": "6.1"}]
    # The control of that depth has no weight: NA is not 10000.
    lighter = cells[cells["weight"].isna() | (cells["weight"] < 10000).fillna(True)]
    assert lighter["weight"].isna().any()
    assert measured_family(declared, lighter) is None
    assert measured_family(declared, cells[cells["kernel"] != "6.1"]) is None


def test_discoveries_are_benjamini_and_hochbergs() -> None:
    cells = synthetic.dataset(boots=8, invalid=False).cells
    table = ratio_table(cells)
    grid = table[~table["aa"]]
    reject, q_values, *_ = multipletests(grid["p_value"], alpha=0.05, method="fdr_bh")
    found = discoveries(table)
    assert 0 < len(found) == reject.sum() < len(grid)
    assert found["q_value"].tolist() == pytest.approx(sorted(q_values[reject]))
    assert not found["aa"].any()
    assert len(discoveries(table, rate=0.999)) > len(found)
    assert discoveries(ratio_table(synthetic.plain(1))).empty
    with pytest.raises(UserError, match="rate of false"):
        discoveries(table, rate=5)


@pytest.mark.parametrize(
    ("member", "message"),
    [({"kernel": "6.1"}, "picks 10 conditions"), ({"color": 1}, "does not have")],
)
def test_a_vague_family_is_refused(member: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ratio_table(synthetic.dataset(boots=2).cells, family=[member])
