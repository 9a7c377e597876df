# SPDX-License-Identifier: MIT
"""What the kernel counts while a job runs: one look at /proc and /sys, twice.

A sample costs a few milliseconds of one core, so a cell takes two: at the start and at the end of
the steady part of the run. The observer runs before everybody else: a job in a cgroup of high
weight that keeps its core busy would let it look only after the job has ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iolab.agent.core_time import core_running
from iolab.errors import CannotRunError

__all__ = ["sample", "undelayed"]

_PROC = Path("/proc")


@contextmanager
def undelayed() -> Iterator[None]:
    """Run the calling thread, but nothing that it starts, as a real-time task.

    Errors: CannotRunError if it may not.
    """
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError as error:
        raise CannotRunError("the agent may not run as a real-time task here") from error
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, priority)


def _context_switches() -> int:
    for line in (_PROC / "stat").read_text().splitlines():
        if line.startswith("ctxt "):
            return int(line.split()[1])
    raise CannotRunError("/proc/stat of this kernel has no line ctxt")


def _disk(device: str) -> dict[str, int]:
    # Documentation/block/stat.rst: read I/Os is the first field, write I/Os the fifth, and the
    # seventh what was written, in units of 512 bytes whatever the device's sectors are.
    counts = (Path("/sys/block") / device / "stat").read_text().split()
    return {"ios": int(counts[0]) + int(counts[4]), "written_bytes": 512 * int(counts[6])}


def _migrations(path: Path) -> int:
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("se.nr_migrations"):
            return int(line.split()[-1])
    return 0


def _task(pid: str, *, job: int | None) -> dict[str, Any] | None:
    # The comm may hold any bytes, parentheses too: the fields start after the last one.
    head, _, tail = (_PROC / pid / "stat").read_text(errors="replace").rpartition(")")
    comm = head.partition("(")[2]
    # fio's jobs leave its process group (setsid) but stay its children.
    fields = tail.split()
    is_job = job in (int(pid), int(fields[1]))
    if not is_job and not comm.startswith("kworker/"):
        return None
    at_ns = time.monotonic_ns()
    ran_ns, waited_ns, _ = (_PROC / pid / "schedstat").read_text().split()
    found = {"comm": comm, "job": is_job, "ran_ns": int(ran_ns), "waited_ns": int(waited_ns)}
    found["at_ns"] = at_ns
    found["nice"] = int(fields[16])
    if not is_job:
        # There may be hundreds of them, and every file read is time that the job does not get.
        return found
    with suppress(FileNotFoundError):
        found["migrations"] = _migrations(_PROC / pid / "sched")
    for line in (_PROC / pid / "status").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"):
            found[name] = int(value)
    return found


def sample(
    *, cpu: int, device: str, job: int | None, calls: Callable[[], dict[str, int]] = dict
) -> dict[str, Any]:
    """Return the counters of a core, a disk, the kworkers and the process `job` with its children.

    `job` None: no process lives from one look to the next. Times are in ns; ``at_ns`` is
    CLOCK_MONOTONIC, read first, and again for each task, as on a busy machine a sample takes long;
    ``cpu`` is what `core_running` says; ``ios`` and ``written_bytes`` are the disk's; ``calls`` is
    what that function counts of kernel functions.

    Errors: CannotRunError if this kernel does not count what is needed.
    """
    now = {
        "at_ns": time.monotonic_ns(),
        "context_switches": _context_switches(),
        "cpu": core_running(cpu),
        **_disk(device),
        "calls": calls(),
    }
    tasks = {}
    for pid in sorted((p.name for p in _PROC.iterdir() if p.name.isdigit()), key=int):
        with suppress(FileNotFoundError, ProcessLookupError):
            found = _task(pid, job=job)
            if found is not None:
                tasks[pid] = found
    return {**now, "tasks": tasks}
