# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icountvm import guest
from icountvm.qemu import Boot, GuestError, QemuMachine
from icountvm.snapshots import Snapshot, run_restored
from iolab.store.counters import histogram, measures
from iolab.targets.vm import VmTarget
from iolab_base.errors import IolabError
from tests.support.guest import IN_GUEST, start_in_guests
from tests.support.plans import copies_cell, guest_plan, job, null_blk_cell
from tests.support.processes import alive, child_environment, wait_until

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def quiet(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the default plan, on a machine that does nothing else for us."""
    folder = tmp_path_factory.mktemp("quiet") / "results"
    target.run(guest_plan(), folder)
    return folder


def _machines_of(parent: int) -> list[int]:
    """Return the QEMU processes that a process started."""
    machines = []
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        # A short child may have ended since it was listed.
        with suppress(OSError):
            if b"\0-nodefaults\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                machines.append(int(pid))
    return machines


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    assert _machines_of(os.getpid()) == []


def _cells(folder: Path) -> dict[str, Any]:
    return {p.stem: json.loads(p.read_text()) for p in sorted((folder / "cells").iterdir())}


def test_a_plan_runs_and_its_results_come_back(quiet: Path) -> None:
    facts = json.loads((quiet / "facts.json").read_text())
    assert facts["scheduler"] == "CFS"
    assert facts["kernel_release"].startswith("6.1.")
    assert facts["high_resolution_timers"] is False
    cells = _cells(quiet)
    assert list(cells) == ["inside", "outside"]
    for result in cells.values():
        found = measures(result, cpu=0)
        assert (found["valid"], found["gate"]) == (True, "")
        assert result["fio"]["jobs"][0]["error"] == 0
        # 32 at a time, completed once a tick of 4 ms: the device's limit is 8000 a second.
        assert 6000 < found["iops"] <= 8000
        assert sum(count for _, count in histogram(result)) == found["ios"]
        assert 0 < found["fio_cpu"] + found["kworker_cpu"] <= 1 - found["idle"] <= 1


def test_a_loaded_machine_measures_the_same_bytes(
    target: VmTarget, quiet: Path, tmp_path: Path
) -> None:
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in os.sched_getaffinity(0)
    ]
    try:
        target.run(guest_plan(), tmp_path / "loaded")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    for name in ("cells/inside.json", "cells/outside.json", "facts.json"):
        assert (tmp_path / "loaded" / name).read_bytes() == (quiet / name).read_bytes()


@pytest.fixture(scope="module")
def seen(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tests/support/in_guest.py saw of a block with every kind of device and file system."""
    loop = {"name": "disk", "kind": "loop", "size_mib": 64, "scheduler": "bfq"}
    scsi = {
        "name": "disk",
        "kind": "scsi_debug",
        "size_mib": 64,
        "completion_ns": 10_000,
        "scheduler": "mq-deadline",
    }
    on_disk = {"kind": "ext4", "device": "disk"}
    cells = [
        null_blk_cell("kill", 3000),
        null_blk_cell("killoutside"),
        null_blk_cell("loop", devices=[loop], filesystem=on_disk, job=job(numjobs=2)),
        null_blk_cell("scsi", 200, devices=[scsi], filesystem=on_disk),
        copies_cell("copies"),
        copies_cell("device", filesystem=None, group=None),
        # The device is too small for the files: the cell fails, the block goes on.
        null_blk_cell("small", devices=[loop], filesystem=on_disk, job=job(size_mib=100)),
        null_blk_cell("last"),
    ]
    folder = tmp_path_factory.mktemp("seen") / "results"
    with pytest.MonkeyPatch.context() as patch:
        start_in_guests(patch, IN_GUEST.read_text())
        target.run(guest_plan(*cells), folder)
    found: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    found["cells"] = _cells(folder)
    found["facts"] = json.loads((folder / "facts.json").read_text())
    return found


def test_settings_hold_while_a_cell_runs(seen: dict[str, Any]) -> None:
    running = {name: styles[-1] for name, styles in seen["running"].items()}
    assert all(styles == [styles[0]] * 2 for styles in seen["running"].values())
    assert {name: (x["cgroup"], x["weight"]) for name, x in running.items()} == {
        "kill": ("/iolab", 3000),
        "killoutside": ("/", None),
        "loop": ("/", None),
        "scsi": ("/iolab", 200),
        "last": ("/", None),
    }
    assert {name: x["cores"] for name, x in running.items()} == {
        "kill": ["0"],
        "killoutside": ["0"],
        "loop": ["0", "0"],
        "scsi": ["0"],
        "last": ["0"],
    }
    assert {name: x["file system"] for name, x in running.items()} == {
        "kill": "xfs",
        "killoutside": "xfs",
        "loop": "ext4",
        "scsi": "ext4",
        "last": "xfs",
    }
    assert "[bfq]" in running["loop"]["scheduler"]
    assert "[mq-deadline]" in running["scsi"]["scheduler"]
    assert "[none]" in running["kill"]["scheduler"]
    assert running["loop"]["device"].startswith("loop")
    assert running["scsi"]["device"].startswith("sd")


def test_each_copy_is_in_its_cgroup_and_on_its_core(seen: dict[str, Any]) -> None:
    assert seen["copies"] == [
        {"cell": cell, "cgroup": group, "cores": "0"}
        for cell, group in (("copies", "/iolab"), ("device", "/"))
        for _ in range(copies_cell(cell)["copies"]["processes"])
    ]


def test_every_cell_leaves_the_guest_clean(seen: dict[str, Any]) -> None:
    assert seen["left"] == {
        name: {}
        for name in ("kill", "killoutside", "loop", "scsi", "copies", "device", "small", "last")
    }


def test_a_cell_that_fails_says_why_and_the_next_one_runs(seen: dict[str, Any]) -> None:
    states = {name: cell["state"] for name, cell in seen["cells"].items()}
    assert states.pop("small") == "failed"
    assert set(states.values()) == {"done"}
    assert "No space left on device" in seen["cells"]["small"]["reason"]


def test_what_a_killed_agent_left_is_put_back(seen: dict[str, Any]) -> None:
    killed = seen["killed"]
    assert [k["failures"] for k in killed] == [[]] * len(killed)
    assert [k["left"] for k in killed] == [{}] * len(killed)
    # The kills did not all come too early: a running job was among what they interrupted.
    assert any({"mounts", "programs", "cgroups"} <= set(k["changed by the kill"]) for k in killed)


def test_counters_count_known_work(seen: dict[str, Any]) -> None:
    first, last = seen["observed"]["first"], seen["observed"]["last"]
    assert last["ios"] - first["ios"] == 10
    assert last["at_ns"] - first["at_ns"] >= 200_000_000
    assert last["context_switches"] > first["context_switches"]
    elapsed = last["at_ns"] - first["at_ns"]
    assert 0.9 * elapsed < last["cpu"]["running_ns"] - first["cpu"]["running_ns"] <= elapsed
    job = str(seen["observed"]["job"])
    assert {t["comm"] for t in last["tasks"].values() if t["job"]} == {"busybox", "dd"}
    assert [pid for pid, t in first["tasks"].items() if t["job"]] == [job]
    worked = sum(t["ran_ns"] for t in last["tasks"].values() if t["comm"] == "dd")
    assert 0.5 * elapsed < worked <= elapsed
    for pid, task in first["tasks"].items():
        assert last["tasks"][pid]["ran_ns"] >= task["ran_ns"]
    # A name full of parentheses and no UTF-8 is neither a job nor a stumbling block.
    assert str(seen["observed"]["odd"]) not in last["tasks"]


def test_the_kernel_tells_its_build_id(seen: dict[str, Any]) -> None:
    assert seen["build id"] == seen["facts"]["kernel_build_id"]
    assert len(bytes.fromhex(seen["build id"])) == 20


def test_the_kernel_tells_how_it_was_configured(seen: dict[str, Any]) -> None:
    options = seen["facts"]["kernel_options"]
    assert options["HZ"] == "250"
    assert "PREEMPT_DYNAMIC" in options


def _run_program(
    target: VmTarget, program: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_in_guests(monkeypatch, program)
    target.run(guest_plan(), folder / "results")


def test_a_panic_shows_the_last_kernel_lines(
    target: VmTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import pathlib; pathlib.Path('/proc/sysrq-trigger').write_text('c')"
    with pytest.raises(GuestError, match=r"Kernel panic - not syncing: sysrq triggered crash"):
        _run_program(target, program, tmp_path, monkeypatch)
    assert list(tmp_path.iterdir()) == []


def test_a_guest_without_enough_memory_says_so(
    target: VmTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "x = [bytes([1]) * (1 << 20) for _ in range(4096)]"
    with pytest.raises(GuestError, match=r"(?i)out of memory"):
        _run_program(target, program, tmp_path, monkeypatch)


def test_a_machine_that_is_killed_says_what_may_have_done_it(
    target: VmTarget, tmp_path: Path
) -> None:
    def kill(line: str) -> None:
        for pid in _machines_of(os.getpid()):
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(GuestError, match=r"QEMU was killed: .*where memory is short.*--jobs"):
        target.run(guest_plan(), tmp_path / "results", kill)
    assert not (tmp_path / "results").exists()


def test_a_machine_too_small_for_its_image_says_so(target: VmTarget, tmp_path: Path) -> None:
    small = replace(target, machine=replace(target.machine, memory_mib=96))
    with pytest.raises(GuestError, match=r"QEMU ended with 1: .*initrd is too large"):
        small.run(guest_plan(), tmp_path / "results")


@pytest.mark.nightly
def test_a_guest_that_hangs_is_stopped(
    target: VmTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(machine: QemuMachine, kept: Snapshot, given: Boot, *rest: Any) -> Path:
        return run_restored(machine, kept, replace(given, stall_s=20.0), *rest)

    monkeypatch.setattr(guest, "run_restored", impatient)
    program = "print('iolab: here I hang', flush=True)\nwhile True: pass"
    with pytest.raises(GuestError, match=r"printed nothing for 20 s and was stopped") as caught:
        _run_program(target, program, tmp_path, monkeypatch)
    assert "here I hang" in str(caught.value)


def test_an_agent_that_gives_up_is_quoted(target: VmTarget, tmp_path: Path) -> None:
    coarse = replace(target, machine=replace(target.machine, kernel_options=("highres=off",)))
    with pytest.raises(IolabError) as caught:
        coarse.run(guest_plan(coalesced_timers=False), tmp_path / "results")
    assert str(caught.value).startswith(
        "the agent gave up in the guest: the plan asks for timers with high resolution, "
        "this boot has them without"
    )


def test_a_killed_parent_takes_its_machine_along(target: VmTarget, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from iolab.targets.vm import prepare\n"
        "from tests.support.plans import guest_plan\n"
        "target = prepare('6.1', 'virtual', cpus=1, memory_mib=1024)\n"
        "target.run(guest_plan(), Path(sys.argv[1]))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "results")], env=child_environment()
    )
    wait_until(lambda: parent.poll() is not None or _machines_of(parent.pid))
    (machine,) = _machines_of(parent.pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not alive(machine))
    assert not (tmp_path / "results").exists()
