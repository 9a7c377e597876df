# SPDX-License-Identifier: MIT
"""Keep a booted machine as a snapshot, and continue from there for each plan.

A guest asks to be stopped when it has done all work that does not depend on a plan
(`icountvm.guest_init`). QEMU stops its processor right after that instruction, and saves memory,
devices, clock and timers. Each plan then begins there, in a new QEMU: a block has the same bytes
whether the snapshot was made for it or long before.

While a machine stops, the thread of its processor races with QEMU's main loop. If the main loop
comes second, it finds the processor idle and advances the clock to the next timer
(``icount_start_warp_timer`` in accel/tcg/icount-common.c). On one core of the host this is rare;
with several processors, the preloaded library lets the main loop come first (`icountvm.preload`).
The guest reports how far the clock moved, and a snapshot whose clock moved is made again. If an
interrupt is due, the guest handles it before it reads the clock, which takes equally long in each
stop. So a clock that moves equally far in several stops is good, too, if it moves less than to most
timers.

QEMU runs several processors in turns. A restored machine begins with the first one's turn, even if
the stop came in another's. It may give other bytes than a booted machine, but always the same
ones. On the host's clock there is nothing to keep the same.
"""

from __future__ import annotations

import json
import logging
import operator
import os
import shutil
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from icountvm.channel import make_channel, put_plan, unpack_channel
from icountvm.monitor import Monitor, MonitorError, monitor_options
from icountvm.qemu import Boot, GuestError, QemuMachine, Running
from iolab_base import foreign
from iolab_base.cached import DAMAGED, lock_of, make_folder
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.files import (
    atomic_write,
    cache_dir,
    canonical_json,
    digest_file,
    locked,
    scratch_dir,
    short_dir,
)
from iolab_base.reading import DOCUMENT_BYTES

_log = logging.getLogger(__name__)

_NAME = "booted"
_NODE = "snapshot"
# Each is 0.3 to 0.5 GB. The most are kept while the disk has room for as much again.
MOST_KEPT, FEWEST_KEPT = 36, 12
_AMPLE_BYTES = 20 << 30
_ROOM_BYTES = 600 << 20
_POLL_S = 0.05
_TRIES = 8
# More than the instructions between two readings of the clock (1,171 on 6.1), and less than the
# time to most timers.
_STILL_NS = 10_000
# More than that reading takes if the guest first handles an interrupt (10,889 on 6.1), and less
# than the time to most timers, too.
_NEAR_NS = 100_000
# The race is rarely lost, and hardly ever this often in a row.
_ALIKE = 3
_ENDS_WITHIN_S = 30.0
# The size of the disk itself, which is empty.
_DISK_BYTES = 1 << 20


@dataclass(frozen=True)
class Snapshot:
    """A booted machine in a folder."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The disk image with the machine's state; no machine sees a disk."""
        return self.folder / "snapshot.qcow2"

    @property
    def console(self) -> Path:
        """What the guest printed until the snapshot."""
        return self.folder / "console.txt"

    def is_good(self) -> bool:
        """Return whether its files are unchanged."""
        try:
            described = json.loads((self.folder / "snapshot.json").read_text())
            status = self.disk.stat()
            found = _digest(self.disk, status.st_size, status.st_mtime_ns)
            return bool(found == described["sha256"])
        except DAMAGED:
            return False


@cache
def _digest(path: Path, size: int, changed_ns: int) -> str:
    return digest_file(path)


def can_be_kept(machine: QemuMachine) -> bool:
    """Return whether a snapshot of this machine is the same wherever it is made."""
    return machine.accelerator == "icount"


def make_snapshot(machine: QemuMachine, given: Boot, into: Path) -> Snapshot:
    """Boot a machine until it asks to be stopped, and keep it in the empty folder `into`.

    Raises CannotRunError if the disk lacks the space.
    """
    snapshot = Snapshot(into)
    moved_ns: list[int] = []
    for _ in range(_TRIES):
        if (free := shutil.disk_usage(into).free) < _ROOM_BYTES:
            raise CannotRunError(
                f"a snapshot of the booted machine needs {_ROOM_BYTES >> 20} MiB, and "
                f"{free >> 20} are free in {cache_dir()}"
            )
        _write_disk(snapshot.disk, _DISK_BYTES)
        options = [
            *given.options,
            *_disk_options(_image(_file(snapshot.disk))),
            # Otherwise a restored machine would be stopped, like this one.
            *("-global", "migration.store-global-state=off"),
        ]
        with stopped(machine, replace(given, options=options)) as (running, monitor):
            _save(monitor)
        shutil.copyfile(running.console, snapshot.console)
        moved_ns.append(_paused_ns(machine, snapshot, given))
        if _stood_still(moved_ns):
            break
    else:
        raise MonitorError(f"QEMU moved the clock on in each of {_TRIES} stops")
    described = {"paused_ns": moved_ns[-1], "sha256": digest_file(snapshot.disk)}
    atomic_write(into / "snapshot.json", canonical_json(described))
    return snapshot


def _stood_still(moved_ns: Sequence[int]) -> bool:
    """Return whether the clock stood still in the last stop, from how far it moved in each."""
    last_ns = moved_ns[-1]
    alike = moved_ns[-_ALIKE:] == [last_ns] * _ALIKE
    return last_ns < _STILL_NS or (last_ns < _NEAR_NS and alike)


def _paused_ns(machine: QemuMachine, snapshot: Snapshot, given: Boot) -> int:
    """Return how far a snapshot's clock moved while the machine stopped."""
    run_restored(machine, snapshot, replace(given, initrd=None), b"")
    told = given.folder / "told"
    unpack_channel(given.channel, {"agent.json": DOCUMENT_BYTES}, told)
    try:
        paused_ns = operator.index(foreign.read_document(told / "agent.json")["paused_ns"])
    except (FileNotFoundError, KeyError, TypeError) as error:
        raise GuestError("the guest does not say how long it was stopped") from error
    shutil.rmtree(told)
    make_channel(given.channel)
    return paused_ns


@contextmanager
def stopped(machine: QemuMachine, given: Boot) -> Iterator[tuple[Running, Monitor]]:
    """Boot a machine until it asks to be stopped; its QEMU is killed after the ``with`` block."""
    with short_dir() as folder:
        options = [
            *given.options,
            *monitor_options(folder / "monitor"),
            *("-action", "panic=pause"),
        ]
        running = Running(machine, replace(given, options=options))
        try:
            with Monitor(folder / "monitor", running.check) as monitor:
                running.threads.share_one_core()
                monitor.wait_for("STOP")
                yield running, monitor
        finally:
            running.kill()


def run_until_stop(machine: QemuMachine, given: Boot) -> None:
    """Boot a machine until it asks to be stopped, and let its QEMU end by itself.

    A QEMU that records may hang at its end if a signal comes then: it is run again.
    """
    for _ in range(_TRIES):
        with stopped(machine, given) as (running, monitor):
            monitor.end()
            if running.ends_within(_ENDS_WITHIN_S):
                return
    raise GuestError(f"QEMU did not end within {_ENDS_WITHIN_S:.0f} s, {_TRIES} times")


@contextmanager
def kept_snapshot(
    key: str, machine: QemuMachine, given: Callable[[Path], Boot]
) -> Iterator[Snapshot]:
    """Use the snapshot that is kept under `key`; make it if it is missing or damaged.

    `key` names everything that the booted machine depends on. `given` returns what it is booted
    with, from a folder for its files. No process removes the snapshot during the ``with`` block.
    """

    def make(folder: Path) -> None:
        _log.info("booting the kernel once, to keep it as a snapshot")
        work = folder / "work"
        work.mkdir()
        make_snapshot(machine, given(work), folder)
        shutil.rmtree(work)

    snapshot = Snapshot(cache_dir("snapshots", key))
    while True:
        make_folder(snapshot.folder, make, good=lambda folder: Snapshot(folder).is_good())
        with locked(lock_of(snapshot.folder), shared=True):
            # Another process may have removed it before it was locked.
            if snapshot.is_good():
                os.utime(snapshot.folder)
                _forget_old(snapshot.folder.parent)
                yield snapshot
                return


def run_restored(
    machine: QemuMachine,
    snapshot: Snapshot,
    given: Boot,
    plan: bytes,
    progress: Callable[[str], None] = lambda line: None,
) -> Path:
    """Run a machine from its snapshot to its end, and return the console's output since then.

    `given` is what it was booted with, without the initrd. Raises GuestError if the guest does not
    come to its end.
    """
    # QEMU writes to its disk while it loads: to a second image, before the one that is kept.
    written = given.folder / "written.qcow2"
    _write_disk(written, snapshot.disk.stat().st_size)
    kept = {"driver": "raw", "read-only": True, "file": _file(snapshot.disk)}
    with short_dir() as folder:
        options = [
            *given.options,
            *monitor_options(folder / "monitor"),
            *_disk_options(_image(_image(_file(written), backing=kept))),
            *("-S", "-loadvm", _NAME),
        ]
        running = Running(machine, replace(given, options=options), progress)
        try:
            # QEMU answers when it has loaded the machine, and with it the shared memory.
            with Monitor(folder / "monitor", running.check) as monitor:
                put_plan(given.channel, plan)
                # Unlinked now, it need not be written to the host's disk.
                written.unlink()
                monitor.do("cont")
            running.wait()
        finally:
            running.kill()
    return running.console


def _save(monitor: Monitor) -> None:
    monitor.do(
        "snapshot-save", **{"job-id": "save", "tag": _NAME, "vmstate": _NODE, "devices": [_NODE]}
    )
    while True:
        (job,) = monitor.do("query-jobs")
        if job["status"] == "concluded":
            break
        time.sleep(_POLL_S)
    if "error" in job:
        raise MonitorError(f"QEMU cannot keep this machine: {job['error']}")


def _disk_options(image: Mapping[str, Any]) -> list[str]:
    return ["-blockdev", json.dumps({**image, "node-name": _NODE})]


def _image(file: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"driver": "qcow2", "file": file, **more}


def _file(path: Path) -> dict[str, Any]:
    return {"driver": "file", "filename": str(path), "cache": {"no-flush": True}}


def _write_disk(path: Path, size: int) -> None:
    """Write an empty image, because QEMU needs one for a snapshot (docs/interop/qcow2.rst)."""
    bits = 16
    cluster = 1 << bits
    table, block, level_1 = cluster, 2 * cluster, 3 * cluster
    # An entry of level 1 is for a cluster of level 2, of 8 bytes for each cluster of the disk.
    entries = -(-size // (cluster // 8 * cluster))
    header = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        *(b"QFI\xfb", 3, 0, 0, bits, -(-size // 512) * 512, 0, entries, level_1, table, 1, 0, 0),
        *(0, 0, 0, 4, 104),
    )
    counts = struct.pack(">4H", 1, 1, 1, 1)
    parts = (header, struct.pack(">Q", block), counts, b"")
    atomic_write(path, b"".join(part.ljust(cluster, b"\0") for part in parts))


class _InUseError(Exception):
    """Another process uses a snapshot."""


def _refuse_to_wait() -> None:
    raise _InUseError


def _forget_old(folder: Path) -> None:
    """Remove the least recently used snapshots; skip those in use."""
    used = {}
    for path in folder.glob("[!.]*"):
        # Another process may remove it at any moment.
        with suppress(OSError):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                used[path] = status.st_mtime
    ample = shutil.disk_usage(folder).free >= _AMPLE_BYTES
    kept = MOST_KEPT if ample else FEWEST_KEPT
    for path in sorted(used, key=lambda path: used[path])[:-kept]:
        lock = lock_of(path)
        with suppress(OSError, IolabError, _InUseError), locked(lock, _refuse_to_wait):
            with scratch_dir(folder) as work:
                path.rename(work / "old")
            lock.unlink()
