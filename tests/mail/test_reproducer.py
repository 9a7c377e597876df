# SPDX-License-Identifier: MIT
"""The reproducer of a mail, run by a guest's shell, against the agent's own cells in that guest."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from iolab.pathology import get_pathology
from iolab.pathology.registry import measures_of_result
from iolab.store.counters import measures
from iolab.targets import vm
from iolab_agent.plan import Plan
from iolab_mail.reproducer import reproducer
from iolab_mail.sides import sides_of
from tests.support.guest import cell_of, start_in_guests
from tests.support.needs import wants

pytestmark = pytest.mark.vm

_PROGRAM = Path(__file__).parents[1] / "support" / "reproducer_in_guest.py"
# Until the ping-pong has begun, and a thread was migrated a few dozen times: ramp and runtime.
_LONG_MS = (400, 600)
_SIDES = ("treated", "control")
_SUFFIXES = {"": 1.0, "k": 1e3, "M": 1e6}


@dataclass
class Seen:
    """What the scripts printed, and what the agent measured, by side."""

    printed: dict[str, str]
    cells: dict[str, dict[str, float]]

    def number(self, side: str, pattern: str) -> float:
        found = re.search(pattern, self.printed[side])
        assert found is not None, self.printed[side]
        suffix = found[2] if found.re.groups > 1 else ""
        return float(found[1]) * _SUFFIXES[suffix]


def _run(
    name: str, claims: Sequence[str], folder: Path, times_ms: tuple[int, int] = (200, 300)
) -> list[Seen]:
    """Run both cells of some claims with the agent, then both sides of each script, in one boot."""
    pathology = get_pathology(name)
    ramp_ms, runtime_ms = times_ms
    profile = replace(pathology.profiles["quick"], ramp_ms=ramp_ms, runtime_ms=runtime_ms)
    scripts: dict[str, str] = {}
    pairs = []
    for number, claim in enumerate(map(pathology.claim, claims)):
        sides = sides_of(pathology, claim, profile, random.Random(1))
        script = reproducer(sides, claim.value, ramp_ms=ramp_ms, runtime_ms=runtime_ms)
        assert max(map(len, script.splitlines())) <= 72
        scripts |= {f"{side}-{number}": script for side in _SIDES}
        pairs.append((sides.treated, sides.control))
    assert pairs == pairs[:1] * len(pairs)
    machine = sides.machine
    cells = [replace(sides.treated, id="treated"), replace(sides.control, id="control")]
    plan = Plan("reproducer", machine.cpu, cells, list(machine.modules), machine.coalesced_timers)
    program = _PROGRAM.read_text().replace(
        "_SCRIPTS: dict[str, str] = {}", f"_SCRIPTS = {scripts!r}"
    )
    with wants("a virtual machine"):
        target = vm.prepare("6.1", "virtual", cpus=machine.cpus, memory_mib=machine.memory_mib)
    with pytest.MonkeyPatch.context() as patch:
        start_in_guests(patch, program)
        target.run(plan, folder / "results")
    ran: dict[str, Any] = json.loads((folder / "results" / "seen.json").read_text())
    for done in ran.values():
        assert done["code"] == 0, done
    results = {side: cell_of(folder / "results", side) for side in _SIDES}
    measured = {
        side: {
            **{k: v for k, v in measures(r, cpu=0).items() if isinstance(v, float)},
            **measures_of_result(pathology, r),
        }
        for side, r in results.items()
    }
    return [
        Seen({side: ran[f"{side}-{number}"]["out"] for side in _SIDES}, measured)
        for number in range(len(claims))
    ]


def test_fio_in_a_cgroup_and_outside(tmp_path: Path) -> None:
    # Both claims are about the same cells.
    seen, counted = _run("dio_kworker", ["IOPS lost", "two switches per I/O"], tmp_path, _LONG_MS)
    for side in _SIDES:
        cell = seen.cells[side]
        assert seen.number(side, r"IOPS=([\d.]+)(k?)") == pytest.approx(cell["iops"], rel=0.03)
        switches = seen.number(side, r"ctx=(\d+)") / seen.number(side, r"total=\d+,(\d+),")
        own = cell["fio_voluntary_per_io"] + cell["fio_involuntary_per_io"]
        assert switches == pytest.approx(own, abs=0.03)
        per_io = counted.number(side, r"(\d+) context switches per 100") / 100
        assert per_io == pytest.approx(cell["switches_per_io"], abs=0.1)
    assert seen.cells["treated"]["iops"] < 0.8 * seen.cells["control"]["iops"]


def test_reads_below_a_watched_directory(tmp_path: Path) -> None:
    claim = "a parent reference per read, libaio"
    (seen,) = _run("fsnotify_contention", [claim], tmp_path)
    for side in _SIDES:
        per_io = seen.number(side, r"(\d+) calls of dget_parent per 100") / 100
        assert per_io == pytest.approx(seen.cells[side]["dget_parent_per_io"], abs=0.02)
    assert seen.cells["treated"]["dget_parent_per_io"] == pytest.approx(1, abs=0.02)


def test_short_copies_under_an_io_scheduler(tmp_path: Path) -> None:
    (seen,) = _run("bfq_idling", ["throughput collapses, short dd"], tmp_path)
    for side in _SIDES:
        rate = seen.number(side, r"([\d.]+) writes/s")
        assert rate == pytest.approx(seen.cells[side]["iops"], rel=0.1)
    assert seen.cells["treated"]["iops"] < 0.5 * seen.cells["control"]["iops"]


def test_a_thread_that_is_migrated(tmp_path: Path) -> None:
    claim = "(b) 4 KiB at the report's settings"
    (seen,) = _run("aio_migration", [claim], tmp_path, _LONG_MS)
    rates = {
        side: seen.number(side, r"migrated (\d+) times") * 1000 / sum(_LONG_MS) for side in _SIDES
    }
    # A few dozen moves: even cells of 3 s differ by a factor of 1.5 from boot to boot (reference).
    assert 0.5 < rates["treated"] / seen.cells["treated"]["migrations_per_s"] < 2
    # Starting fio on another core than the pinned one moves it once.
    assert rates["control"] <= 5
    assert seen.cells["control"]["migrations_per_s"] == 0


def test_a_flush_worker_of_two_file_systems(tmp_path: Path) -> None:
    (seen,) = _run("writeback_kworker", ["ext4's worker pays more for a MiB"], tmp_path)
    for side in _SIDES:
        cost = seen.number(side, r"(\d+) us per MiB")
        assert cost == pytest.approx(seen.cells[side]["worker_us_per_mib"], rel=0.2)
