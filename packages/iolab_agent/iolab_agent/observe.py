# SPDX-License-Identifier: MIT
"""Counters of the kernel in /proc and /sys, and the agent's own CPU time.

A sample costs a few milliseconds of one core, so a cell takes two: at the start and at the end of
the steady part of its run. The sampling thread has real-time priority: otherwise a job in a cgroup
of high weight that keeps its core busy would delay the second sample until the job has ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iolab_agent.cgroup import root_of
from iolab_agent.pressure import core_idle, machine_pressure, of_group
from iolab_agent.proc import is_kernel_thread, processes, stat_of
from iolab_base.errors import CannotRunError

_PROC = Path("/proc")
# Those of workqueues, and before 5.12 of io_uring (fs/io-wq.c), where they are nobody's threads.
_WORKERS = ("kworker/", "io_wqe_worker")


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


def _context_switches(stat: str) -> int:
    for line in stat.splitlines():
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
    """Return the name of a task that is not the kernel's own, and the kernel's counters of it."""
    counters: dict[str, Any] = {}
    with suppress(FileNotFoundError):
        counters["migrations"] = _migrations(folder / "sched")
    for line in (folder / "status").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"):
            counters[name] = int(value)
        elif name == "Name":
            # io_uring's threads have names of their own.
            counters["comm"] = value.strip()
    return counters


def _times(folder: Path) -> dict[str, int]:
    at_ns = time.monotonic_ns()
    ran_ns, waited_ns, _ = (folder / "schedstat").read_text().split()
    return {"at_ns": at_ns, "ran_ns": int(ran_ns), "waited_ns": int(waited_ns)}


def _tasks(
    pid: int,
    comm: str,
    fields: list[str],
    *,
    job: int | None,
    antagonist: int | None,
    threads: bool,
) -> dict[str, Any]:
    """Return the counters of a process by its id, or of each of its threads by theirs.

    `comm` and `fields` are from `stat_of`. {} if it is neither the work's nor a worker.
    """
    folder = _PROC / str(pid)
    # fio's jobs leave its process group and session (setsid) but stay its children. What a program
    # starts stays in its session.
    family = {pid, int(fields[1]), int(fields[3])}
    # A program that has ended keeps its counters until its parent reads them; an antagonist that
    # has ended does not count.
    is_job, is_antagonist = job in family, antagonist in family and fields[0] != "Z"
    # Any process may have this name.
    is_worker = comm.startswith(_WORKERS) and is_kernel_thread(fields)
    if not (is_job or is_antagonist or is_worker):
        return {}
    known = {"comm": comm, "job": is_job, "nice": int(fields[16])}
    if not (is_job or is_antagonist):
        # There may be hundreds of kworkers, and every file read takes time from the job.
        return {folder.name: {**known, **_times(folder)}}
    if is_antagonist:
        known["antagonist"] = True
    folders = [folder]
    # fio's first process has a thread that does no I/O; its jobs have io_uring's workers.
    if (threads or pid not in (job, antagonist)) and int(fields[17]) > 1:
        folders = list((folder / "task").iterdir())
    tasks = {}
    for task in folders:
        with suppress(FileNotFoundError, ProcessLookupError):
            tasks[task.name] = {**known, **_times(task), **_counters(task)}
    return tasks


class Others:
    """CPU time of processes that are neither the work, its antagonist, a kworker nor the agent."""

    def __init__(self) -> None:
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._first: dict[str, int] | None = None
        self._ran: dict[str, tuple[str, int]] = {}

    def saw(self, pid: int, comm: str, fields: Sequence[str]) -> None:
        """Note a process as `stat_of` has it; no further file is read."""
        if pid != os.getpid():
            # Ids are used again, with another start.
            self._ran[f"{pid} {fields[19]}"] = (comm, int(fields[11]) + int(fields[12]))

    def busiest(self) -> dict[str, Any]:
        """Return ``comm`` and ``ran_ns`` (in ticks) of the one that ran most since the first call.

        Its threads count together. {} at the first call, and if none ran for a tick.
        """
        ran, self._ran = self._ran, {}
        if self._first is None:
            self._first = {who: ticks for who, (_, ticks) in ran.items()}
            return {}
        first = self._first
        grown = {who: ticks - first.get(who, 0) for who, (_, ticks) in ran.items()}
        most = max(grown, key=lambda who: grown[who], default="")
        if not grown.get(most):
            return {}
        return {"comm": ran[most][0], "ran_ns": grown[most] * self._tick_ns}


def sample(
    *,
    cpu: int,
    device: str | None,
    job: int | None,
    antagonist: int | None = None,
    threads: bool = False,
    calls: Callable[[], dict[str, int]] = dict,
    cores: Sequence[int] = (),
    groups: Mapping[str, Path] | None = None,
    others: Others | None = None,
) -> dict[str, Any]:
    """Read the counters of a core, a disk, the kworkers and a job, as `iolab.results.Sample`.

    `job` and `antagonist` are process ids, sampled with their children and sessions; `job` is None
    if no process lives from one sample to the next. Without a `device` no I/O counts. `cores` are
    those of the work, `groups` the cgroups to read, by their names in the sample. Each task has an
    ``at_ns`` of its own: on a busy machine a sample takes long. Raises CannotRunError if this
    kernel lacks a counter.
    """
    at_ns, stat = time.monotonic_ns(), (_PROC / "stat").read_text()
    counters = {
        "at_ns": at_ns,
        "context_switches": _context_switches(stat),
        "cpu": core_running(cpu),
        "idle": core_idle(stat),
        "waiting_ns": _waiting(cores),
        "pressure": machine_pressure(),
        "groups": {name: of_group(folder) for name, folder in (groups or {}).items()},
        **({"ios": 0, "written_bytes": 0} if device is None else _disk(device)),
        "calls": calls(),
    }
    others = Others() if others is None else others
    tasks: dict[str, Any] = {}
    for pid in sorted(processes()):
        with suppress(FileNotFoundError, ProcessLookupError):
            comm, fields = stat_of(pid)
            found = _tasks(pid, comm, fields, job=job, antagonist=antagonist, threads=threads)
            tasks.update(found)
            if not found:
                others.saw(pid, comm, fields)
    return {**counters, "tasks": tasks, "busiest": others.busiest()}


_SCHEDSTAT = Path("/proc/schedstat")
_LACKS = "this kernel has no /proc/schedstat (CONFIG_SCHEDSTATS) and no cpuacct of cgroup v1"


def core_time_file() -> Path | None:
    """Return the file that shows how long tasks ran on each core; None if this kernel has none."""
    if _SCHEDSTAT.exists():
        return _SCHEDSTAT
    root = root_of("cpuacct")
    return None if root is None else root / "cpuacct.usage_percpu"


def core_running(cpu: int) -> dict[str, Any]:
    """Return how long tasks ran on a core since boot; CannotRunError if there is no such core.

    ``running_ns``, from /proc/schedstat with ``waiting_ns`` (time on the run queue) and
    ``switched_in`` (a count), otherwise with the file's path (``from``). Only ``lacks``, the
    reason, if no file has it.
    """
    path = core_time_file()
    if path is None:
        return {"lacks": _LACKS}
    text = path.read_text()
    if path != _SCHEDSTAT:
        cores = text.split()
        if cpu >= len(cores):
            raise CannotRunError(f"{path} has nothing of cpu{cpu}")
        return {"running_ns": int(cores[cpu]), "from": str(path)}
    for line in text.splitlines():
        if line.startswith(f"cpu{cpu} "):
            running, waiting, switched_in = line.split()[-3:]
            return {
                "running_ns": int(running),
                "waiting_ns": int(waiting),
                "switched_in": int(switched_in),
            }
    raise CannotRunError(f"/proc/schedstat has no line for cpu{cpu}")


def _waiting(cores: Sequence[int]) -> dict[str, int]:
    """Return for how long tasks, added up, waited on the run queue of each of some cores.

    The kernel adds a wait when it ends; {} without /proc/schedstat.
    """
    if not _SCHEDSTAT.exists():
        return {}
    lines = [line.split() for line in _SCHEDSTAT.read_text().splitlines()]
    names = {f"cpu{core}" for core in cores}
    return {line[0][3:]: int(line[-2]) for line in lines if line and line[0] in names}


class Cost:
    """The CPU time of all the agent's threads, during and between its samples."""

    def __init__(self) -> None:
        # Start and end of each sample, on the monotonic clock and in CPU time of this process.
        self._samples: list[tuple[int, int, int, int]] = []

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Record that the ``with`` block takes a sample."""
        began, began_cpu = time.monotonic_ns(), time.process_time_ns()
        yield
        self._samples.append((began, time.monotonic_ns(), began_cpu, time.process_time_ns()))

    def spent(self) -> dict[str, int]:
        """Return the CPU time between the first and the last sample.

        ``cpu_ns`` of ``window_ns`` is from the end of the first sample to the start of the last;
        ``with_looks_cpu_ns`` of ``with_looks_ns`` includes both. Commands that the agent started
        (the job, trace-cmd) do not count.
        """
        (began, first_end, began_cpu, first_cpu), *_, (last, ended, last_cpu, ended_cpu) = (
            self._samples
        )
        return {
            "cpu_ns": last_cpu - first_cpu,
            "window_ns": last - first_end,
            "with_looks_cpu_ns": ended_cpu - began_cpu,
            "with_looks_ns": ended - began,
        }
