# SPDX-License-Identifier: MIT
from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import iolab
from iolab.blocks import encode_plan
from iolab.design import blocks_of
from iolab.experiment.compare import _profile as profile_of
from iolab.pathology.base import Pathology
from iolab.pathology.factors import Condition
from iolab_agent.plan import Device, Group, OpenJob
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import IolabError, UserError

JOB = "rw=randread bs=4k iodepth=1 ioengine=psync direct=1"
HOG = ["python3", "-c", "while True: pass"]
TWO = "[a]\nrw=randread\nbs=4k\n[b]\nrw=randwrite\nbs=8k\n"
BFQ = Device("d", "null_blk", 512, scheduler="bfq")


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


def test_sections_one_after_another_are_levels_of_a_factor() -> None:
    suite = "[a]\nrw=read\nsize=8m\nstonewall\n[b]\nrw=write\nnumjobs=2\nsize=8m\nstonewall\n"
    asked = iolab.question(fio=suite, treatment={"cpu.weight": 1000})
    assert asked.profiles["quick"].grids[0]["section"] == ("a", "b")
    assert [s.name for s in cells(asked, section="b").job.sections] == ["b"]
    assert {row.option for row in asked.translation} >= {"stonewall", "runtime"}
    depths = "".join(f"[s{n}]\nrw=read\niodepth={n}\nstonewall\n" for n in (1, 4))
    asked = iolab.question(fio=depths, treatment={"cpu.weight": 1000})
    assert asked.profiles["quick"].grids[0]["iodepth"] == (1, 4)
    assert cells(asked, iodepth=4).job.sections[0].options["iodepth"] == "4"


def test_a_job_on_devices_has_no_file_system_and_as_many_devices() -> None:
    for job, names in (
        ("filename=/dev/sda", ["data"]),
        ("filename=/dev/a:/dev/b", ["data", "data2"]),
    ):
        cell = cells(iolab.question(fio=f"rw=read {job}", treatment={"cpu.weight": 1000}))
        assert cell.filesystem is None
        assert [device.name for device in cell.devices] == names
    with pytest.raises(UserError, match="names 2 devices"):
        iolab.question(
            fio="rw=read filename=/dev/a:/dev/b",
            treatment={"cpu.weight": 1},
            device=Device("one", "null_blk", 64),
        )


def test_a_fio_of_the_users_own_is_shipped() -> None:
    asked = iolab.question(fio=JOB, fio_binary="/bin/true", treatment={"cpu.weight": 1000})
    binary = cells(asked).job.binary
    assert binary.argv[-1].endswith("/true")
    assert len(binary.files) > 1
    plan = next(iter(blocks_of(asked, asked.profiles["quick"], kernel="6.1", clock="virtual"))).plan
    assert parse_plan(encode_plan(plan)) == plan


def test_an_antagonist_runs_beside_all_cells_or_is_the_treatment() -> None:
    hog = iolab.antagonist(program=HOG, group={"cpu.weight": 100})
    always = iolab.question(fio=JOB, antagonist=hog, treatment={"cpu.weight": 1000})
    assert cells(always).antagonist == hog
    asked = iolab.question(fio=JOB, antagonist=hog, treatment={"antagonist": True})
    assert asked.control == "alone"
    assert cells(asked).antagonist is None
    assert cells(asked, antagonist="treated").antagonist == hog


@pytest.mark.parametrize(
    ("name", "level", "asked", "part", "made"),
    [
        ("scheduler", "bfq", {}, lambda c: c.devices[0].scheduler, "bfq"),
        (
            "scheduler.low_latency",
            0,
            {"device": BFQ},
            lambda c: c.devices[0].tunables,
            {"low_latency": 0},
        ),
        ("completion_ns", 99, {}, lambda c: c.devices[0].completion_ns, 99),
        ("rotational", True, {}, lambda c: c.devices[0].rotational, True),
        ("device.size_mib", 600, {}, lambda c: c.devices[0].size_mib, 600),
        (
            "device",
            "brd",
            {"device": Device("d", "null_blk", 512)},
            lambda c: c.devices[0].kind,
            "brd",
        ),
        ("filesystem", None, {}, lambda c: c.filesystem, None),
        ("filesystem", "ext4", {}, lambda c: c.filesystem.kind, "ext4"),
        ("mkfs", "-m bigtime=0", {}, lambda c: c.filesystem.mkfs, ["-m", "bigtime=0"]),
        (
            "mount",
            "noatime,norelatime",
            {},
            lambda c: c.filesystem.mount,
            ["noatime", "norelatime"],
        ),
        (
            "table",
            "0 131072 linear {data} 9",
            {
                "device": [
                    Device("data", "null_blk", 512),
                    Device("d", "dm", 64, table="0 131072 linear {data} 0"),
                ],
                "filesystem": None,
            },
            lambda c: c.devices[-1].table,
            "0 131072 linear {data} 9",
        ),
        ("worker_nice", -20, {}, lambda c: c.worker_nice, -20),
        ("size_mib", 32, {}, lambda c: c.job.size_mib, 32),
        ("layout", "unwritten", {}, lambda c: c.job.layout, "unwritten"),
        ("b.iodepth", 3, {"fio": TWO}, lambda c: c.job.sections[1].options.get("iodepth"), "3"),
    ],
)
def test_anything_of_a_cell_may_be_the_treatment_or_vary(
    name: str, level: object, asked: dict[str, Any], part: Callable[[Any], object], made: object
) -> None:
    given = {"fio": JOB, **asked}
    treated = iolab.question(**given, treatment={name: level})
    assert part(cells(treated)) != made
    column = treated.treatment
    (changed,) = treated.profiles["quick"].grids[0][column]
    assert part(cells(treated, **{column: changed})) == made
    varied = iolab.question(**given, vary={name: [level]}, treatment={"cpu.weight": 1000})
    assert part(cells(varied)) == made


def test_the_antagonists_cgroup_and_options_may_be_the_treatment() -> None:
    beside = iolab.antagonist(fio="rw=read bs=64k iodepth=4", group={"cpu.weight": 100})
    asked = iolab.question(fio=JOB, antagonist=beside, treatment={"antagonist.cpu.max": "5000"})
    treated = cells(asked, antagonist_cpu_max="5000").antagonist
    assert treated.group == Group({"cpu.weight": 100, "cpu.max": "5000"})
    asked = iolab.question(fio=JOB, antagonist=beside, treatment={"antagonist.iodepth": 9})
    assert cells(asked, antagonist_iodepth=9).antagonist.job.sections[0].options["iodepth"] == "9"


def test_an_intervention_may_be_the_treatment_or_vary() -> None:
    levels = ["NO_DELAY_DEQUEUE", "preempt=full"]
    asked = iolab.question(fio=JOB, treatment={"intervention": levels})
    (block,) = blocks_of(asked, asked.profiles["quick"], kernel="6.12", clock="virtual")[:1]
    changed = {(cell.preemption, *cell.features.items()) for cell in block.plan.cells}
    assert changed == {("",), ("", ("DELAY_DEQUEUE", False)), ("full",)}
    varied = iolab.question(
        fio=JOB, treatment={"cpu.weight": 9}, vary={"intervention": ["none", "boot.threadirqs"]}
    )
    blocks = blocks_of(varied, varied.profiles["quick"], kernel="6.12", clock="virtual")
    assert {tuple(block.plan.boot_options) for block in blocks} == {(), ("threadirqs",)}


@pytest.mark.parametrize(
    ("treatment", "machines"),
    [
        ({"cpus": 2}, {(1, (), "6.1"), (2, (), "6.1")}),
        ({"intervention": "boot.threadirqs"}, {(1, (), "6.1"), (1, ("threadirqs",), "6.1")}),
        ({"kernel": "6.12"}, {(1, (), "6.1"), (1, (), "6.12")}),
    ],
)
def test_what_is_fixed_for_a_boot_has_machines_of_its_own(
    treatment: dict[str, object], machines: set[object]
) -> None:
    asked = iolab.question(fio=JOB, treatment=treatment)
    assert asked.apart
    profile = asked.profiles["quick"]
    blocks = blocks_of(asked, profile, kernel="6.1", clock="virtual")
    assert len({block.plan.block for block in blocks}) == len(blocks) == 2 * profile.boots
    found = {(b.machine.cpus, tuple(b.plan.boot_options), b.kernel) for b in blocks}
    assert found == machines
    roles = [{cell.role for cell in block.cells if not cell.aa} for block in blocks]
    assert sorted(map(list, roles)) == [["control"], ["control"], ["treatment"], ["treatment"]]
    # The control alone is measured twice in a boot.
    assert sum(cell.aa for block in blocks for cell in block.cells) == 2 * profile.boots


def test_a_scheduler_that_varies_has_its_module_in_every_boot() -> None:
    asked = iolab.question(fio=JOB, treatment={"iodepth": 2}, vary={"scheduler": ["none", "bfq"]})
    assert "bfq" in asked.machine({}).modules


def test_a_claim_is_judged_at_every_level_that_varies() -> None:
    asked = iolab.question(
        fio=JOB,
        treatment={"cpu.weight": [100, 1000]},
        vary={"iodepth": [4, 16], "bs": "8k"},
        claims="iops ratio < 0.9",
    )
    conditions = [(c.condition["cpu_weight"], c.condition["iodepth"]) for c in asked.claims]
    assert sorted(conditions) == [(100, 4), (100, 16), (1000, 4), (1000, 16)]
    assert all("bs 8k" in claim.statement for claim in asked.claims)
    assert len({claim.name for claim in asked.claims}) == 4


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
        {"fio": JOB, "treatment": {"bs": ["8k", "64k"]}, "filesystem": "ext4"},
        {"fio": JOB, "treatment": {"bs": ["8k", "64k"]}, "filesystem": "tmpfs"},
    ],
)
def test_the_agent_accepts_its_plans(asked: dict[str, Any]) -> None:
    made = iolab.question(**asked)
    for block in blocks_of(made, made.profiles["quick"], kernel="6.1", clock="virtual"):
        assert parse_plan(encode_plan(block.plan)) == block.plan


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"treatment": {"cpu.weight": 1}}, "either fio=... or program="),
        ({"fio": JOB, "program": HOG, "treatment": {"cpu.weight": 1}}, "either fio="),
        ({"fio": JOB, "treatment": {}}, "the treatment is empty"),
        ({"fio": JOB, "treatment": {"cpu.wieght": 1}}, "did you mean cpu.weight"),
        ({"fio": JOB, "treatment": {"cpu.weight": 0}}, "cpu.weight must be 1-10000, not 0"),
        ({"fio": JOB, "treatment": {"cpu.weight": []}}, "cpu.weight needs at least one level"),
        ({"fio": JOB, "treatment": {"cpu.weight": 1.5}}, "an integer or a string, not 1.5"),
        ({"fio": JOB, "treatment": {"cpu.weight": [1, 2], "cpu.idle": 1}}, "change together"),
        ({"fio": JOB, "treatment": {"antagonist": True}}, "antagonist=..."),
        ({"fio": JOB, "treatment": {"runtime": 3}}, "runtime_ms"),
        ({"fio": JOB, "treatment": {"bs": 1}, "vary": {"bs": [2]}}, "both varies and is the treat"),
        ({"fio": JOB, "treatment": {"bs": 1}, "claims": "iops < 3"}, "write a claim as"),
        ({"fio": JOB, "treatment": {"bs": 1}, "claims": "iops ratio < 1.2.3"}, "write a claim as"),
        ({"fio": JOB, "treatment": {"bs": 1}, "claims": "iops ratio < 1__0"}, "write a claim as"),
        ({"fio": "rw='", "treatment": {"cpu.weight": 1}}, "quotation"),
        ({"program": ["no-such-program"], "treatment": {"cpu.weight": 1}}, "no-such-program"),
        ({"program": HOG, "treatment": {"bs": 1}}, "'bs' cannot be changed"),
        ({"fio": JOB, "treatment": {"bs": 1}, "filesystem": "ntfs"}, "file system 'ntfs'"),
        ({"fio": JOB, "treatment": {"bs": 1}, "device": Device("d", "floppy", 64)}, "'floppy'"),
        ({"fio": JOB, "treatment": {"NO_GENTLE": True}}, "'intervention': 'NO_GENTLE'"),
        ({"fio": JOB, "treatment": {"preempt": "full"}}, "'intervention': 'preempt=full'"),
        ({"fio": JOB, "treatment": {"iodepth": 1}}, "level of the control"),
        ({"fio": JOB, "treatment": {"bs": [4096, 512]}}, "level of the control"),
        ({"fio": JOB, "treatment": {"scheduler": "none"}}, "level of the control"),
        ({"fio": JOB, "treatment": {"intervention": "none"}}, "level of the control"),
        ({"fio": JOB, "treatment": {"cpus": 1}}, "level of the control"),
        ({"fio": JOB, "treatment": {"cpu.max": "max"}, "group": {"cpu.max": "max"}}, "control"),
        ({"fio": JOB, "treatment": {"scheduler.low_latency": 0}}, "has none"),
        ({"fio": JOB, "treatment": {"antagonist.cpu.max": "max"}}, "antagonist="),
        ({"fio": JOB, "treatment": {"a.iodepth": 2}}, "cannot be changed"),
        ({"fio": JOB, "treatment": {"kernel": "6.1", "iodepth": 2}}, "only change"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "vary": {"kernel": ["6.1"]}}, "kernel="),
        ({"fio": JOB, "treatment": {"kernel": "9.99"}}, "9.99"),
        (
            {"fio": JOB, "treatment": {"iodepth": 2}, "claims": "latncy_p99_ns ratio < 1"},
            "did you mean latency_p99_ns",
        ),
        ({"program": HOG, "treatment": {"worker_nice": 5}}, "needs a fio job"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "filesystem": "zfs"}, "zfs"),
        ({"fio": JOB, "treatment": {"filesystem": "zfs"}}, "zfs"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "device": Device("d", "tape", 512)}, "tape"),
        (
            {"fio": JOB, "treatment": {"mount": "noatime"}, "filesystem": None},
            "needs a file system",
        ),
        ({"fio": 5, "treatment": {"iodepth": 2}}, "fio must be"),
        ({"fio": JOB, "treatment": "iodepth=2"}, "treatment must be"),
        ({"fio": JOB, "treatment": {5: 1}}, "treatment must be"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "vary": ["bs"]}, "vary must be"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "claims": [5]}, "claims must be"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "device": "nvme0n1"}, "device must be"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "size_mib": "64"}, "size_mib must be"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "size_mib": 0}, "size_mib must be at least 1"),
        ({"fio": JOB, "treatment": {"iodepth": 2}, "value": "(a)"}, "value"),
        ({"fio": JOB, "treatment": {"bs": "8k"}, "vary": {"blocksize": ["16k"]}}, "both varies"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(IolabError, match=says) as caught:
        iolab.question(**asked)
    assert "\n" not in str(caught.value)


def test_a_value_that_fio_refuses_is_the_only_cause_that_is_named() -> None:
    for name, value in (("iodepth", 0), ("runtime", 3), ("nrfiles", 8), ("ioengine", "foo")):
        with pytest.raises(UserError, match=name) as caught:
            iolab.question(fio=JOB, treatment={name: value})
        assert "cannot be changed" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("verify", "crc32c"), ("verify_pattern", "0xab")])
def test_checksums_that_are_the_treatment_are_written_and_not_verified(
    name: str, value: str
) -> None:
    writer = JOB.replace("randread", "randwrite")
    made = iolab.question(fio=writer, treatment={name: value})
    (block, *_) = blocks_of(made, made.profiles["quick"], kernel="6.1", clock="virtual")
    verified = [
        section.options.get("do_verify")
        for cell in block.plan.cells
        if isinstance(cell.job, OpenJob)
        for section in cell.job.sections
        if name in section.options
    ]
    assert set(verified) == {"0"}
    # fio would fail: there is nothing on a new device to compare with.
    with pytest.raises(UserError, match=f"{name} .* level of the control"):
        iolab.question(fio=JOB, treatment={name: value})


def test_what_is_on_or_off_may_be_true_or_false() -> None:
    def quick(level: object) -> Any:
        made = iolab.question(fio=JOB, treatment={"thread": level}, name="asked")
        return blocks_of(made, made.profiles["quick"], kernel="6.1", clock="virtual")

    assert quick(True) == quick(1)
    assert "direct" in iolab.question(fio="rw=read direct=1", treatment={"direct": False}).factors


def test_a_long_parameter_of_the_command_line_leaves_a_name_that_blocks_may_have() -> None:
    made = iolab.question(fio=JOB, treatment={"intervention": "boot.transparent_hugepage=never"})
    blocks = blocks_of(made, made.profiles["quick"], kernel="6.12", clock="virtual")
    assert len({block.plan.block for block in blocks}) == len(blocks)


def test_a_comparison_measures_every_level() -> None:
    levels = {"cpu.weight": [100, 1000]}
    asked = iolab.question(fio=JOB, treatment=levels, vary={"iodepth": [4, 16]})
    profile = profile_of(asked, boots=2, record=False, levels={"iodepth": [4, 16]})
    assert profile.grids[0]["cpu_weight"] == (100, 1000)
    assert profile_of(asked, boots=2, record=False, levels={}).grids == profile.grids


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"fio": JOB, "cpus": ["0"]}, "cpus must be"),
        ({"fio": JOB, "size_mib": "4"}, "size_mib must be"),
        ({"fio": JOB, "group": 5}, "group must be"),
        ({"program": "ls"}, "program must be a list"),
    ],
)
def test_what_an_antagonist_cannot_be_is_one_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        iolab.antagonist(**given)


def test_the_first_phase_is_the_control_of_another_one() -> None:
    job = "fio --rw=read --bs=4k --name=each --name=one --stonewall --filename=test"
    asked = iolab.question(fio=job, treatment={"section": "one"})
    names = [[s.name for s in cells(asked, section=level).job.sections] for level in (None, "one")]
    assert names == [["each"], ["one"]]
    with pytest.raises(UserError, match="section each is the level of the control"):
        iolab.question(fio=job, treatment={"section": "each"})


def test_several_kernels_may_be_the_treatment() -> None:
    levels = ["6.1", "6.12"]
    asked = iolab.question(fio=JOB, treatment={"kernel": levels})
    ((kernel,),) = asked.profiles["quick"].kernels
    assert kernel not in levels


def test_a_kernel_is_compared_with_one_other(tmp_path: Path) -> None:
    for kernels in ("6.12", ["5.10", "6.1"]):
        with pytest.raises(UserError, match="one other kernel"):
            iolab.compare(fio=JOB, treatment={"kernel": "6.12"}, kernel=kernels, root=tmp_path)


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
        runtime_ms=450,
        root=tmp_path,
        progress=False,
    )
    assert asked.cells["valid"].all()
    assert asked.verdict()["estimate"].between(0.4, 0.95).all()
    # fio began before its steady part, also beside the hog: both rates are of the same time.
    assert (asked.cells["steady_iops"] / asked.cells["iops"]).between(0.9, 1.1).all()


def test_a_translation_says_where_the_io_goes_unless_the_question_does() -> None:
    def rows(**asked: Any) -> dict[str, str]:
        made = iolab.question(fio=JOB, **{"treatment": {"cpu.weight": 1000}, **asked})
        found = {row.option: row.measured for row in made.translation}
        return {name: found[name] for name in ("device", "filesystem") if name in found}

    assert list(rows()) == ["device", "filesystem"]
    assert "us an I/O" not in rows(vary={"completion_ns": [10_000, 20_000]})["device"]
    assert "MiB" not in rows(vary={"device.size_mib": [512, 1024]})["device"]
    assert list(rows(device=Device("d", "null_blk", 512))) == ["filesystem"]
    assert list(rows(treatment={"layout": "unwritten"})) == ["device"]
    assert list(rows(vary={"filesystem": ["ext4"]})) == ["device"]
    assert "growing" in rows(layout="growing")["filesystem"]
