# SPDX-License-Identifier: MIT
"""Types of the agent's result of a cell, as it stands in ``cells/ID.json``.

Counters are absolute: subtract the first sample from the last. `iolab.agent.block` writes results,
and `iolab.foreign` checks what enters from a machine that is not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

__all__ = [
    "AntagonistResult",
    "CellResult",
    "CpuSample",
    "DdProcess",
    "ProgramResult",
    "Sample",
    "TaskCounter",
    "TaskSample",
    "growth",
]

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
