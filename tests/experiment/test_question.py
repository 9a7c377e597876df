# SPDX-License-Identifier: MIT
from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import iolab
from iolab.agent.plan import Group
from iolab.agent.plan_reader import parse_plan
from iolab.blocks import encode_plan
from iolab.design import blocks_of
from iolab.pathology.base import Pathology
from iolab.pathology.factors import Condition
from iolab_base.errors import IolabError, UserError

JOB = "rw=randread bs=4k iodepth=1 ioengine=psync direct=1"
HOG = ["python3", "-c", "while True: pass"]


def cells(asked: Pathology, **different: Any) -> Any:
    """Return the agent's cell of a condition; a factor that is not named is the control's."""
    profile = asked.profiles["quick"]
    levels: Condition = {n: v[0] for n, v in profile.grids[0].items() if n != asked.treatment}
    condition = {**levels, asked.treatment: None, **different}
    return asked.cell(condition, profile, random.Random(1))


def test_a_cgroups_file_is_changed_in_treated_cells_only() -> None:
    asked = iolab.question(fio=JOB, treatment={"cpu.weight": [100, 1000]})
    assert (asked.treatment, asked.control) == ("cpu_weight", "outside")
    assert cells(asked).group is None
    assert cells(asked, cpu_weight=1000).group == Group({"cpu.weight": 1000})


def test_functions_and_tracepoints_are_counted() -> None:
    names = ["dget_parent", "block:block_rq_issue"]
    claim = "block_block_rq_issue_per_io ratio < 0.9"
    asked = iolab.question(fio=JOB, treatment={"cpu.weight": 1000}, count=names, claims=claim)
    assert cells(asked).count == names
    ends: Any = [
        {"at_ns": n * 10**9, "ios": n * 100, "calls": dict.fromkeys(names, n * 300)} for n in (1, 2)
    ]
    result: Any = {"first": ends[0], "last": ends[1]}
    assert asked.from_counters(result) == {
        "dget_parent_per_io": 3,
        "block_block_rq_issue_per_io": 3,
    }
    of_program = iolab.question(program=HOG, treatment={"cpu.weight": 1000}, count=names[:1])
    assert of_program.from_counters(result) == {"dget_parent_per_s": 300}
    for wrong in ("dget_parent", ["a b"], ["sched:"], ["/etc:passwd"]):
        with pytest.raises(UserError, match="count"):
            iolab.question(fio=JOB, treatment={"cpu.weight": 1000}, count=wrong)


def test_several_names_change_together() -> None:
    asked = iolab.question(
        fio=JOB, group={"cpu.weight": 50}, treatment={"cpuset.cpus": "0", "autogroup": 0}, cpus=2
    )
    assert cells(asked).group == Group({"cpu.weight": 50})
    treated = cells(asked, treatment="treated")
    assert treated.group == Group({"cpu.weight": 50, "cpuset.cpus": "0"})
    assert treated.settings == {"autogroup": 0}
    assert asked.factors["treatment"].in_words("treated") == "cpuset.cpus 0, autogroup 0"  # type: ignore[arg-type]


def test_an_option_of_fio_may_be_the_treatment_or_vary_besides() -> None:
    asked = iolab.question(fio=JOB, treatment={"cpu.idle": 1}, vary={"iodepth": [1, 64]})
    deep = cells(asked, iodepth=64).job.sections[0].options
    assert deep["iodepth"] == "64"
    assert deep["bs"] == "4k"
    assert asked.profiles["quick"].grids[0]["iodepth"] == (1, 64)


def test_an_antagonist_runs_beside_all_cells_or_is_the_treatment() -> None:
    hog = iolab.antagonist(program=HOG, group={"cpu.weight": 100})
    always = iolab.question(fio=JOB, antagonist=hog, treatment={"cpu.weight": 1000})
    assert cells(always).antagonist == hog
    asked = iolab.question(fio=JOB, antagonist=hog, treatment={"antagonist": True})
    assert asked.control == "alone"
    assert cells(asked).antagonist is None
    assert cells(asked, antagonist="treated").antagonist == hog


def test_a_claim_is_read_with_its_limit() -> None:
    asked = iolab.question(
        fio=JOB,
        treatment={"cpu.weight": [100, 1000]},
        claims=["iops ratio < 0.9", "switches_per_io difference > -1.5e0"],
    )
    first, second, third, _ = asked.claims
    assert (first.value, first.contrast, first.below, first.above) == ("iops", "ratio", 0.9, None)
    assert [c.condition["cpu_weight"] for c in (first, second)] == [100, 1000]
    assert (third.contrast, third.above) == ("difference", -1.5)


def test_the_same_question_has_the_same_name_and_another_has_another() -> None:
    first, again = (iolab.question(fio=JOB, treatment={"cpu.weight": 1000}) for _ in range(2))
    other = iolab.question(fio=JOB + " thinktime=5", treatment={"cpu.weight": 1000})
    assert first.name == again.name != other.name


@pytest.mark.parametrize(
    "asked",
    [
        {"fio": JOB, "treatment": {"cpu.weight": 1000}},
        {"fio": "[a]\nrw=read\n[b]\nrw=randwrite\nbs=8k\n", "treatment": {"io.weight": 10}},
        {"program": HOG, "treatment": {"cpu.max": "50000 100000"}},
        {"fio": JOB, "treatment": {"bs": ["4k", "64k"]}, "filesystem": "ext4"},
    ],
)
def test_the_agent_accepts_its_plans(asked: dict[str, Any]) -> None:
    made = iolab.question(**asked)
    for block in blocks_of(made, made.profiles["quick"], kernel="6.1", clock="virtual"):
        assert parse_plan(encode_plan(block.plan)) == block.plan


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"treatment": {"cpu.weight": 1}}, "give the work as fio=... or as program="),
        ({"fio": JOB, "program": HOG, "treatment": {"cpu.weight": 1}}, "one of them"),
        ({"fio": JOB, "treatment": {}}, "the treatment is empty"),
        ({"fio": JOB, "treatment": {"cpu.wieght": 1}}, "did you mean cpu.weight"),
        ({"fio": JOB, "treatment": {"cpu.weight": 0}}, "cpu.weight must be 1-10000, not 0"),
        ({"fio": JOB, "treatment": {"cpu.weight": []}}, "cpu.weight needs at least one level"),
        ({"fio": JOB, "treatment": {"cpu.weight": 1.5}}, "a whole number or a string, not 1.5"),
        ({"fio": JOB, "treatment": {"cpu.weight": [1, 2], "cpu.idle": 1}}, "change together"),
        ({"fio": JOB, "treatment": {"antagonist": True}}, "there is none: antagonist="),
        ({"fio": JOB, "treatment": {"runtime": 3}}, "use runtime_ms"),
        ({"fio": JOB, "treatment": {"bs": 1}, "vary": {"bs": [2]}}, "both varied and the treat"),
        ({"fio": JOB, "treatment": {"bs": 1}, "claims": "iops < 3"}, "a claim is like"),
        ({"fio": "rw", "treatment": {"cpu.weight": 1}}, "rw"),
        ({"program": ["no-such-program"], "treatment": {"cpu.weight": 1}}, "no-such-program"),
        ({"program": HOG, "treatment": {"bs": 1}}, "'bs' is nothing that can be changed"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(IolabError, match=says) as caught:
        iolab.question(**asked)
    assert "\n" not in str(caught.value)


def test_a_comparison_refuses_an_argument_that_a_question_lacks(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean treatment"):
        iolab.compare(fio=JOB, treatmnt={"cpu.weight": 1}, root=tmp_path)
    with pytest.raises(UserError, match="name a pathology, or give a question"):
        iolab.compare(root=tmp_path)


@pytest.mark.vm
def test_fios_own_parser_refuses_a_job_before_anything_boots(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fio refuses"):
        iolab.compare(fio="ioengine=libaio hipri", treatment={"cpu.weight": 1000}, root=tmp_path)
    assert not list(tmp_path.glob("raw/*"))


@pytest.mark.vm
def test_a_question_has_a_verdict(tmp_path: Path) -> None:
    # A hog of equal weight: fio sleeps half of the time, and is owed the core when it wakes.
    asked = iolab.compare(
        fio=JOB,
        antagonist=iolab.antagonist(program=HOG, group={"cpu.weight": 100}),
        treatment={"antagonist": True},
        kernel="6.1",
        boots=1,
        claims="iops ratio < 0.95",
        root=tmp_path,
        progress=False,
    )
    assert asked.cells["valid"].all()
    assert asked.verdict()["estimate"].between(0.4, 0.95).all()
    # fio began before its steady part, also beside the hog: both rates are of the same time.
    assert (asked.cells["steady_iops"] / asked.cells["iops"]).between(0.9, 1.1).all()
