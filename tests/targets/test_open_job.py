# SPDX-License-Identifier: MIT
"""Jobs with any options of fio, in cgroups with several controllers, in a virtual machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iolab.store.counters import histogram, measures
from iolab.targets.vm import VmTarget, prepare
from tests.support.guest import cell_of, start_in_guests
from tests.support.needs import wants
from tests.support.plans import null_blk_cell, open_job, plan

pytestmark = pytest.mark.vm

_PROGRAM = Path(__file__).parents[1] / "support" / "groups_in_guest.py"
_RAW = {"name": "data", "kind": "null_blk", "size_mib": 512, "irqmode": 2, "completion_ns": 10_000}
_MIXED = {"rw": "randrw", "bs": "8k", "rwmixread": "70", "ioengine": "libaio", "iodepth": "16"}
_MIXED |= {"direct": "1"}
_LOG = {"rw": "write", "bs": "4k", "direct": "1", "numjobs": "2", "rate_iops": "100"}
_SECTIONS = [{"name": "mixed", "options": _MIXED}, {"name": "log", "options": _LOG}]
# An option of another engine, which only fio knows.
_WRONG = {"name": "a", "options": {"ioengine": "libaio", "hipri": ""}}
_SETTINGS = {"cpuset.cpus": "1", "cpu.weight": 500, "cpu.max": "50000 100000"}


@pytest.fixture(scope="module")
def target() -> VmTarget:
    """Kernel 6.1 on two cores: a cpuset of one of them is seen."""
    with wants("a virtual machine"):
        return prepare("6.1", "virtual", cpus=2, memory_mib=1024)


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a block, and what `_PROGRAM` saw of it."""
    made = open_job(*_SECTIONS, runtime_ms=600, cpus=[1])
    burn = {"name": "burn", "options": {"ioengine": "cpuio", "cpuload": "100"}}
    alone = {"name": "mixed", "options": _MIXED}
    cells = [
        null_blk_cell("grouped", group={"settings": _SETTINGS}, job=made),
        null_blk_cell("shared", job={**made, "shared_file": True}),
        null_blk_cell("raw", devices=[_RAW], filesystem=None, job=open_job(alone)),
        null_blk_cell("burnt", job=open_job(burn)),
        null_blk_cell("weighted", group={"settings": {"io.weight": 200}}, job=open_job(alone)),
        null_blk_cell("lacking", group={"settings": {"io.bfq.weight": 200}}, job=open_job(alone)),
        null_blk_cell("wrong", job=open_job(_WRONG)),
    ]
    folder = tmp_path_factory.mktemp("open") / "results"
    with pytest.MonkeyPatch.context() as patch:
        start_in_guests(patch, _PROGRAM.read_text())
        # Without bfq, which brings a file of its own.
        target.run(plan(*cells, coalesced_timers=False), folder)
    return folder


def _names(cell: Any) -> list[str]:
    return [job["jobname"] for job in cell["fio"]["jobs"]]


def test_all_sections_run_and_are_counted_together(results: Path) -> None:
    cell = cell_of(results, "grouped")
    assert (cell["state"], cell.get("reason"), cell["gates"]) == ("done", None, [])
    assert _names(cell) == ["mixed", "log", "log"]
    sides = [job[side] for job in cell["fio"]["jobs"] for side in ("read", "write")]
    reads, writes = sides[0]["total_ios"], sides[1]["total_ios"]
    assert reads / (reads + writes) == pytest.approx(0.7, abs=0.05)
    found = measures(cell, cpu=1)
    assert found["valid"]
    assert found["ios"] == sum(side["total_ios"] for side in sides)
    # Of each process fio counts what it submits, and what completes: those in flight differ.
    assert found["ios"] == pytest.approx(sum(count for _, count in histogram(cell)), abs=16 + 2)
    # fio's own rates, in a second program's arithmetic.
    assert found["iops"] == pytest.approx(sum(side["iops"] for side in sides), rel=0.02)
    # rate_iops: each of the two writers does 100 a second.
    assert [side["iops"] for side in sides[3::2]] == pytest.approx([100, 100], rel=0.1)


def test_the_kernel_has_the_settings_while_the_job_runs(
    results: Path, seen: dict[str, Any]
) -> None:
    assert len(seen["running"]["grouped"]) == 2
    for look in seen["running"]["grouped"]:
        assert look["files"] == {
            "cpu.weight": "500",
            "cpu.max": "50000 100000",
            "cpuset.cpus": "1",
            "cpuset.cpus.effective": "1",
            "cgroup.controllers": "cpuset cpu",
        }
        jobs = {pid: found for pid, found in look["processes"].items() if pid != look["parent"]}
        assert [found["cgroup"] for found in jobs.values()] == ["/iolab"] * 3
        assert [found["cores"] for found in jobs.values()] == ["1"] * 3
    told = cell_of(results, "grouped")["cgroup"]
    assert {path.rpartition("/iolab/")[2] for path in told} >= set(_SETTINGS)


def test_a_weight_of_io_is_read_back(results: Path) -> None:
    cell = cell_of(results, "weighted")
    assert (cell["state"], cell.get("reason"), cell["gates"]) == ("done", None, [])
    (weight,) = (v for path, v in cell["cgroup"].items() if path.endswith("/iolab/io.weight"))
    assert weight == "default 200"


def test_a_limit_of_the_cpu_limits(results: Path) -> None:
    limited, free = (measures(cell_of(results, name), cpu=1) for name in ("grouped", "shared"))
    # Half a core, to a period of 100 ms; it was 0.52 of 0.88.
    assert limited["fio_cpu"] <= 0.55
    assert free["fio_cpu"] > 0.7
    assert limited["iops"] < 0.7 * free["iops"]


def test_nothing_of_a_group_is_left(seen: dict[str, Any]) -> None:
    assert set(seen["left"]) >= {"grouped", "weighted", "lacking"}
    for before, after in seen["left"].values():
        assert after == before


def test_one_file_for_all_and_the_device_itself(results: Path) -> None:
    for name, processes in (("shared", 3), ("raw", 1)):
        cell = cell_of(results, name)
        assert (cell["state"], cell.get("reason"), cell["gates"]) == ("done", None, [])
        assert len(_names(cell)) == processes
    names = {job["job options"]["filename"] for job in cell_of(results, "shared")["fio"]["jobs"]}
    assert names == {"/run/iolab/mnt/iolab.0"}


def test_what_cannot_be_measured_says_why(results: Path) -> None:
    assert measures(cell_of(results, "burnt"), cpu=0)["gate"] == "no I/O was done"
    # Only the I/O scheduler brings the file, and this device has none.
    lacking = cell_of(results, "lacking")
    assert lacking["state"] == "cannot run here"
    assert lacking["reason"] == "the io controller has no io.bfq.weight here"
    wrong = cell_of(results, "wrong")
    assert wrong["state"] == "failed"
    assert "unrecognized option '--hipri'" in wrong["reason"]
