# SPDX-License-Identifier: MIT
"""Data types of a plan: what the agent does in one block.

A plan names devices, file systems and jobs that the agent knows. A program may be named for a
virtual machine only (`iolab_agent.plan_work`). `iolab_agent.plan_reader` reads a plan and checks
every value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from iolab_agent.fio_options import faults_of
from iolab_agent.plan_work import Copies, FioJob, Job, OpenJob, Program, Section

__all__ = [
    "FORMAT",
    "Antagonist",
    "Cell",
    "Copies",
    "Device",
    "FileSystem",
    "FioJob",
    "Group",
    "Job",
    "OpenJob",
    "Plan",
    "Program",
    "Recording",
    "Section",
    "Watch",
    "cores_of_work",
    "in_memory",
    "needs_guest",
    "programs_of",
    "stored_by",
]

FORMAT = "iolab-plan/2"
# Kinds of devices that exist already.
_EXISTING = {"named", "directory"}
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# What stands for the digest of dm-verity's tree in a table.
_ROOT = "root"


@dataclass(frozen=True)
class Device:
    """A block device that the agent makes for one cell, or one that exists already.

    Parameters
    ----------
    name : str
        Name by which the cell refers to the device.
    kind : str
        "null_blk", "scsi_debug", "loop", "zram" or "brd" are made. "dm" and "md" are made over
        devices that the cell lists before them. "nvme" is QEMU's, in a virtual machine only.
        "named" is the device `path`, which is overwritten. "directory" is the disk beneath the
        folder `path`, where the files are made.
    size_mib : int
        Size in MiB; of an existing device the space that the cell needs.
    memory_backed : bool, optional
        Whether null_blk stores data. False where the content does not matter; nvme stores none.
    irqmode : int, optional
        null_blk's completion: 0 in the submitter's context, 1 from a softirq, 2 from a timer.
    completion_ns : int, optional
        Time from submission to completion of a timer (irqmode 2) and of scsi_debug, in ns.
    queue_depth : int, optional
        Depth of null_blk's hardware queue.
    scheduler : str, optional
        I/O scheduler during the measurement.
    rotational : bool, optional
        Whether the kernel treats the device as a rotating disk.
    integrity : bool, optional
        Whether scsi_debug has T10 protection information of type 1.
    tunables : dict of str to int, optional
        Tunables of the I/O scheduler.
    path : str, optional
        Absolute path of an existing device. A loop device with a path does direct I/O on a file
        that is made in that folder; without one its file is in memory.
    serial : str, optional
        Serial number of a "named" disk that the user typed: its data may be lost.
    table : str, optional
        Table of a "dm" device, one target a line as for dmsetup(8), with ``{NAME}`` in place of a
        device and ``{root}`` in place of a verity target's digest.
    level : str, optional
        Level of a "md" array: "raid0" or "raid1".
    members : list of str, optional
        Names of a "md" array's devices, all of one size.
    chunk_kib : int, optional
        Chunk of a raid0, in KiB.
    """

    name: str
    kind: str
    size_mib: int
    memory_backed: bool = True
    irqmode: int = 0
    completion_ns: int = 0
    queue_depth: int = 1024
    scheduler: str = "none"
    rotational: bool = False
    integrity: bool = False
    tunables: dict[str, int] = field(default_factory=dict)
    path: str = ""
    serial: str | None = None
    table: str = ""
    level: str = ""
    members: list[str] = field(default_factory=list)
    chunk_kib: int = 64

    @property
    def beneath(self) -> list[str]:
        """Names of the devices that it is made over."""
        named = [name for name in _PLACEHOLDER.findall(self.table) if name != _ROOT]
        return list(dict.fromkeys([*named, *self.members]))

    @property
    def drive(self) -> str:
        """What identifies QEMU's disk of a "nvme" device, also to the kernel: its serial number."""
        return f"{self.name}.{self.size_mib}"

    @property
    def real(self) -> bool:
        """Whether the device exists already, with properties of its own."""
        return self.kind in _EXISTING


@dataclass(frozen=True)
class FileSystem:
    """A file system that is made fresh for one cell.

    Parameters
    ----------
    kind : str
        "xfs", "ext4", "btrfs", "f2fs" or "tmpfs".
    device : str, optional
        Name of the device; with `realtime_device`, of the device of the metadata. ext4 may be on a
        device that stores nothing: its metadata then stay in memory. tmpfs has none.
    realtime_device : str, optional
        Name of the device of XFS's data.
    mkfs, mount : list of str, optional
        Further arguments of mkfs, and options of mount, in a virtual machine: on a real one they
        could name other disks.
    """

    kind: str
    device: str = ""
    realtime_device: str | None = None
    mkfs: list[str] = field(default_factory=list)
    mount: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """A fresh cgroup for the work.

    Parameters
    ----------
    settings : dict of str to (int or str), optional
        Values by the names of cgroup v2's files, such as ``{"cpu.weight": 1000}``. The controllers
        of these files are enabled. `iolab_agent.cgroup_files` lists the files.
    controllers : list of str, optional
        Controllers that are enabled although none of their files is changed.
    """

    settings: dict[str, int | str] = field(default_factory=dict)
    controllers: list[str] = field(default_factory=list)

    @property
    def enabled(self) -> list[str]:
        """All controllers that the cgroup has."""
        return sorted({*self.controllers, *(name.partition(".")[0] for name in self.settings)})


@dataclass(frozen=True)
class Antagonist:
    """Work that runs beside the measured work, until that has ended. It is a job or a program.

    Parameters
    ----------
    job : Job or OpenJob, optional
        A fio run, with files of its own beside those of the measured work. It is ended with the
        measured work; its ``runtime_ms`` is the longest that it runs.
    program : Program, optional
        A program. It is ended with the measured work unless it has a ``runtime_ms``; its
        ``ramp_ms`` and ``limit_ms`` do not matter.
    group : Group, optional
        A cgroup of its own; None leaves it in the agent's own cgroup.
    start_ms : int, optional
        When it starts, in ms from the start of the measured work; negative: before. It must run as
        soon as the steady part begins, and fio takes a while to start its job.
    device : str, optional
        Name of the cell's device that a job uses itself; None: the files or the device of the
        measured work.
    """

    job: FioJob | None = None
    program: Program | None = None
    group: Group | None = None
    start_ms: int = 0
    device: str | None = None


@dataclass(frozen=True)
class Watch:
    """An inotify watch that lasts while the job runs.

    Parameters
    ----------
    on : str
        "node" (the device's node), "directory" (the node's directory) or "other" (another node in
        that directory).
    event : str
        "close_write", "attrib" or "delete".
    """

    on: str
    event: str


@dataclass(frozen=True)
class Recording:
    """What trace-cmd records of a cell.

    Parameters
    ----------
    events : list of str
        Required tracepoints (``system:event``).
    window_ms : int, optional
        Length of the recorded window in a job's steady part, in ms. Copies are recorded whole.
    also : list of str, optional
        Tracepoints that are recorded where the kernel has them.
    buffer_kib : int, optional
        Size of each CPU's buffer, in KiB.
    """

    events: list[str]
    window_ms: int | None = None
    also: list[str] = field(default_factory=list)
    buffer_kib: int = 32768


@dataclass(frozen=True)
class Cell:
    """One measured run. Its work is one of a job, copies and a program.

    Parameters
    ----------
    devices : list of Device
        The devices. Without a file system the work uses the last one itself. A program and tmpfs
        need none.
    filesystem : FileSystem or None
        The file system.
    id : str
        Name of the cell, unique in its plan.
    job : Job or OpenJob, optional
        The work: a fio run.
    copies : Copies, optional
        The work: dd processes.
    program : Program, optional
        The work: a program, in a virtual machine.
    group : Group, optional
        The cgroup of the work; None leaves it in the agent's own cgroup.
    antagonist : Antagonist, optional
        Work that runs beside the measured work.
    watch : Watch, optional
        An inotify watch.
    settings : dict of str to int, optional
        Kernel settings by the names of `iolab_agent.settings`.
    features : dict of str to bool, optional
        Features of the scheduler that are switched on or off, by their names in the kernel.
    preemption : str, optional
        Preemption model; "" leaves it unchanged.
    count : list of str, optional
        Kernel functions whose calls, and tracepoints (``system:event``) whose hits are counted in
        the steady part.
    worker_nice : int, optional
        Nice value of the kernel workers of the plan's core; 0 leaves them unchanged.
    recording : Recording, optional
        What is recorded; None runs the cell without tracing.
    """

    devices: list[Device]
    filesystem: FileSystem | None
    id: str = ""
    job: FioJob | None = None
    copies: Copies | None = None
    program: Program | None = None
    group: Group | None = None
    antagonist: Antagonist | None = None
    watch: Watch | None = None
    settings: dict[str, int] = field(default_factory=dict)
    features: dict[str, bool] = field(default_factory=dict)
    preemption: str = ""
    count: list[str] = field(default_factory=list)
    worker_nice: int = 0
    recording: Recording | None = None


def in_memory(cell: Cell) -> bool:
    """Return whether a cell's files are on tmpfs.

    Parameters
    ----------
    cell : Cell
        The cell.

    Returns
    -------
    bool
        True without a device.
    """
    return cell.filesystem is not None and cell.filesystem.kind == "tmpfs"


def stored_by(name: str, devices: list[Device]) -> bool:
    """Return whether a device stores what is written to it.

    Parameters
    ----------
    name : str
        Its name.
    devices : list of Device
        The devices of its cell, each after those that it is made over.

    Returns
    -------
    bool
        False also for a device over one that stores nothing.
    """
    device = next(d for d in devices if d.name == name)
    return device.memory_backed and all(stored_by(under, devices) for under in device.beneath)


def programs_of(cell: Cell) -> list[Program]:
    """Return the programs that a cell runs: its work, its antagonist, a fio of the user's own.

    Parameters
    ----------
    cell : Cell
        The cell.

    Returns
    -------
    list of Program
        None or more.
    """
    beside = cell.antagonist
    works = [cell.program, None if beside is None else beside.program]
    jobs = [cell.job, None if beside is None else beside.job]
    works += [job.binary for job in jobs if job is not None]
    return [one for one in works if one is not None]


_UNDOABLE = (
    "a program runs in the virtual machine only: what it changes on a real machine cannot be undone"
)


def needs_guest(cell: Cell) -> str:
    """Return why only a virtual machine may run a cell, or "".

    Parameters
    ----------
    cell : Cell
        The cell.

    Returns
    -------
    str
        The reason: a program, or options of fio, mkfs or mount that a real machine refuses.
    """
    if programs_of(cell):
        return _UNDOABLE
    if cell.filesystem is not None and (cell.filesystem.mkfs or cell.filesystem.mount):
        return "options of mkfs and mount are for the virtual machine"
    jobs = [cell.job, None if cell.antagonist is None else cell.antagonist.job]
    unchecked = [job for job in jobs if isinstance(job, OpenJob) and job.unchecked]
    faults = [f for job in unchecked for s in job.sections for f in faults_of(s.options)]
    listed = "; ".join(dict.fromkeys(faults)) or "its options are unchecked"
    return f"the fio job runs in the virtual machine only: {listed}" if unchecked else ""


def cores_of_work(cell: Cell, cpu: int) -> list[int]:
    """Return the cores that a cell's work may use; `cpu` is the plan's."""
    work = cell.job or cell.program
    return (list(work.cpus) if work is not None else []) or [cpu]


@dataclass(frozen=True)
class Plan:
    """One block: the cells in the order in which they run on one boot.

    Parameters
    ----------
    block : str
        Name of the block.
    cpu : int
        The core that every job is pinned to.
    cells : list of Cell
        The cells.
    modules : list of str, optional
        Kernel modules that are loaded once for the block.
    coalesced_timers : bool, optional
        Whether the kernel must run without high-resolution timers, so that null_blk completes once
        a tick.
    boot_options : list of str, optional
        Parameters of the kernel's command line that this boot must have.
    hardware : bool, optional
        Whether the machine is a real one, which others use, too: its settings are pinned and its
        state is recorded (`iolab_agent.facts`).
    draw : int, optional
        What a virtual machine's boot is drawn from (`icountvm.qemu.QemuMachine`), 0 to 2**31 - 1.
    """

    block: str
    cpu: int
    cells: list[Cell]
    modules: list[str] = field(default_factory=list)
    coalesced_timers: bool = False
    boot_options: list[str] = field(default_factory=list)
    hardware: bool = False
    draw: int = 0
