# SPDX-License-Identifier: MIT
"""The place to measure on: a plan's own devices, a folder, a disk, or a device made instead."""

from __future__ import annotations

from dataclasses import dataclass, replace

from iolab_agent.plan import Cell, Device, FileSystem, Plan, in_memory, needs_guest
from iolab_base.errors import CannotRunError

MADE = ("zram", "brd", "loop")

_SHARED_MODULES = ("bfq", "btrfs", "crc32c", "ext4", "f2fs", "xfs")
# The space that a file system keeps for itself.
_SPARE_MIB = 64
# The least that fio and mkfs need on a small disk.
_LEAST_MIB = 512


@dataclass(frozen=True)
class Place:
    """A folder on a mounted file system, or a disk to be overwritten, or a plan's own devices."""

    directory: str | None = None
    disk: str | None = None
    # The disk's serial number if the user typed it.
    serial: str | None = None
    # What is made for each cell instead, one of `MADE`: zram and brd in memory, loop in the folder.
    make: str | None = None

    @property
    def label(self) -> str:
        """Return a word that distinguishes results from such a place from others."""
        return self.make or ("directory" if self.directory else "disk" if self.disk else "")

    @property
    def named(self) -> bool:
        """Whether it is, or is in, something that exists already."""
        return bool(self.directory or self.disk)

    def put(self, plan: Plan) -> Plan:
        """Return a plan whose cells work here; CannotRunError if a cell's work cannot."""
        plan = replace(plan, modules=_used_modules(plan))
        if not self.label:
            return plan
        cells = [self._cell(cell) for cell in plan.cells]
        # The plan's timers and modules belong to its own devices, except bfq.
        modules = [m for m in plan.modules if m == "bfq"]
        # brd is loaded for each cell: that makes its disk.
        modules += [self.make] if self.make in ("zram", "loop") else []
        return replace(plan, cells=cells, modules=modules, coalesced_timers=False)

    def _cell(self, cell: Cell) -> Cell:
        if reason := needs_guest(cell):
            raise CannotRunError(reason)
        if cell.antagonist is not None and cell.antagonist.device is not None:
            raise CannotRunError("its antagonist needs a second device, and there is one here")
        if in_memory(cell):
            return cell
        filesystem = cell.filesystem
        if filesystem is None:
            name = cell.devices[-1].name
        else:
            name = filesystem.realtime_device or filesystem.device
        data = next(d for d in cell.devices if d.name == name)
        if data.beneath:
            raise CannotRunError(f"it needs a {data.kind} device, which only a recipe makes")
        if data.integrity:
            raise CannotRunError("it needs protection information, which only a made device has")
        device = self._device(data, _size_mib(cell), on_files=filesystem is not None)
        on_it = None if filesystem is None else FileSystem(filesystem.kind, name)
        if device.kind == "directory":
            on_it = None
        return replace(cell, devices=[device], filesystem=on_it)

    def _device(self, data: Device, size_mib: int, *, on_files: bool) -> Device:
        """Return the device that takes the place of a plan's device `data`."""
        plain = Device(
            data.name, "", size_mib, scheduler=data.scheduler, tunables=dict(data.tunables)
        )
        if self.make == "loop":
            path = self.directory or ""
            return replace(plain, kind="loop", path=path, rotational=data.rotational)
        if self.make:
            if data.scheduler != "none":
                raise CannotRunError(
                    f"it needs the I/O scheduler {data.scheduler}: {self.make} has none"
                )
            return replace(plain, kind=self.make)
        if self.directory:
            if not on_files:
                raise CannotRunError("it uses a device without files: name one (--destroy)")
            return replace(plain, kind="directory", path=self.directory)
        return replace(plain, kind="named", path=self.disk or "", serial=self.serial)


def _used_modules(plan: Plan) -> list[str]:
    """Return a plan's modules without those that only share its virtual machine."""
    systems = [cell.filesystem.kind for cell in plan.cells if cell.filesystem is not None]
    used = {*systems, *(device.scheduler for cell in plan.cells for device in cell.devices)}
    used |= {"crc32c"} if systems else set()
    return [m for m in plan.modules if m in used or m not in _SHARED_MODULES]


def _size_mib(cell: Cell) -> int:
    """Return the room that a cell's work needs, in MiB."""
    data = 0
    if cell.copies is not None:
        data = cell.copies.block_size * cell.copies.writes * cell.copies.processes >> 20
    elif cell.job is not None:
        data = cell.job.size_mib * cell.job.files
    if cell.antagonist is not None and cell.antagonist.job is not None:
        data += cell.antagonist.job.size_mib * cell.antagonist.job.files
    return max(_LEAST_MIB, data + data // 10 + _SPARE_MIB)
