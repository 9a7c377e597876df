# SPDX-License-Identifier: MIT
"""Results that the agent leaves of a block: types of ``cells/ID.json``, and sizes.

Counters are absolute: subtract the first sample from the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NotRequired, TypedDict

from iolab_agent.fio_options import processes_of
from iolab_agent.plan import Cell, FioJob, OpenJob, Plan, Recording
from iolab_base.reading import CONSOLE_BYTES, DOCUMENT_BYTES

# The limit of a Linux kernel on x86 (NR_CPUS).
MOST_CPUS: Final = 8192
# Limit of a cell's result with a process or two, and what each process of fio adds. A true one has
# less than one MiB, and the worst JSON of four takes 260 MiB and a few seconds to read.
_CELL_BYTES: Final = 4 << 20
_PROCESS_BYTES: Final = 32 << 10
# Limit of a machine's facts, and of the names and digests of a block's files.
_FACTS_BYTES: Final = 2 << 20
# Limit of a recording's pages, whatever number of CPUs the machine reports: computing its measures
# takes several times as much memory. The built-in pathologies record 7 MB.
_MOST_PAGES: Final = 128 << 20
# Limit of a trace without its pages: /proc/kallsyms, and formats of events.
_TRACE_HEAD: Final = 32 << 20

TaskCounter = Literal[
    "ran_ns", "waited_ns", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "migrations"
]


class CpuSample(TypedDict):
    """Time for which tasks, all added up, ran on the measured core, or why it is missing."""

    running_ns: NotRequired[int]
    lacks: NotRequired[str]


class CoreIdle(TypedDict):
    """For how long a core was idle since boot, and how much of it with I/O in flight."""

    idle_ns: int
    iowait_ns: int


class GroupSample(TypedDict):
    """A cgroup's counters."""

    # As the machine's in `Sample`.
    pressure: dict[str, int]
    throttled_periods: int
    # Added up over cores.
    throttled_ns: int


class Busiest(TypedDict, total=False):
    """Of the processes that nothing else counts, the one that ran most since the first sample."""

    comm: str
    ran_ns: int


class KernelLogCounts(TypedDict, total=False):
    """Kernel messages of a cell of level 4 (warning) and worse; empty if they cannot be read."""

    warnings: int
    first: str


class TaskSample(TypedDict):
    """A kworker or a process of the job or its antagonist, from its files in ``/proc``."""

    comm: str
    job: bool
    # CLOCK_MONOTONIC when it was read.
    at_ns: int
    # From schedstat; waited: runnable.
    ran_ns: int
    waited_ns: int
    nice: int
    # kworkers have none of these.
    voluntary_ctxt_switches: NotRequired[int]
    nonvoluntary_ctxt_switches: NotRequired[int]
    # Of kernels with `sched` files.
    migrations: NotRequired[int]
    antagonist: NotRequired[bool]


class Sample(TypedDict):
    """The kernel's counters at one moment."""

    # CLOCK_MONOTONIC.
    at_ns: int
    # The whole system's.
    context_switches: int
    # The measured core's.
    cpu: CpuSample
    # Those that the data device completed.
    ios: int
    written_bytes: int
    # By kernel function or tracepoint.
    calls: dict[str, int]
    # By process id; if a process has several threads, by theirs.
    tasks: dict[str, TaskSample]
    # Older results lack what follows. All cores, by number.
    idle: NotRequired[dict[str, CoreIdle]]
    # For how long tasks waited on the run queues of the work's cores; empty without schedstat.
    waiting_ns: NotRequired[dict[str, int]]
    # Total stall times in us (PSI), such as cpu_some; without those that the kernel lacks.
    pressure: NotRequired[dict[str, int]]
    # "work" and "antagonist".
    groups: NotRequired[dict[str, GroupSample]]
    busiest: NotRequired[Busiest]


class DdProcess(TypedDict):
    """One dd: what it wrote, and the kernel's counters for it."""

    bytes: int
    seconds: float
    writes: int
    ran_ns: int
    voluntary_ctxt_switches: int
    nonvoluntary_ctxt_switches: int


class ProgramResult(TypedDict):
    """One program's run, from its start to its end; counters include children it waited for."""

    # Whether it ended by itself.
    whole: bool
    began_ns: int
    ended_ns: int
    seconds: float
    # Minus the number of the signal that ended it.
    exit: int
    ran_ns: int
    voluntary_ctxt_switches: int
    nonvoluntary_ctxt_switches: int
    # The last 64 KiB; if full, the program may have waited for it to be read.
    output: str
    output_full: bool
    # The number that the plan extracts from the output.
    value: NotRequired[float | None]


class AntagonistResult(TypedDict):
    """What ran beside the measured work: fio's report or a program's result."""

    began_ns: int
    ended_ns: int
    fio: NotRequired[Mapping[str, Any]]
    fio_said: NotRequired[str]
    program: NotRequired[ProgramResult]


class CellResult(TypedDict):
    """The result of a cell, with one of ``fio`` (its json+ report), ``copies`` and ``program``."""

    # If the state is not "done", only the id and the reason are present.
    id: str
    state: Literal["done", "cannot run here", "failed"]
    reason: NotRequired[str]
    # The two ends of the steady part.
    first: Sample
    last: Sample
    # Why the cell is invalid.
    gates: NotRequired[list[str]]
    fio: NotRequired[Mapping[str, Any]]
    copies: NotRequired[list[DdProcess]]
    program: NotRequired[ProgramResult]
    antagonist: NotRequired[AntagonistResult]
    # CLOCK_MONOTONIC.
    measuring_from_ns: NotRequired[int]
    measuring_until_ns: NotRequired[int]
    # Older results lack it.
    kernel_log: NotRequired[KernelLogCounts]


def growth(first: Sample, pid: str, task: TaskSample, counter: TaskCounter) -> int:
    """Return how much a task's counter grew; one not in the first sample counts from 0."""
    before = first["tasks"].get(pid)
    return task.get(counter, 0) - (0 if before is None else before.get(counter, 0))


def kworkers_of(sample: Sample, cores: Iterable[object]) -> dict[str, TaskSample]:
    """Return the bound kworkers of some cores by pid; jobs may call themselves one."""
    names = tuple(f"kworker/{core}:" for core in cores)
    return {
        pid: task
        for pid, task in sample["tasks"].items()
        if task["comm"].startswith(names) and not task["job"] and not task.get("antagonist")
    }


def cell_bytes(cell: Cell) -> int:
    """Return the most bytes of a cell's result, ``cells/ID.json``."""
    antagonist = None if cell.antagonist is None else cell.antagonist.job
    return _CELL_BYTES + _PROCESS_BYTES * (_processes(cell.job) + _processes(antagonist))


def _processes(job: FioJob | None) -> int:
    if isinstance(job, OpenJob):
        return sum(processes_of(section.options) for section in job.sections)
    return 0 if job is None else job.numjobs


def pages_bytes(recording: Recording, cpus: int) -> int:
    """Return the most bytes of a recording's pages, decompressed, on a machine with `cpus`."""
    # trace-cmd empties a buffer that is half full, and the window is short.
    return min(2 * cpus * (recording.buffer_kib << 10), _MOST_PAGES)


def result_bytes(plan: Plan, cpus: int) -> dict[str, int]:
    """Return the most bytes of each file in a plan's results folder, on a machine with `cpus`."""
    most = {"agent.json": DOCUMENT_BYTES, "console.txt": CONSOLE_BYTES}
    most |= dict.fromkeys(("facts.json", "status.json"), _FACTS_BYTES)
    for cell in plan.cells:
        most[f"cells/{cell.id}.json"] = cell_bytes(cell)
        if cell.recording is not None:
            most[f"traces/{cell.id}.dat"] = pages_bytes(cell.recording, cpus) + _TRACE_HEAD
    return most
