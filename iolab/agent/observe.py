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
from iolab.agent.proc import is_kernel_thread, processes, stat_of
from iolab_base.errors import CannotRunError

__all__ = ["realtime_priority", "sample"]

_PROC = Path("/proc")


@contextmanager
def realtime_priority() -> Iterator[None]:
    """Run the calling thread as a real-time task for the duration of a ``with`` block.

    The commands that it starts are not real-time tasks (SCHED_RESET_ON_FORK, sched(7)). Raises
    CannotRunError if it may not have this priority.
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


def _counters(folder: Path) -> dict[str, Any]:
    """Return the kernel's counters of a task that is not the kernel's own."""
    counters: dict[str, Any] = {}
    with suppress(FileNotFoundError):
        counters["migrations"] = _migrations(folder / "sched")
    for line in (folder / "status").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"):
            counters[name] = int(value)
    return counters


def _times(folder: Path) -> dict[str, int]:
    at_ns = time.monotonic_ns()
    ran_ns, waited_ns, _ = (folder / "schedstat").read_text().split()
    return {"at_ns": at_ns, "ran_ns": int(ran_ns), "waited_ns": int(waited_ns)}


def _tasks(pid: int, *, job: int | None, antagonist: int | None, threads: bool) -> dict[str, Any]:
    """Return the counters of a process by its id, or of each of its threads by theirs."""
    comm, fields = stat_of(pid)
    folder = _PROC / str(pid)
    # fio's jobs leave its process group and session (setsid) but stay its children. What a program
    # starts stays in its session.
    family = {pid, int(fields[1]), int(fields[3])}
    # A program that has ended keeps its counters until its parent reads them; an antagonist that
    # has ended does not count.
    is_job, is_antagonist = job in family, antagonist in family and fields[0] != "Z"
    # Any process may have this name.
    is_worker = comm.startswith("kworker/") and is_kernel_thread(fields)
    if not (is_job or is_antagonist or is_worker):
        return {}
    known = {"comm": comm, "job": is_job, "nice": int(fields[16])}
    if not (is_job or is_antagonist):
        # There may be hundreds of kworkers, and every file read takes time from the job.
        return {folder.name: {**known, **_times(folder)}}
    if is_antagonist:
        known["antagonist"] = True
    folders = [folder]
    if threads and int(fields[17]) > 1:
        folders = list((folder / "task").iterdir())
    tasks = {}
    for task in folders:
        with suppress(FileNotFoundError, ProcessLookupError):
            tasks[task.name] = {**known, **_times(task), **_counters(task)}
    return tasks


def sample(
    *,
    cpu: int,
    device: str | None,
    job: int | None,
    antagonist: int | None = None,
    threads: bool = False,
    calls: Callable[[], dict[str, int]] = dict,
) -> dict[str, Any]:
    """Read the counters of a core, a disk, the kworkers and a job, as `iolab.results.Sample`.

    `job` and `antagonist` are process ids, sampled with their children and sessions; `job` is None
    if no process lives from one sample to the next. Without a `device` no I/O counts. Each task has
    an ``at_ns`` of its own: on a busy machine a sample takes long. Raises CannotRunError if this
    kernel lacks a counter.
    """
    counters = {
        "at_ns": time.monotonic_ns(),
        "context_switches": _context_switches(),
        "cpu": core_running(cpu),
        **({"ios": 0, "written_bytes": 0} if device is None else _disk(device)),
        "calls": calls(),
    }
    tasks: dict[str, Any] = {}
    for pid in sorted(processes()):
        with suppress(FileNotFoundError, ProcessLookupError):
            tasks.update(_tasks(pid, job=job, antagonist=antagonist, threads=threads))
    return {**counters, "tasks": tasks}
