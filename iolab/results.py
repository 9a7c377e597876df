# SPDX-License-Identifier: MIT
"""What the agent leaves of a block: types of a cell's result, ``cells/ID.json``, and sizes.

Counters are absolute: subtract the first sample from the last. `iolab.agent.block` writes results,
and `iolab.foreign` checks what enters from a machine that is not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NotRequired, TypedDict

from iolab.agent.fio_options import processes_of
from iolab.agent.plan import Cell, FioJob, OpenJob, Plan, Recording
from iolab.reading import CONSOLE_BYTES, DOCUMENT_BYTES

__all__ = [
    "MOST_CPUS",
    "AntagonistResult",
    "CellResult",
    "CpuSample",
    "DdProcess",
    "ProgramResult",
    "Sample",
    "TaskCounter",
    "TaskSample",
    "cell_bytes",
    "growth",
    "pages_bytes",
    "result_bytes",
]

# Of a Linux kernel on x86 (NR_CPUS).
MOST_CPUS: Final = 8192
# Of a cell's result: one of a process or two, and what each process of fio adds. A true one has
# less than one MiB, and the worst JSON of four takes 260 MiB and a few seconds to read.
_CELL_BYTES: Final = 4 << 20
_PROCESS_BYTES: Final = 32 << 10
# Of what is said of a machine, and of the names and digests of a block's files.
_FACTS_BYTES: Final = 2 << 20
# Of a recording's pages, whatever the machine says how many CPUs it has: its measures take several
# times as much memory. Those of the built-in pathologies have 7 MB.
_MOST_PAGES: Final = 128 << 20
# Of a trace beside its pages: /proc/kallsyms, and formats of events.
_TRACE_HEAD: Final = 32 << 20

TaskCounter = Literal[
    "ran_ns", "waited_ns", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "migrations"
]


class CpuSample(TypedDict):
    """Time for which tasks ran on the measured core.

    Parameters
    ----------
    running_ns : int
        Sum over all tasks; missing where the kernel does not count it.
    lacks : str
        Why it is missing.
    """

    running_ns: NotRequired[int]
    lacks: NotRequired[str]


class TaskSample(TypedDict):
    """A kworker or a process of the job, from its files in ``/proc``.

    Parameters
    ----------
    comm : str
        Name of the task.
    job : bool
        Whether it is the job's.
    at_ns : int
        CLOCK_MONOTONIC when it was read.
    ran_ns, waited_ns : int
        Time on a CPU and runnable, from ``schedstat``.
    nice : int
        Its nice value.
    voluntary_ctxt_switches, nonvoluntary_ctxt_switches, migrations : int
        Of the tasks of the job and its antagonist only; migrations where the kernel has ``sched``
        files.
    antagonist : bool
        There, and true, if it is the antagonist's.
    """

    comm: str
    job: bool
    at_ns: int
    ran_ns: int
    waited_ns: int
    nice: int
    voluntary_ctxt_switches: NotRequired[int]
    nonvoluntary_ctxt_switches: NotRequired[int]
    migrations: NotRequired[int]
    antagonist: NotRequired[bool]


class Sample(TypedDict):
    """The kernel's counters at one moment.

    Parameters
    ----------
    at_ns : int
        CLOCK_MONOTONIC.
    context_switches : int
        Of the whole system, ``ctxt`` of ``/proc/stat``.
    cpu : CpuSample
        The measured core.
    ios, written_bytes : int
        Completed by the data device.
    calls : dict of str to int
        Calls of each counted kernel function.
    tasks : dict of str to TaskSample
        By process id.
    """

    at_ns: int
    context_switches: int
    cpu: CpuSample
    ios: int
    written_bytes: int
    calls: dict[str, int]
    tasks: dict[str, TaskSample]


class DdProcess(TypedDict):
    """One dd: what it wrote, and what the kernel counted for it."""

    bytes: int
    seconds: float
    writes: int
    ran_ns: int
    voluntary_ctxt_switches: int
    nonvoluntary_ctxt_switches: int


class ProgramResult(TypedDict):
    """One program's run.

    Parameters
    ----------
    whole : bool
        Whether it ran to its end, not for a fixed time.
    seconds : float
        From its start to its end.
    exit : int
        Exit code, or minus the number of the signal that ended it.
    ran_ns, voluntary_ctxt_switches, nonvoluntary_ctxt_switches : int
        What the kernel counted for it and the children that it waited for.
    output : str
        The last 64 KiB of what it printed.
    output_full : bool
        Whether it may have waited for its output to be read.
    value : float or None
        The number in its output, if the plan asks for one.
    """

    whole: bool
    began_ns: int
    ended_ns: int
    seconds: float
    exit: int
    ran_ns: int
    voluntary_ctxt_switches: int
    nonvoluntary_ctxt_switches: int
    output: str
    output_full: bool
    value: NotRequired[float | None]


class AntagonistResult(TypedDict):
    """What ran beside the measured work: fio's report or a program's result."""

    began_ns: int
    ended_ns: int
    fio: NotRequired[Mapping[str, Any]]
    fio_said: NotRequired[str]
    program: NotRequired[ProgramResult]


class CellResult(TypedDict):
    """The result of a cell.

    Parameters
    ----------
    id : str
        Its name in the plan.
    state : {"done", "cannot run here", "failed"}
        How it ended; ``reason`` says why where it is not done, and nothing else is there.
    first, last : Sample
        The two ends of the steady part.
    gates : list of str
        Why the cell is invalid.
    fio : mapping
        fio's own report (json+), of a job.
    copies : list of DdProcess
        The dd processes, of copies.
    program : ProgramResult
        The program's run, of a program.
    antagonist : AntagonistResult
        What ran beside the work, if the plan asks for it.
    """

    id: str
    state: Literal["done", "cannot run here", "failed"]
    reason: NotRequired[str]
    first: Sample
    last: Sample
    gates: NotRequired[list[str]]
    fio: NotRequired[Mapping[str, Any]]
    copies: NotRequired[list[DdProcess]]
    program: NotRequired[ProgramResult]
    antagonist: NotRequired[AntagonistResult]


def growth(first: Sample, pid: str, task: TaskSample, counter: TaskCounter) -> int:
    """Return how much a task's counter grew since the first sample.

    Parameters
    ----------
    first : Sample
        The first sample; a task that is not in it came later and counts from 0.
    pid : str
        The task's process id.
    task : TaskSample
        The task in the last sample.
    counter : TaskCounter
        The counter, in its own unit.
    """
    before = first["tasks"].get(pid)
    return task.get(counter, 0) - (0 if before is None else before.get(counter, 0))


def cell_bytes(cell: Cell) -> int:
    """Return the most bytes of a cell's result, ``cells/ID.json``."""
    antagonist = None if cell.antagonist is None else cell.antagonist.job
    return _CELL_BYTES + _PROCESS_BYTES * (_processes(cell.job) + _processes(antagonist))


def _processes(job: FioJob | None) -> int:
    if isinstance(job, OpenJob):
        return sum(processes_of(section.options) for section in job.sections)
    return 0 if job is None else job.numjobs


def pages_bytes(recording: Recording, cpus: int) -> int:
    """Return the most bytes of a recording's pages, decompressed.

    Parameters
    ----------
    recording : Recording
        What was asked for: trace-cmd empties a buffer that is half full, and the window is short.
    cpus : int
        Processors of the machine, as it says itself.
    """
    return min(2 * cpus * (recording.buffer_kib << 10), _MOST_PAGES)


def result_bytes(plan: Plan, cpus: int) -> dict[str, int]:
    """Return the most bytes of each file that may be in the agent's results folder of a plan.

    Parameters
    ----------
    plan : Plan
        The plan.
    cpus : int
        Processors of the machine, as it says itself.
    """
    most = {"agent.json": DOCUMENT_BYTES, "console.txt": CONSOLE_BYTES}
    most |= dict.fromkeys(("facts.json", "status.json"), _FACTS_BYTES)
    for cell in plan.cells:
        most[f"cells/{cell.id}.json"] = cell_bytes(cell)
        if cell.recording is not None:
            pages = pages_bytes(cell.recording, cpus)
            most[f"traces/{cell.id}.dat"] = pages + _TRACE_HEAD
    return most
