# SPDX-License-Identifier: MIT
"""Data types of a cell's work: the programs that do I/O while a cell is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Union

from iolab_agent.fio_options import processes_of


@dataclass(frozen=True)
class Job:
    """One fio run on a file for each of its processes, or on the device itself.

    Parameters
    ----------
    engine : str
        fio's ioengine.
    rw : str
        "read", "write", "randread" or "randwrite".
    block_size : int
        Bytes of one I/O.
    iodepth : int
        I/Os in flight of each process.
    numjobs : int
        Number of processes.
    batch : int
        fio's iodepth_batch_submit and iodepth_batch_complete_max.
    size_mib : int
        Size of each file in MiB.
    layout : str
        "written" lays the files out with written extents; "unwritten" preallocates them, so that
        every first write converts its extent; "growing" leaves making them to the job.
    ramp_ms : int
        Time before the steady part, in ms.
    runtime_ms : int
        Time of the job with its steady part, in ms; more than `ramp_ms`.
    seed : int
        fio's randseed.
    direct : bool, optional
        Whether the files are opened with O_DIRECT.
    start_delay_us : int, optional
        Delay before the job starts, in us.
    cpus : list of int, optional
        Cores that the job may run on; empty: the plan's.
    dsync : bool, optional
        Whether the files are opened with O_DSYNC.
    batch_min : int, optional
        fio's iodepth_batch_complete_min: how many completions it waits for.
    """

    engine: str
    rw: str
    block_size: int
    iodepth: int
    numjobs: int
    batch: int
    size_mib: int
    layout: str
    ramp_ms: int
    runtime_ms: int
    seed: int
    direct: bool = True
    start_delay_us: int = 0
    cpus: list[int] = field(default_factory=list)
    dsync: bool = False
    batch_min: int = 1

    # What an `OpenJob` may have, and a job with one set of options never has.
    to_end: ClassVar[bool] = False
    threads: ClassVar[bool] = False
    makes_files: ClassVar[bool] = False
    binary: ClassVar[None] = None

    @property
    def files(self) -> int:
        """How many files of `size_mib` the job has."""
        return self.numjobs


# Where the files of programs are in the guest.
PROGRAMS = "/iolab/programs"


@dataclass(frozen=True)
class Program:
    """A program that runs to its end, or for a fixed time. No shell reads its arguments.

    It runs in the cell's file system, otherwise in an empty folder. Only a virtual machine runs it:
    what a program does to a machine cannot be journalled (`iolab_agent.program`).

    Parameters
    ----------
    argv : list of str
        Absolute path of a program in the guest, and its arguments. ``{device}`` in an argument
        stands for the node of the cell's device.
    files : dict of str to str, optional
        SHA-256 (hex) of each file that the guest gets for it, by its path below `PROGRAMS`.
    runtime_ms : int, optional
        Time of its steady part, in ms; then it is ended with SIGTERM. None lets it run to its end.
    ramp_ms : int, optional
        With `runtime_ms`: time from its start to the steady part, in ms.
    limit_ms : int, optional
        Without `runtime_ms`: the longest that it may take to its end, in ms.
    value : str, optional
        A regular expression with one group: the number in its last match in the program's output is
        the measure ``program_value``.
    cpus : list of int, optional
        Cores that the program may run on; empty: the plan's.
    start_delay_us : int, optional
        Delay before it starts, in us.
    """

    argv: list[str]
    files: dict[str, str] = field(default_factory=dict)
    runtime_ms: int | None = None
    ramp_ms: int = 0
    limit_ms: int = 60_000
    value: str | None = None
    cpus: list[int] = field(default_factory=list)
    start_delay_us: int = 0


@dataclass(frozen=True)
class Section:
    """A section of a fio job: processes with the same options.

    Parameters
    ----------
    name : str
        The section's name.
    options : dict of str to str
        Value by option of fio; "" for an option that stands alone. `iolab_agent.fio_options` lists
        the options that are passed on.
    """

    name: str
    options: dict[str, str]

    @property
    def makes_files(self) -> bool:
        """Whether fio makes the section's files, or it names devices."""
        return "filename" in self.options or "directory" in self.options


@dataclass(frozen=True)
class OpenJob:
    """One fio run with any options of fio.

    All sections run at the same time. A process uses a file of its own, or the device itself,
    unless its section names a ``filename`` or ``directory``: then fio makes its files.

    Parameters
    ----------
    sections : list of Section
        The sections.
    size_mib : int
        Size of each file, or of the used part of the device, in MiB.
    layout : str
        As `Job`.
    ramp_ms : int
        Time before the steady part, in ms.
    runtime_ms : int
        Time of the job with its steady part, in ms; more than `ramp_ms`.
    seed : int
        fio's randseed.
    start_delay_us : int, optional
        Delay before the job starts, in us.
    cpus : list of int, optional
        Cores of the sections without cpus_allowed; empty: the plan's.
    shared_file : bool, optional
        Whether all processes use one file.
    unchecked : bool, optional
        Whether fio gets options that may reach files, programs and devices. Only a virtual machine
        runs such a job. In values ``{folder}`` stands for the folder of the work's files, and
        ``{device:0}`` for the node of the cell's first device.
    to_end : bool, optional
        Whether the job runs to its own end, at most `runtime_ms`, without a ramp.
    binary : Program, optional
        The fio that runs the job, as its ``argv`` and ``files``; by default the machine's.
    """

    sections: list[Section]
    size_mib: int
    layout: str
    ramp_ms: int
    runtime_ms: int
    seed: int
    start_delay_us: int = 0
    cpus: list[int] = field(default_factory=list)
    shared_file: bool = False
    unchecked: bool = False
    to_end: bool = False
    binary: Program | None = None

    @property
    def files(self) -> int:
        """How many files of `size_mib` the job has, beside those that fio makes."""
        if self.shared_file:
            return 1
        return sum(processes_of(s.options) for s in self.sections if not s.makes_files)

    @property
    def makes_files(self) -> bool:
        """Whether a section has files that fio makes, or names devices."""
        return any(s.makes_files for s in self.sections)

    @property
    def processes(self) -> int:
        """How many processes the job has."""
        return sum(processes_of(s.options) for s in self.sections)

    @property
    def threads(self) -> bool:
        """Whether a section's jobs are threads of one process."""
        return any(s.options.get("thread", "0") != "0" for s in self.sections)

    @property
    def direct(self) -> bool:
        """Whether a section opens its files with O_DIRECT."""
        return any(
            s.options.get("direct", "0") in ("", "1") or s.options.get("buffered") == "0"
            for s in self.sections
        )


FioJob = Union[Job, OpenJob]


@dataclass(frozen=True)
class Copies:
    """dd processes one after another; each writes zeros to a new file, or to the device's start.

    Parameters
    ----------
    block_size : int
        Bytes of one write.
    writes : int
        Number of writes of each process.
    processes : int
        Number of processes.
    dsync : bool, optional
        Whether every write is on the device before the next one (O_DSYNC).
    start_delay_us : int, optional
        Delay before the first process starts, in us.
    """

    block_size: int
    writes: int
    processes: int
    dsync: bool = False
    start_delay_us: int = 0
