# SPDX-License-Identifier: MIT
"""Claim the disks and folders that a plan names, and check them again before each cell."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from iolab_agent.journal import Journal, machine_lock, restore_all
from iolab_agent.named import (
    DeviceInUseError,
    identity_of,
    node_of,
    number_of,
    open_free,
    serials,
)
from iolab_agent.plan import Cell, Device, Plan
from iolab_agent.trusted import resolved, trusted_folder
from iolab_base.errors import BusyError, IolabError

# include/uapi/linux/fs.h: write back and drop the page cache of a block device.
_BLKFLSBUF = 0x1261


class _Disk:
    """A disk that may be overwritten, kept open as long as the claim lasts.

    It has two descriptors. The plain one keeps the kernel from giving the disk's number to another
    disk. The exclusive one keeps others from mounting or claiming the disk; it is open between
    cells, and during a cell that uses the device itself. It would block our own mkfs and mount,
    too: `lend` closes it for them, and they open the disk exclusively themselves.
    """

    def __init__(self, node: Path, serial: str | None) -> None:
        self.node = node
        self._exclusive: int | None = open_free(node, serial)
        self._plain = os.open(f"/proc/self/fd/{self._exclusive}", os.O_RDONLY)
        self._identity = self._read_identity()

    def _read_identity(self) -> tuple[int, int, str]:
        return os.fstat(self._plain).st_rdev, number_of(self.node), identity_of(self.node)

    def take(self) -> None:
        """Drop the disk's page cache; DeviceInUseError if the disk is in use, gone or replaced."""
        try:
            identity = self._read_identity()
        except (IolabError, OSError) as error:
            raise DeviceInUseError(f"{self.node} is gone: {error}") from error
        if identity != self._identity:
            raise DeviceInUseError(
                f"{self.node} is not the disk that was checked before the first cell, so nothing "
                "was written to it"
            )
        try:
            if self._exclusive is None:
                path = f"/proc/self/fd/{self._plain}"
                self._exclusive = os.open(path, os.O_RDONLY | os.O_EXCL)
            # The last close of a device drops its page cache; a claimed device stays open.
            fcntl.ioctl(self._plain, _BLKFLSBUF)
        except OSError as error:
            raise DeviceInUseError(f"{self.node} is in use by now: {error.strerror}") from error

    def lend(self) -> None:
        """Let mkfs and mount open the disk exclusively."""
        if self._exclusive is not None:
            os.close(self._exclusive)
            self._exclusive = None

    def close(self) -> None:
        """Close both descriptors."""
        self.lend()
        os.close(self._plain)


class PlaceClaim:
    """The disks and folders that the cells of a block may write.

    Construction checks them all and opens the disks. ``plan`` is the plan with canonical paths:
    links are followed only here, so later changes to them do not matter. Raises DeviceInUseError if
    a disk must not be overwritten, UserError if another user could redirect a path.
    """

    def __init__(self, plan: Plan) -> None:
        self._open_disks = ExitStack()
        self._disks: dict[str, _Disk] = {}
        self._folders: dict[str, tuple[int, int]] = {}
        canonical: dict[tuple[str, str, str | None], str] = {}
        cells = []
        try:
            for cell in plan.cells:
                devices = []
                for device in cell.devices:
                    key = (device.kind, device.path, device.serial)
                    if device.path and key not in canonical:
                        canonical[key] = self._claim(device)
                    devices.append(replace(device, path=canonical.get(key, "")))
                cells.append(replace(cell, devices=devices))
        except BaseException:
            self.close()
            raise
        self.plan = replace(plan, cells=cells)

    def _claim(self, device: Device) -> str:
        """Check a device's disk or folder and return its canonical path."""
        if device.kind != "named":
            folder = trusted_folder(Path(device.path))
            self._folders[str(folder)] = _inode(folder)
            return str(folder)
        node = node_of(resolved(Path(device.path)))
        if str(node) not in self._disks:
            disk = _Disk(node, device.serial)
            self._open_disks.callback(disk.close)
            self._disks[str(node)] = disk
        elif device.serial is not None and device.serial not in serials(node):
            raise DeviceInUseError(f"{device.serial!r} is not the serial number of {node}")
        return str(node)

    def note_wipes(self, journal: Journal) -> None:
        """Note in the block's journal to wipe the disks; it must not be restored before `close`."""
        for disk in self._disks.values():
            journal.note("wipe", str(disk.node), identity_of(disk.node))

    def take(self, cell: Cell) -> None:
        """Check the disks and folders of a cell again, before anything is written to them.

        Raises DeviceInUseError if one is in use or was replaced.
        """
        for path in {device.path for device in cell.devices if device.path}:
            if path in self._disks:
                self._disks[path].take()
                continue
            folder = trusted_folder(Path(path))
            if str(folder) != path or _inode(folder) != self._folders[path]:
                raise DeviceInUseError(f"{path} is not the folder that was checked before")

    def lend(self, cell: Cell) -> None:
        """Let mkfs and mount open the disks of a cell; the next `take` claims them again."""
        for device in cell.devices:
            if device.path in self._disks:
                self._disks[device.path].lend()

    def close(self) -> None:
        """Close the disks."""
        self._open_disks.close()


def _inode(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


@contextmanager
def claimed(plan: Plan) -> Iterator[PlaceClaim]:
    """Keep the claim on a plan's disks and folders for the duration of a ``with`` block."""
    claim = PlaceClaim(plan)
    try:
        yield claim
    finally:
        claim.close()


def restore_earlier() -> None:
    """Restore what an earlier run left changed; IolabError if a change cannot be undone."""
    failures = restore_all()
    if failures:
        raise IolabError("an earlier run cannot be undone: " + "; ".join(failures))


def check_places(plan: Plan) -> None:
    """Check whether a block could claim its plan's disks and folders; restore an earlier run.

    Does nothing while a run is at work: it may be this very block, which is then followed.
    """
    with suppress(BusyError), machine_lock():
        restore_earlier()
        with claimed(plan):
            pass
