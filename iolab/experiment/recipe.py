# SPDX-License-Identifier: MIT
"""What the cells of a question have in common, and the agent's cell of a condition."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from iolab.agent.plan import (
    Antagonist,
    Cell,
    Device,
    FileSystem,
    Group,
    OpenJob,
    Program,
    Section,
)
from iolab.pathology.base import Machine, Profile
from iolab.pathology.factors import Condition

__all__ = ["Recipe"]

# Kernel modules by kind of device and file system.
_MODULES = {
    "null_blk": ("null_blk",),
    # The agent loads scsi_debug for each cell: its parameters define the disk.
    "scsi_debug": ("sd_mod",),
    "loop": ("loop",),
    "zram": ("zram",),
    "xfs": ("crc32c", "xfs"),
    "ext4": ("crc32c", "ext4"),
    "bfq": ("bfq",),
}


@dataclass(frozen=True)
class Recipe:
    """What a question's cells have in common: a fio job (`sections`) or a `program`.

    `group` has files of the work's cgroup, also for the control; empty: no cgroup. `antagonist`
    runs in every cell if `beside`, otherwise where the factor ``antagonist`` turns it on.
    `size_mib`, `layout`, `ramp_ms` and `runtime_ms` are as in `OpenJob`. `cpus` and `memory_mib`
    size the virtual machine, all of whose cores the work may use.
    """

    sections: tuple[Section, ...]
    program: Program | None
    group: Mapping[str, int | str]
    antagonist: Antagonist | None
    devices: tuple[Device, ...]
    filesystem: FileSystem | None
    size_mib: int
    layout: str
    ramp_ms: int
    runtime_ms: int
    cpus: int
    memory_mib: int
    settings: Mapping[str, int] = field(default_factory=dict)
    beside: bool = True

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
            )
        program = None
        if self.program is not None:
            program = replace(self.program, cpus=cores, start_delay_us=rng.randrange(4000))
        return Cell(
            devices=list(self.devices),
            filesystem=self.filesystem,
            job=job,
            program=program,
            group=Group(dict(self.group)) if self.group else None,
            antagonist=self.antagonist if self.beside else None,
            settings=dict(self.settings),
        )

    def machine(self, boot: Condition) -> Machine:
        """Return the virtual machine of a block."""
        kinds = [device.kind for device in self.devices]
        kinds += [device.scheduler for device in self.devices]
        kinds += [] if self.filesystem is None else [self.filesystem.kind]
        modules = dict.fromkeys(m for kind in kinds for m in _MODULES.get(kind, ()))
        return Machine(cpus=self.cpus, memory_mib=self.memory_mib, modules=tuple(modules))
