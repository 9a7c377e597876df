# SPDX-License-Identifier: MIT
"""Sample the kernel's counters in /proc and /sys.

A sample costs a few milliseconds of one core, so a cell takes two: at the start and at the end of
the steady part of its run. The sampling thread has real-time priority: otherwise a job in a cgroup
of high weight that keeps its core busy would delay the second sample until the job has ended.
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

__all__ = ["realtime_priority", "sample"]

_PROC = Path("/proc")


@contextmanager
def realtime_priority() -> Iterator[None]:
    """Run the calling thread as a real-time task for the duration of a ``with`` block.

    The commands that it starts are not real-time tasks (SCHED_RESET_ON_FORK, sched(7)).

    Raises
    ------
    CannotRunError
        If the thread may not have real-time priority.
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
    # Documentation/block/stat.rst: the first field counts read I/Os, the fifth write I/Os, the
    # seventh written sectors of 512 bytes, whatever the device's sector size is.
    counts = (Path("/sys/block") / device / "stat").read_text().split()
    return {"ios": int(counts[0]) + int(counts[4]), "written_bytes": 512 * int(counts[6])}


def _migrations(path: Path) -> int:
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("se.nr_migrations"):
            return int(line.split()[-1])
    return 0


def _task(pid: str, *, job: int | None) -> dict[str, Any] | None:
    # The comm may hold any bytes, parentheses too: the fields start after the last parenthesis.
    head, _, tail = (_PROC / pid / "stat").read_text(errors="replace").rpartition(")")
    comm = head.partition("(")[2]
    # fio's jobs leave its process group (setsid) but stay its children.
    fields = tail.split()
    is_job = job in (int(pid), int(fields[1]))
    if not is_job and not comm.startswith("kworker/"):
        return None
    at_ns = time.monotonic_ns()
    ran_ns, waited_ns, _ = (_PROC / pid / "schedstat").read_text().split()
    counters = {"comm": comm, "job": is_job, "ran_ns": int(ran_ns), "waited_ns": int(waited_ns)}
    counters["at_ns"] = at_ns
    counters["nice"] = int(fields[16])
    if not is_job:
        # There may be hundreds of kworkers, and every file read takes time from the job.
        return counters
    with suppress(FileNotFoundError):
        counters["migrations"] = _migrations(_PROC / pid / "sched")
    for line in (_PROC / pid / "status").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"):
            counters[name] = int(value)
    return counters


def sample(
    *, cpu: int, device: str, job: int | None, calls: Callable[[], dict[str, int]] = dict
) -> dict[str, Any]:
    """Read the counters of a core, a disk, the kworkers and a job.

    Parameters
    ----------
    cpu : int
        The core.
    device : str
        The disk's name in /sys/block.
    job : int, optional
        Process id of the job; its children are sampled with it. None if no process of the job
        lives from one sample to the next.
    calls : callable, optional
        Returns the number of calls so far by kernel function.

    Returns
    -------
    dict
        ``at_ns`` (CLOCK_MONOTONIC, read first), ``context_switches`` of all cores, ``cpu`` as
        `core_running`, ``ios`` and ``written_bytes`` of the disk, ``calls``, and ``tasks`` by
        process id. Each task has an ``at_ns`` of its own: on a busy machine a sample takes long.

    Raises
    ------
    CannotRunError
        If this kernel does not count what is needed.
    """
    counters = {
        "at_ns": time.monotonic_ns(),
        "context_switches": _context_switches(),
        "cpu": core_running(cpu),
        **_disk(device),
        "calls": calls(),
    }
    tasks = {}
    for pid in sorted((p.name for p in _PROC.iterdir() if p.name.isdigit()), key=int):
        with suppress(FileNotFoundError, ProcessLookupError):
            task = _task(pid, job=job)
            if task is not None:
                tasks[pid] = task
    return {**counters, "tasks": tasks}
