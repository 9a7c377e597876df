# SPDX-License-Identifier: MIT
"""The disks and folders that a plan names: claimed before its first cell, compared before each."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from iolab.agent.journal import AtWorkError, Journal, alone, restore_all
from iolab.agent.named import (
    NotYoursError,
    identity_of,
    node_of,
    number_of,
    open_free,
    serials,
)
from iolab.agent.plan import Cell, Device, Plan
from iolab.agent.trusted import trusted_folder
from iolab.errors import IolabError

__all__ = ["Claim", "check_places", "claimed", "undo_earlier"]

# linux/fs.h: write back and drop what the page cache holds of a device.
_BLKFLSBUF = 0x1261


class _Disk:
    """A disk that may be overwritten, held open for as long as the claim lasts.

    Two descriptors: a plain one, by which the kernel gives the disk's number to no other disk, and
    between cells and under a raw device's cell an exclusive one, by which it lets nobody mount or
    claim the disk. mkfs and mount of our own would be refused, too: `lend` closes it for them, and
    they open the disk exclusively themselves.
    """

    def __init__(self, node: Path, serial: str | None) -> None:
        self.node = node
        self._exclusive: int | None = open_free(node, serial)
        self._plain = os.open(f"/proc/self/fd/{self._exclusive}", os.O_RDONLY)
        self._identity = self._look()

    def _look(self) -> tuple[int, int, str]:
        return os.fstat(self._plain).st_rdev, number_of(self.node), identity_of(self.node)

    def take(self) -> None:
        """Check that it is still the same disk and that nobody uses it; drop what is cached of it.

        Errors: NotYoursError.
        """
        try:
            found = self._look()
        except (IolabError, OSError) as error:
            raise NotYoursError(f"{self.node} is gone: {error}") from error
        if found != self._identity:
            raise NotYoursError(
                f"{self.node} is not the disk that was checked before the first cell, so nothing "
                "was written to it"
            )
        try:
            if self._exclusive is None:
                path = f"/proc/self/fd/{self._plain}"
                self._exclusive = os.open(path, os.O_RDONLY | os.O_EXCL)
            # The last close of a device does it; while it is held, there is none between cells.
            fcntl.ioctl(self._plain, _BLKFLSBUF)
        except OSError as error:
            raise NotYoursError(f"{self.node} is in use by now: {error.strerror}") from error

    def lend(self) -> None:
        """Let mkfs and mount open it exclusively."""
        if self._exclusive is not None:
            os.close(self._exclusive)
            self._exclusive = None

    def close(self) -> None:
        """Let go of it."""
        self.lend()
        os.close(self._plain)


class Claim:
    """What the cells of a block may write: ``plan`` is the plan with canonical paths.

    A link in a path is followed once, here: where it leads later does not matter.
    """

    def __init__(self, plan: Plan) -> None:
        """Check every disk and folder of the plan and open the disks.

        Errors: NotYoursError for a disk that must not be overwritten, UserError for a folder that
        another user could change.
        """
        self._held = ExitStack()
        self._disks: dict[str, _Disk] = {}
        self._folders: dict[str, tuple[int, int]] = {}
        known: dict[tuple[str, str, str | None], str] = {}
        cells = []
        try:
            for cell in plan.cells:
                devices = []
                for device in cell.devices:
                    key = (device.kind, device.path, device.serial)
                    if device.path and key not in known:
                        known[key] = self._claim(device)
                    devices.append(replace(device, path=known.get(key, "")))
                cells.append(replace(cell, devices=devices))
        except BaseException:
            self.close()
            raise
        self.plan = replace(plan, cells=cells)

    def _claim(self, device: Device) -> str:
        if device.kind != "named":
            folder = trusted_folder(Path(device.path))
            self._folders[str(folder)] = _place(folder)
            return str(folder)
        node = node_of(Path(device.path))
        if str(node) not in self._disks:
            disk = _Disk(node, device.serial)
            self._held.callback(disk.close)
            self._disks[str(node)] = disk
        elif device.serial is not None and device.serial not in serials(node):
            raise NotYoursError(f"{device.serial!r} is not the serial number of {node}")
        return str(node)

    def note_wipes(self, journal: Journal) -> None:
        """Note in a journal that what the cells leave on the disks is wiped."""
        for disk in self._disks.values():
            journal.note("wipe", str(disk.node), identity_of(disk.node))

    def take(self, cell: Cell) -> None:
        """Check the disks and folders of a cell again, before anything is written to them.

        Errors: as `Claim`.
        """
        for path in {device.path for device in cell.devices if device.path}:
            if path in self._disks:
                self._disks[path].take()
                continue
            folder = trusted_folder(Path(path))
            if str(folder) != path or _place(folder) != self._folders[path]:
                raise NotYoursError(f"{path} is not the folder that was checked before")

    def lend(self, cell: Cell) -> None:
        """Let a file system be made on the disks of a cell."""
        for device in cell.devices:
            if device.path in self._disks:
                self._disks[device.path].lend()

    def close(self) -> None:
        """Let go of the disks."""
        self._held.close()


def _place(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino


@contextmanager
def claimed(plan: Plan) -> Iterator[Claim]:
    """Hold the claim on a plan's disks and folders. Errors: as `Claim`."""
    claim = Claim(plan)
    try:
        yield claim
    finally:
        claim.close()


def undo_earlier() -> None:
    """Put back what an earlier run left. Errors: IolabError if it cannot be undone."""
    left = restore_all()
    if left:
        raise IolabError("an earlier run cannot be undone: " + "; ".join(left))


def check_places(plan: Plan) -> None:
    """Check whether a block could claim what its plan names, and put back what an earlier run left.

    Nothing is checked while a run is at work: it may be this very block, which is then followed.

    Errors: as `Claim` and `undo_earlier`.
    """
    with suppress(AtWorkError), alone():
        undo_earlier()
        with claimed(plan):
            pass
