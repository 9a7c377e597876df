# SPDX-License-Identifier: MIT
"""A machine that is restored measures what one does that has just booted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from icountvm import compiler, guest, snapshots
from icountvm.monitor import MonitorError
from icountvm.qemu import Boot, QemuMachine
from icountvm.snapshots import Snapshot, can_be_kept, kept_snapshot
from iolab.targets.vm import VmTarget
from iolab_base.errors import CannotRunError
from tests.base.test_files import small_disk
from tests.support.plans import null_blk_cell, open_job, plan
from tests.support.processes import machines_disturbed


def _bytes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


_ASKED = plan(null_blk_cell("one"), null_blk_cell("two", 3000), modules=["null_blk"])


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own for snapshots."""
    monkeypatch.setattr(snapshots, "cache_dir", (tmp_path / "cache").joinpath)
    return tmp_path / "cache" / "snapshots"


@dataclass(frozen=True)
class First:
    """A snapshot, and what the first machine restored from it measured of `_ASKED`."""

    snapshot: Path
    bytes: dict[str, str]

    def made_ns(self) -> int:
        return (self.snapshot / "snapshot.json").stat().st_mtime_ns


@pytest.fixture(scope="module")
def made_once(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> First:
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "cache_dir", (folder / "cache").joinpath)
        target.run(_ASKED, folder / "results")
    return First(_only(folder / "cache" / "snapshots"), _bytes(folder / "results"))


@pytest.fixture
def first(made_once: First, monkeypatch: pytest.MonkeyPatch) -> First:
    """A snapshot that tests share; each leaves a good one in its place."""
    cache = made_once.snapshot.parents[1]
    monkeypatch.setattr(snapshots, "cache_dir", cache.joinpath)
    return made_once


def _only(kept: Path) -> Path:
    (folder,) = kept.glob("[!.]*")
    return folder


@contextmanager
def _busy() -> Iterator[None]:
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    try:
        yield
    finally:
        for process in loops:
            process.kill()
            process.wait()


def test_only_machines_on_counted_instructions_are_kept() -> None:
    assert can_be_kept(QemuMachine())
    assert can_be_kept(QemuMachine(cpus=2))
    assert not can_be_kept(QemuMachine("tcg"))
    assert not can_be_kept(QemuMachine("kvm"))


@pytest.mark.vm
def test_a_snapshot_that_is_made_anew_gives_the_same_bytes(
    target: VmTarget, tmp_path: Path, first: First, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_ns = first.made_ns()
    target.run(_ASKED, tmp_path / "second")
    assert first.made_ns() == made_ns
    assert _bytes(tmp_path / "second") == first.bytes

    snapshot = Snapshot(first.snapshot)
    with snapshot.disk.open("r+b") as stream:
        stream.seek(100 << 20)
        stream.write(b"something else")
    assert not snapshot.is_good()
    told: list[int] = []
    measured = snapshots._paused_ns

    with ExitStack() as stack:

        def moved_at_first(machine: QemuMachine, snapshot: Snapshot, given: Boot) -> int:
            told.append(measured(machine, snapshot, given))
            if len(told) > 1:
                return told[-1]
            # The boot that counts is the next one.
            stack.enter_context(_busy())
            return 1_052_771

        monkeypatch.setattr(snapshots, "_paused_ns", moved_at_first)
        disturbed = stack.enter_context(machines_disturbed(tmp_path))
        target.run(_ASKED, tmp_path / "third")
    assert disturbed
    assert first.made_ns() > made_ns
    assert len(told) >= 2
    assert told[-1] < 10_000
    assert snapshot.is_good()
    assert json.loads((first.snapshot / "snapshot.json").read_text())["paused_ns"] == told[-1]
    assert json.loads((tmp_path / "third/agent.json").read_text())["paused_ns"] == told[-1]
    assert _bytes(tmp_path / "third") == first.bytes


@pytest.mark.vm
def test_so_does_one_of_two_processors(
    target: VmTarget, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = replace(target, machine=replace(target.machine, cpus=2))
    assert two.identity()["start"] == "restored"
    # Two writers whose processors halt often: without turns, signals changed their bytes.
    options = {"rw": "write", "bs": "4k", "fsync": "1", "ioengine": "psync", "numjobs": "2"}
    writers = open_job({"name": "two", "options": options}, runtime_ms=2000)
    asked = plan(null_blk_cell("one", job=writers), modules=["null_blk"])
    two.run(asked, tmp_path / "first")
    shutil.rmtree(_only(kept))
    # Where there is no C compiler, the library is tcc's.
    monkeypatch.setattr(compiler, "find_compiler", compiler._unpacked_tcc)
    with machines_disturbed(tmp_path) as disturbed:
        for name in ("second", "third", "fourth"):
            two.run(asked, tmp_path / name)
    assert disturbed
    # The processors let the main loop stop them; else each stop would move the clock by 2 ms.
    assert json.loads((_only(kept) / "snapshot.json").read_text())["paused_ns"] < 10_000
    for name in ("second", "third", "fourth"):
        assert _bytes(tmp_path / name) == _bytes(tmp_path / "first")


@pytest.mark.vm
def test_a_machine_that_was_never_stopped_gives_the_same_bytes(
    target: VmTarget, tmp_path: Path, first: First, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_ns = first.made_ns()
    monkeypatch.setattr(guest, "can_be_kept", lambda _: False)
    target.run(_ASKED, tmp_path / "booted")
    assert (first.made_ns(), _only(first.snapshot.parent)) == (made_ns, first.snapshot)
    assert _bytes(tmp_path / "booted") == first.bytes


def test_a_clock_that_moved_is_a_lost_race_but_for_an_interrupt_that_was_due() -> None:
    stood = snapshots._stood_still
    assert stood([1_171])
    assert stood([1_052_771, 1_171])
    assert not stood([1_052_771] * 8)
    assert not stood([10_889])
    assert not stood([10_889, 1_052_771, 10_889])
    assert not stood([10_889, 10_889, 10_890])
    assert stood([10_889, 10_889, 10_889])
    assert stood([1_052_771, 10_889, 10_889, 10_889])
    assert stood([99_999] * 3)
    assert not stood([100_000] * 8)


class _MadeError(Exception):
    """A snapshot would be made."""


@pytest.mark.vm
def test_a_plan_is_all_that_a_restored_machine_gets(
    target: VmTarget, tmp_path: Path, first: First, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other kernel options and other modules are another boot; another plan is not."""

    def make(machine: QemuMachine, given: Boot, into: Path) -> Snapshot:
        raise _MadeError

    monkeypatch.setattr(snapshots, "make_snapshot", make)
    target.run(plan(null_blk_cell("one"), modules=["null_blk"]), tmp_path / "other")
    with_option = replace(target, machine=replace(target.machine, kernel_options=("nosmt",)))
    for other, modules in ((with_option, ["null_blk"]), (target, ["null_blk", "ext4"])):
        with pytest.raises(_MadeError):
            other.run(plan(null_blk_cell("one"), modules=modules), tmp_path / "results")


@pytest.mark.vm
def test_a_disk_without_room_for_a_snapshot_is_said(
    target: VmTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", "450m") as disk:
        monkeypatch.setattr(snapshots, "cache_dir", disk.joinpath)
        with pytest.raises(CannotRunError, match=r"needs 600 MiB, and \d+ are free in "):
            target.run(plan(), tmp_path / "results")
        # QEMU notices itself what fills up meanwhile.
        monkeypatch.setattr(snapshots, "_ROOM_BYTES", 0)
        with pytest.raises(MonitorError, match=r"QEMU cannot keep this machine: .*writing VM"):
            target.run(plan(), tmp_path / "results")
        assert not list((disk / "snapshots").glob("[!.]*"))
    assert not (tmp_path / "results").exists()


def test_a_snapshot_in_use_is_not_forgotten(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(machine: QemuMachine, given: Boot, into: Path) -> Snapshot:
        (into / "snapshot.qcow2").touch()
        sha256 = hashlib.sha256().hexdigest()
        (into / "snapshot.json").write_text(json.dumps({"sha256": sha256}))
        return Snapshot(into)

    monkeypatch.setattr(snapshots, "make_snapshot", make)
    boot = Boot([], kept, None, kept, kept, stall_s=1.0)
    with kept_snapshot("used", QemuMachine(), lambda work: boot) as snapshot:
        for n in range(40):
            (kept / f"{n:02}").mkdir()
        os.utime(snapshot.folder, (0, 0))
        snapshots._forget_old(kept)
        assert snapshot.is_good()
    snapshots._forget_old(kept)
    assert not snapshot.folder.exists()


@pytest.mark.parametrize(("free_gib", "most"), [(19, 12), (20, 36)])
def test_the_oldest_snapshots_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_gib: int, most: int
) -> None:
    free = SimpleNamespace(free=free_gib << 30)
    monkeypatch.setattr("icountvm.snapshots.shutil.disk_usage", lambda folder: free)
    now = time.time()
    for n in range(40):
        folder = tmp_path / f"{n:02}"
        folder.mkdir()
        os.utime(folder, (now - n, now - n))
    (tmp_path / ".lock").touch()
    snapshots._forget_old(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock",
        *(f"{n:02}" for n in range(most)),
    ]


def test_a_snapshot_may_vanish_while_others_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, looked, look = tmp_path / "gone", list[Path](), Path.stat

    def vanishing(path: Path, **more: bool) -> os.stat_result:
        if path == gone and path in looked:
            raise FileNotFoundError(path)
        looked.append(path)
        return look(path, **more)

    gone.mkdir()
    monkeypatch.setattr(Path, "stat", vanishing)
    snapshots._forget_old(tmp_path)
