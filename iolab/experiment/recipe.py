# SPDX-License-Identifier: MIT
"""The cells of a question: what they have in common, and whether it fits on their machine."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fiojobs.options import is_set
from fiojobs.starting import fault_at_start
from iolab.pathology.base import Machine, Profile
from iolab.pathology.factors import MOST_CPUS, NO_INTERVENTION, intervention
from iolab.results import CellResult
from iolab.shown import counted
from iolab_agent.cgroup_files import cores_of, kernel_text
from iolab_agent.fio_options import ends_of, faults_of, memory_of, processes_of, sets_same
from iolab_agent.fio_values import bytes_of
from iolab_agent.plan import (
    Antagonist,
    Cell,
    Device,
    FileSystem,
    FioJob,
    Group,
    OpenJob,
    Program,
    Section,
)
from iolab_agent.plan_devices import check_devices
from iolab_agent.settings import SETTINGS
from iolab_base.errors import UserError
from iolab_base.names import one_of

# Kernel modules by kind of device, file system and I/O scheduler.
_MODULES = {
    "null_blk": ("null_blk",),
    # The agent loads scsi_debug for each cell: its parameters define the disk.
    "scsi_debug": ("sd_mod",),
    "loop": ("loop",),
    "zram": ("zram",),
    "nvme": ("nvme",),
    "dm": ("dm_mod",),
    "md": ("md_mod",),
    "xfs": ("crc32c", "xfs"),
    "ext4": ("crc32c", "ext4"),
    "btrfs": ("crc32c", "btrfs"),
    "f2fs": ("crc32c", "f2fs"),
    "bfq": ("bfq",),
}
# What fio 3.33 takes for options that a job need not have (fio(1)).
_DEFAULTS: Final = {
    "rw": "read",
    "bs": "4k",
    "ioengine": "psync",
    "iodepth": "1",
    "numjobs": "1",
    "direct": "0",
    "fsync": "0",
    "thinktime": "0",
}
# MiB of a virtual machine that its kernel, its image and the agent take.
_MACHINE_MIB: Final = 340
# Kinds of devices whose contents are in the machine's memory.
_IN_MEMORY: Final = frozenset({"null_blk", "scsi_debug", "brd", "loop", "zram"})
# Kinds of devices that answer within the time they are given, a short one, and how many
# processes take turns within milliseconds.
_USUAL: Final = ("null_blk", "scsi_debug")
_SOON_NS: Final = 10_000
_FEW: Final = 4
# Options by which a job waits or slows itself down.
_PACED: Final = re.compile("rate|thinktime|startdelay|latency_")
# What a file system takes of its device: its log (of XFS at least 64 MiB), and a share.
_LOG_MIB: Final = 68
_TAKEN: Final = 0.03


@dataclass(frozen=True)
class Recipe:
    """What a question's cells have in common: a fio job (`sections`) or a `program`."""

    sections: tuple[Section, ...]
    program: Program | None
    # Files of the work's cgroup, also for the control; empty: no cgroup.
    group: Mapping[str, int | str]
    # In every cell if `beside`, otherwise where the factor of this name turns it on.
    antagonist: Antagonist | None
    devices: tuple[Device, ...]
    filesystem: FileSystem | None
    # As in `OpenJob`.
    size_mib: int
    layout: str
    ramp_ms: int
    runtime_ms: int
    # Of the virtual machine, all of whose cores the work may use.
    cpus: int
    memory_mib: int
    settings: Mapping[str, int] = field(default_factory=dict)
    # Kernel functions and tracepoints.
    count: tuple[str, ...] = ()
    beside: bool = True
    shared_file: bool = False
    to_end: bool = False
    # The fio of the job; None: the guest's.
    binary: Program | None = None
    # Names of the sections of each phase of the job, by the phase's name.
    phases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    worker_nice: int = 0
    # A level of the factor of this name, where it changes together with something else.
    intervention: str = NO_INTERVENTION
    # Of a machine of its own; empty: the kernels that are compared.
    kernel: str = ""

    def cell(self, profile: Profile, rng: random.Random) -> Cell:
        """Return the agent's cell."""
        cores = list(range(self.cpus))
        job = None
        if self.program is None:
            job = OpenJob(
                sections=list(self.sections),
                size_mib=self.size_mib,
                layout=self.layout,
                ramp_ms=profile.ramp_ms,
                runtime_ms=profile.runtime_ms,
                seed=rng.randrange(1, 2**31),
                # Phase of the tick at which the run begins.
                start_delay_us=rng.randrange(4000),
                cpus=cores,
                shared_file=self.shared_file,
                unchecked=any(faults_of(section.options) for section in self.sections),
                to_end=self.to_end,
                binary=self.binary,
            )
        program = None
        if self.program is not None:
            program = replace(self.program, cpus=cores, start_delay_us=rng.randrange(4000))
        cell = Cell(
            devices=list(self.devices),
            filesystem=self.filesystem,
            job=job,
            program=program,
            group=Group(dict(self.group)) if self.group else None,
            antagonist=self.antagonist if self.beside else None,
            settings=dict(self.settings),
            worker_nice=self.worker_nice,
            count=list(self.count),
        )
        return intervention(self.intervention).of(cell)

    def counts(self, result: CellResult) -> dict[str, float]:
        """Return how often each counted function or tracepoint was hit, per I/O of the device.

        A program's are per second.
        """
        first, last = result["first"], result["last"]
        amount = float(last["ios"] - first["ios"])
        if self.program is not None:
            amount = (last["at_ns"] - first["at_ns"]) / 1e9
        return {
            column: (last["calls"][name] - first["calls"][name]) / amount if amount else math.nan
            for name, column in self.counted.items()
        }

    @property
    def counted(self) -> dict[str, str]:
        """Names of the measures `counts` by function or tracepoint."""
        unit = "io" if self.program is None else "s"
        return {name: f"{name.replace(':', '_')}_per_{unit}" for name in self.count}

    @property
    def modules(self) -> tuple[str, ...]:
        """The kernel modules that its devices and its file system need."""
        kinds = [device.kind for device in self.devices]
        kinds += [device.scheduler for device in self.devices]
        kinds += [] if self.filesystem is None else [self.filesystem.kind]
        return tuple(dict.fromkeys(m for kind in kinds for m in _MODULES.get(kind, ())))

    @property
    def settles_soon(self) -> bool:
        """Whether 100 ms, soon after its start, show what longer ones do.

        Not so with writeback, balancing between cores, quotas by period, processes that take turns,
        pacing by the job itself, and devices and I/O schedulers that keep an I/O for milliseconds.
        """
        limits = any(name.endswith(".max") for name in self.group)
        processes = sum(processes_of(section.options) for section in self.sections)
        if self.program or self.antagonist or self.cpus > 1 or limits or processes > _FEW:
            return False
        return all(
            is_set(section.options, "direct") and not any(map(_PACED.match, section.options))
            for section in self.sections
        ) and all(
            device.kind in _USUAL
            and device.completion_ns <= _SOON_NS
            and device.scheduler == "none"
            for device in self.devices
        )

    @property
    def machine(self) -> Machine:
        """The virtual machine, with these modules."""
        machine = Machine(cpus=self.cpus, memory_mib=self.memory_mib, modules=self.modules)
        return machine.under(intervention(self.intervention))


def in_effect(recipe: Recipe) -> Recipe:
    """Return a recipe with one spelling for values that mean the same: 32 and "32", 4k and 4096."""
    sections = tuple(Section(s.name, _options_in_effect(s.options)) for s in recipe.sections)
    group = {name: kernel_text(name, value) for name, value in recipe.group.items()}
    return replace(recipe, sections=sections, group=group)


def _options_in_effect(given: Mapping[str, str]) -> dict[str, str]:
    known = dict(_DEFAULTS)
    for name, value in given.items():
        known[next((default for default in _DEFAULTS if sets_same(default, name)), name)] = value
    # An option that stands alone is 1.
    return {name: str(bytes_of(value) or value or 1) for name, value in known.items()}


def check_given(devices: Sequence[Device], recipe: Recipe) -> None:
    """Raise UserError for unknown settings, and devices that are impossible or ignore a value."""
    for setting in recipe.settings:
        one_of("kernel setting", setting, SETTINGS)
    check_devices(list(devices), recipe.filesystem, "the question")
    for one in devices:
        if one.kind == "scsi_debug" and one.queue_depth != Device.queue_depth:
            raise UserError(f"device {one.name!r}: scsi_debug has no queue_depth, null_blk has")
        if one.kind == "null_blk" and one.completion_ns and one.irqmode != 2:
            raise UserError(f"device {one.name!r}: completion_ns of null_blk needs irqmode=2")


def check_recipe(recipe: Recipe, cell: Cell) -> None:
    """Raise UserError, which names an argument to change, if a cell cannot run on its machine."""
    if not 1 <= recipe.cpus <= MOST_CPUS:
        raise UserError(f"cpus must be 1-{MOST_CPUS}, not {recipe.cpus}")
    antagonist = cell.antagonist
    beside = () if antagonist is None else (antagonist.job, antagonist.program)
    for work in (cell.job, cell.program, *beside):
        cores = [] if work is None else list(work.cpus)
        if isinstance(work, OpenJob):
            _check_start(recipe, work)
            asked = [section.options.get("cpus_allowed") for section in work.sections]
            cores += [core for text in asked if text for core in cores_of(text) or []]
        _check_cores(recipe, "the job's cores (cpus_allowed)", cores)
    groups = (cell.group, None if antagonist is None else antagonist.group)
    for group in filter(None, groups):
        listed = cores_of(str(group.settings.get("cpuset.cpus", "")))
        _check_cores(recipe, "cpuset.cpus", listed or [])
    if recipe.devices and not recipe.devices[-1].real:
        jobs = (cell.job, None if antagonist is None or antagonist.device else antagonist.job)
        _check_room(recipe, [job for job in jobs if job is not None])
        _check_reach(recipe.devices[-1], cell.job)
        _check_memory(recipe, [job for job in jobs if isinstance(job, OpenJob)])


def _check_cores(recipe: Recipe, what: str, cores: list[int]) -> None:
    if cores and max(cores) >= recipe.cpus:
        raise UserError(
            f"{what} name core {max(cores)}, but the machine has cpus={recipe.cpus}, counted from "
            f"0: give cpus={max(cores) + 1}"
        )


def room_mib(device: Device, filesystem: str | None, memory_mib: int) -> int:
    """Return how much space a job's files may take on a device, and of the device's memory."""
    room = device.size_mib
    if filesystem is not None:
        log = _LOG_MIB if filesystem == "xfs" else min(_LOG_MIB, room // 8)
        room = int(room * (1 - _TAKEN)) - log
    left = memory_mib - _MACHINE_MIB
    if device.kind == "scsi_debug":
        # It takes the whole of its memory at once.
        return room if device.size_mib <= left else 0
    return min(room, left) if _in_memory(device) else room


def _check_reach(device: Device, job: FioJob | None) -> None:
    """Check that no section's size and offset, which may be the treatment's, pass the device."""
    if not isinstance(job, OpenJob):
        return
    for section in job.sections:
        end = max(ends_of(section.options, job.size_mib << 20)) >> 20
        if end > device.size_mib and not section.makes_files:
            raise UserError(
                f"section {section.name} of the fio job ends at {end} MiB (size, offset), and the "
                f"device {device.name!r} at {device.size_mib}"
            )


def _check_start(recipe: Recipe, job: OpenJob) -> None:
    device = "" if recipe.filesystem or not recipe.devices else recipe.devices[-1].kind
    for section in job.sections:
        if fault := fault_at_start(section.options, job.size_mib << 20, device):
            raise UserError(f"section {section.name} of the fio job {fault}")


def _in_memory(device: Device) -> bool:
    return device.kind in _IN_MEMORY and device.memory_backed and not device.path


def _check_memory(recipe: Recipe, jobs: list[OpenJob]) -> None:
    """Check what the agent would refuse after a boot (_check_memory in iolab_agent/fio.py)."""
    left = recipe.memory_mib - _MACHINE_MIB
    if recipe.devices[-1].kind == "scsi_debug":
        left -= recipe.devices[-1].size_mib
    elif recipe.filesystem and recipe.layout == "written" and _in_memory(recipe.devices[-1]):
        left -= sum(job.files * job.size_mib for job in jobs)
    for job in jobs:
        sections = [memory_of(section.options, job.size_mib << 20) for section in job.sections]
        locked = [
            processes_of(section.options) * bytes_of(section.options.get("lockmem", ""))
            for section in job.sections
        ]
        need = sum(sections + locked) >> 20
        if need > max(left, 0) * 3 // 4:
            what = "lockmem" if any(locked) else "iodepth, bs or numjobs"
            raise UserError(
                f"the fio job needs {need} MiB of memory, and memory_mib="
                f"{recipe.memory_mib} leaves {max(left, 0) * 3 // 4}: lower {what}, or give "
                f"memory_mib={recipe.memory_mib - left + need * 4 // 3 + 1}"
            )


def _check_room(recipe: Recipe, jobs: list[FioJob]) -> None:
    """Check that the files fit on the device, and what it stores into the machine's memory."""
    device = recipe.devices[-1]
    if recipe.filesystem is None:
        need = max((job.size_mib for job in jobs), default=0)
        what = f"size_mib={need}"
    else:
        need = sum(job.files * job.size_mib for job in jobs)
        files = counted(sum(job.files for job in jobs), "file")
        what = f"{files} of size_mib={recipe.size_mib}"
    kind = None if recipe.filesystem is None else recipe.filesystem.kind
    room = room_mib(device, kind, recipe.memory_mib)
    if need <= room:
        return
    if need <= room_mib(device, kind, recipe.memory_mib + device.size_mib):
        more = device.size_mib if device.kind == "scsi_debug" else need
        raise UserError(
            f"{what} need {more} MiB of the machine's memory, and memory_mib="
            f"{recipe.memory_mib} leaves {recipe.memory_mib - _MACHINE_MIB}: give "
            f"memory_mib={more + _MACHINE_MIB}, or a smaller size_mib"
        )
    raise UserError(
        f"{what} need {need} MiB, and the device {device.name!r} has room for {max(0, room)}: give "
        "a smaller size_mib, fewer processes, or a larger device"
    )
