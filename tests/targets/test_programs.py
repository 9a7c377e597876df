# SPDX-License-Identifier: MIT
"""Programs and antagonists in a virtual machine."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from iolab.results import CellResult
from iolab.store.counters import measures
from iolab.targets.shipped import program
from iolab.targets.vm import VmTarget
from tests.support.guest import cell_of
from tests.support.plans import copies_cell, guest_plan, job, null_blk_cell

pytestmark = pytest.mark.vm

# A device that is never the limit: what is lost is lost to the CPU.
_FAST = {"name": "data", "kind": "null_blk", "size_mib": 64, "memory_backed": False}
_LEAVES = """
import os, time
open("junk", "w").write("junk")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
print("children:", os.getpid())
"""
_LOOKS = """
import os
from pathlib import Path
lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline")]
print(os.getcwd(), sorted(os.listdir()), sum(b"time.sleep" in x for x in lines) - 1)
print("groups", sum(p.is_dir() for p in Path("/sys/fs/cgroup").iterdir()))
"""


def _program(*argv: str, **different: Any) -> dict[str, Any]:
    return asdict(program(list(argv), **different))


def _busy(name: str, **different: Any) -> dict[str, Any]:
    """Return a cell whose job uses all that it gets of the core."""
    work = job(iodepth=8, batch=8, size_mib=32, ramp_ms=400, runtime_ms=500)
    cell = {"id": name, "devices": [_FAST], "filesystem": None, "job": work}
    return {**cell, "group": {"settings": {"cpu.weight": 100}}, **different}


def _antagonists() -> list[dict[str, Any]]:
    group = {"settings": {"cpu.weight": 100}}
    burn = {"program": _program("sh", "-c", "while :; do :; done"), "start_ms": 200}
    noise = {"job": job(size_mib=8, runtime_ms=3000, numjobs=2), "start_ms": -300}
    second = {"name": "noise", "kind": "null_blk", "size_mib": 64, "memory_backed": False}
    disk = {**copies_cell("x")["devices"][0], "scheduler": "none", "tunables": {}}
    late = {**burn, "program": _program("sleep", "0.1")}
    slow = job(ramp_ms=600, runtime_ms=700)
    # The copies last an eighth of a second, and fio takes half of one to start.
    early = {**noise, "start_ms": -600, "device": "noise"}
    return [
        _busy("alone"),
        _busy("beside", antagonist={**burn, "group": group}),
        _busy("late", antagonist=late),
        null_blk_cell("files", job=slow, antagonist={**noise, "group": group}),
        copies_cell("elsewhere", devices=[second, disk], antagonist=early),
    ]


def _programs() -> list[dict[str, Any]]:
    copied = r"copied, ([0-9.]+) s"
    reads = _program("dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=200", value=copied)
    writes = _program("dd", "if=/dev/zero", "of={device}", "bs=4k", "count=500", "oflag=direct")
    made = {
        "dd": reads,
        "writes": writes,
        "fixed": _program("sh", "-c", "while :; do :; done", runtime_ms=300, ramp_ms=50),
        "fails": _program("sh", "-c", "echo what was wrong; exit 3"),
        "endless": _program("sleep", "1000", limit_ms=200),
        "leaves": _program("python3", "-S", "-c", _LEAVES),
        "looks": _program("python3", "-S", "-c", _LOOKS),
    }
    return [
        {
            "id": name,
            "devices": [_FAST] if name == "writes" else [],
            "filesystem": None,
            "program": one,
        }
        for name, one in made.items()
    ]


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a block with each kind of antagonist and program."""
    folder = tmp_path_factory.mktemp("programs") / "results"
    target.run(guest_plan(*_antagonists(), *_programs(), coalesced_timers=False), folder)
    return folder


def _measured(results: Path, name: str) -> tuple[CellResult, dict[str, Any]]:
    cell = cell_of(results, name)
    assert cell["state"] == "done", cell.get("reason")
    return cell, measures(cell, cpu=0)


def test_an_antagonist_of_the_same_weight_takes_half_of_the_core(results: Path) -> None:
    alone, beside = (_measured(results, name)[1] for name in ("alone", "beside"))
    assert (alone["gate"], beside["gate"]) == ("", "")
    assert beside["iops"] / alone["iops"] == pytest.approx(0.5, abs=0.1)
    assert beside["antagonist_cpu"] == pytest.approx(0.5, abs=0.1)
    assert math.isnan(alone["antagonist_cpu"])
    assert beside["work_wait"] > alone["work_wait"] + 0.3
    cell = cell_of(results, "beside")
    ran = cell["antagonist"]["program"]
    assert ran["began_ns"] < cell["first"]["at_ns"] < cell["last"]["at_ns"] < ran["ended_ns"]
    assert ran["exit"] == -15
    assert {path.split("/")[4] for path in cell["cgroup"]} == {"iolab", "iolab-antagonist"}


def test_an_antagonist_that_ended_early_is_a_gate(results: Path) -> None:
    _, found = _measured(results, "late")
    assert "the antagonist was not running when the work was sampled" in found["gate"]
    assert "antagonist: the program ended with 0 before its time" in found["gate"]


@pytest.mark.parametrize("name", ["files", "elsewhere"])
def test_a_fio_job_as_antagonist_runs_until_the_work_has_ended(results: Path, name: str) -> None:
    cell, found = _measured(results, name)
    assert (found["valid"], found["gate"]) == (True, "")
    beside = cell["antagonist"]
    assert beside["began_ns"] < cell["first"]["at_ns"] < cell["last"]["at_ns"] < beside["ended_ns"]
    # It was to run for 3.2 s, and ended with the work.
    assert 0 < beside["fio"]["jobs"][0]["write"]["runtime"] < 3000
    assert found["antagonist_cpu"] > 0
    ios = cell["last"]["ios"] - cell["first"]["ios"]
    if name == "elsewhere":
        assert ios < beside["fio"]["jobs"][0]["write"]["total_ios"]


def test_a_program_is_measured_to_its_end(results: Path) -> None:
    cell, found = _measured(results, "dd")
    assert (found["valid"], found["gate"]) == (True, "")
    assert 0 < found["program_value"] < found["seconds"]
    assert found["fio_cpu"] == pytest.approx(1, abs=0.15)
    (task,) = [task for task in cell["last"]["tasks"].values() if task["job"]]
    # The task has the program's name, not its loader's, and the kernel's two sums agree.
    assert task["comm"] == "dd"
    assert task["ran_ns"] == pytest.approx(cell["program"]["ran_ns"], rel=0.01)


def test_a_program_writes_the_cells_device(results: Path) -> None:
    cell, found = _measured(results, "writes")
    assert found["valid"]
    assert found["ios"] == 500
    assert "500+0 records out" in cell["program"]["output"]


def test_a_program_runs_for_a_fixed_time(results: Path) -> None:
    cell, found = _measured(results, "fixed")
    assert found["valid"]
    assert found["runtime_s"] == pytest.approx(0.35, abs=0.02)
    assert found["fio_cpu"] == pytest.approx(1, abs=0.05)
    assert (cell["program"]["exit"], math.isnan(found["seconds"])) == (-15, True)


def test_a_program_that_fails_or_does_not_end_says_so(results: Path) -> None:
    _, found = _measured(results, "fails")
    assert found["gate"] == "the program ended with 3: what was wrong"
    endless = cell_of(results, "endless")
    assert endless["state"] == "failed"
    assert endless["reason"] == "the program did not end within 200 ms"


def test_nothing_is_left_of_a_program(results: Path) -> None:
    _, found = _measured(results, "leaves")
    assert found["valid"]
    looked, _ = _measured(results, "looks")
    assert looked["program"]["output"] == "/run/iolab/program [] 0\ngroups 0\n"
