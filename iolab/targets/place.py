# SPDX-License-Identifier: MIT
"""What is measured on: the devices of a plan, or a folder, a disk or another made device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iolab.errors import CannotRunError

__all__ = ["MADE", "Place"]

MADE = ("zram", "brd", "loop")

# What a file system keeps for itself.
_SPARE_MIB = 64
# A small disk is as large as fio and mkfs want at the least.
_LEAST_MIB = 512


@dataclass(frozen=True)
class Place:
    """A folder on a mounted file system, or a disk to be overwritten, or a plan's own devices.

    ``serial`` is the disk's serial number if the user typed it. ``make`` is the kind of device that
    is made for each cell instead (one of `MADE`): zram and brd in memory, loop on a file in the
    folder.
    """

    directory: str | None = None
    disk: str | None = None
    serial: str | None = None
    make: str | None = None

    @property
    def label(self) -> str:
        """Return a word that tells results of such a place from others."""
        return self.make or ("directory" if self.directory else "disk" if self.disk else "")

    @property
    def named(self) -> bool:
        """Whether it is, or is in, something that is there already."""
        return bool(self.directory or self.disk)

    def put(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Return a plan whose cells do their work here.

        Errors: CannotRunError if a cell's work cannot be done in such a place.
        """
        if not self.label:
            return dict(plan)
        placed = [self._cell(cell) for cell in plan["cells"]]
        # Timers and modules are of the devices that are not made, but for the I/O scheduler.
        modules = [m for m in plan.get("modules", []) if m == "bfq"]
        # brd's is loaded for each cell: that is how its disk is made.
        modules += [self.make] if self.make in ("zram", "loop") else []
        rest = {k: v for k, v in plan.items() if k != "coalesced_timers"}
        return {**rest, "cells": placed, "modules": modules}

    def _cell(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        filesystem = cell["filesystem"]
        if filesystem is None:
            name = cell["devices"][-1]["name"]
        else:
            name = filesystem.get("realtime_device") or filesystem["device"]
        data = next(d for d in cell["devices"] if d["name"] == name)
        if data.get("integrity"):
            raise CannotRunError("it needs a disk with protection information, which is made")
        device = {k: data[k] for k in ("name", "scheduler", "tunables") if k in data}
        device["size_mib"] = _size_mib(cell)
        if self.make:
            device |= self._made(data)
            return {**cell, "devices": [device], "filesystem": _on(filesystem, name)}
        if self.directory:
            if filesystem is None:
                raise CannotRunError("it reads or writes a device itself: name one (--destroy)")
            device |= {"kind": "directory", "path": self.directory}
            return {**cell, "devices": [device], "filesystem": None}
        device |= {"kind": "named", "path": self.disk, "serial": self.serial}
        return {**cell, "devices": [device], "filesystem": _on(filesystem, name)}

    def _made(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a made device is in place of a plan's device `data`."""
        scheduler = data.get("scheduler", "none")
        if self.make != "loop":
            if scheduler != "none":
                raise CannotRunError(
                    f"it needs the I/O scheduler {scheduler}: {self.make} has none"
                )
            return {"kind": self.make}
        return {
            "kind": "loop",
            "path": self.directory,
            "rotational": data.get("rotational", False),
        }


def _on(filesystem: Mapping[str, Any] | None, device: str) -> dict[str, Any] | None:
    """Return a plan's file system with all of it on one device."""
    return None if filesystem is None else {"kind": filesystem["kind"], "device": device}


def _size_mib(cell: Mapping[str, Any]) -> int:
    """Return the room that a cell's work needs, in MiB."""
    if cell.get("copies") is not None:
        copies = cell["copies"]
        data = copies["block_size"] * copies["writes"] * copies["processes"] >> 20
    else:
        data = cell["job"]["size_mib"] * cell["job"]["numjobs"]
    return int(max(_LEAST_MIB, data + data // 10 + _SPARE_MIB))
