# SPDX-License-Identifier: MIT
"""Disks that the agent did not make: what is beneath a folder, and what may be overwritten."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from iolab.errors import CannotRunError, UserError
from iolab.process import CommandError, run

__all__ = [
    "NotYoursError",
    "beneath",
    "check_size",
    "disk_of",
    "disks_beneath",
    "identity_of",
    "node_of",
    "number_of",
    "open_free",
    "open_unused",
    "serials",
    "wipe",
]

_BY_NUMBER = Path("/sys/dev/block")
# util-linux: nothing was found.
_BLKID_NOTHING = 2
# What blkid says of the partition itself, not of what is on it.
_NO_CONTENT = ("DEVNAME", "PART_ENTRY_")
_EDGE = 1 << 20


class NotYoursError(UserError):
    """A device that must not be overwritten."""


def _sysfs(number: int) -> Path:
    """Return the folder in sysfs of the block device with this number."""
    link = _BY_NUMBER / f"{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        raise CannotRunError(f"block device {link.name} is not in sysfs")
    return link.resolve()


def _whole(folder: Path) -> Path:
    """Return the disk of a partition, or the disk itself."""
    return folder.parent if (folder / "partition").exists() else folder


def number_of(node: Path) -> int:
    """Return the number of a block device. Errors: NotYoursError if it is none."""
    try:
        found = node.stat()
    except OSError as error:
        raise NotYoursError(f"{node}: {error.strerror}") from error
    if not stat.S_ISBLK(found.st_mode):
        raise NotYoursError(f"{node} is no block device")
    return found.st_rdev


def node_of(path: Path) -> Path:
    """Return the kernel's own node of a block device that is reached by any path.

    Errors: NotYoursError if there is no such block device, or its node is another device's.
    """
    number = number_of(path)
    words = dict(x.split("=", 1) for x in (_sysfs(number) / "uevent").read_text().splitlines())
    node = Path("/dev") / words["DEVNAME"]
    if node.is_symlink() or number_of(node) != number:
        raise NotYoursError(f"{path}: {node} is not the node of this device")
    return node


def disk_of(node: Path) -> Path:
    """Return the node of the disk that a block device is or is a partition of.

    Errors: NotYoursError if it is no block device.
    """
    return Path("/dev") / _whole(_sysfs(number_of(node))).name


def beneath(folder: Path) -> Path:
    """Return the node of the disk beneath a folder.

    Errors: CannotRunError if its file system has no block device of its own.
    """
    number = folder.stat().st_dev
    # Anonymous: in memory, on the network, over another one, or over several disks.
    if os.major(number) == 0:
        raise CannotRunError(f"the file system of {folder} has no block device of its own")
    return Path("/dev") / _whole(_sysfs(number)).name


def _and_below(folder: Path) -> Iterator[Path]:
    """Yield a device and all that it is stacked on."""
    yield folder
    for slave in (folder / "slaves").glob("*"):
        yield from _and_below(slave.resolve())


def disks_beneath(node: Path) -> set[Path]:
    """Return the folders in sysfs of the disks that a block device is stacked on: itself on none.

    Errors: NotYoursError if it is no block device.
    """
    parts = _and_below(_sysfs(number_of(node)))
    return {_whole(part) for part in parts if not any((part / "slaves").glob("*"))}


def _disks_of_root() -> set[Path]:
    number = Path("/").stat().st_dev
    if os.major(number) == 0:
        return set()
    return {_whole(part) for part in _and_below(_sysfs(number))}


def serials(node: Path) -> set[str]:
    """Return what a device's disk is known by: its serial number and its WWID."""
    disk = _whole(_sysfs(number_of(node)))
    found = set()
    for name in ("serial", "device/serial", "wwid", "device/wwid"):
        with suppress(OSError):
            found.add((disk / name).read_text(errors="replace").strip())
    with suppress(OSError):
        # SPC: four bytes stand before the serial number.
        found.add((disk / "device/vpd_pg80").read_bytes()[4:].decode(errors="replace").strip())
    return found - {""}


def identity_of(node: Path) -> str:
    """Return what tells this disk from another one that gets its name before the next reboot."""
    folder = _sysfs(number_of(node))
    sequence = _whole(folder) / "diskseq"
    number = sequence.read_text().strip() if sequence.exists() else "-"
    return " ".join([number, (folder / "size").read_text().strip(), *sorted(serials(node))])


def open_unused(node: Path) -> int:
    """Open a device that nobody uses, to read it, and for our exclusive use.

    While it is open so, the kernel lets nobody mount it or claim it: mkfs and mount of our own
    neither.

    Errors: NotYoursError if it is mounted, swapped to, part of another device, read-only, or open
    for somebody's exclusive use.
    """
    number = number_of(node)
    folder = _sysfs(number)
    for part in (folder, *(p.parent for p in folder.glob("*/partition"))):
        held = sorted(p.name for p in (part / "holders").glob("*"))
        if held:
            raise NotYoursError(f"{node} is in use: {part.name} is part of {', '.join(held)}")
    if (folder / "ro").read_text().strip() != "0":
        raise NotYoursError(f"{node} is read-only")
    try:
        # The kernel lets nobody in whose whole disk or partition is mounted, swap, or claimed.
        handle = os.open(node, os.O_RDONLY | os.O_EXCL)
    except OSError as error:
        raise NotYoursError(
            f"{node} is in use (mounted, swap or claimed by a program): {error.strerror}"
        ) from error
    if os.fstat(handle).st_rdev != number:
        os.close(handle)
        raise NotYoursError(f"{node} was replaced just now")
    return handle


def check_size(node: Path, size_mib: int) -> None:
    """Check that a device is large enough. Errors: CannotRunError."""
    if int((_sysfs(number_of(node)) / "size").read_text()) * 512 < size_mib << 20:
        raise CannotRunError(f"{node} is smaller than the {size_mib} MiB that a cell needs")


def open_free(node: Path, serial: str | None) -> int:
    """Open a device that may be overwritten: nobody uses it, and it holds nothing.

    `serial`, if it is the disk's own, allows to lose what is on it, and to use an unused partition
    of the disk that the system runs from; it never allows a device in use. Returns as
    `open_unused`. Errors: NotYoursError naming what is there.
    """
    handle = open_unused(node)
    try:
        _check_free(node, handle, serial)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_free(node: Path, handle: int, serial: str | None) -> None:
    disk = _whole(_sysfs(number_of(node)))
    known = serials(node)
    if serial is not None:
        if serial in known:
            return
        raise NotYoursError(f"{serial!r} is not the serial number of {node}")
    how = "type its serial number (--serial)" if known else "it has no serial number to type"
    if disk in _disks_of_root():
        raise NotYoursError(f"{node} is on the disk that this system runs from; {how}")
    found = _content(node, handle)
    if found:
        raise NotYoursError(f"{node} holds {found}; wipe it yourself, or {how}")


def _content(node: Path, handle: int) -> str:
    """Return what is found on an open device, or ""; partitions count."""
    parts = sorted(p.parent.name for p in _sysfs(number_of(node)).glob("*/partition"))
    if parts:
        return f"partitions ({', '.join(parts)})"
    result = run(["blkid", "-p", "-o", "export", node], timeout_s=60, check=False)
    words = dict(x.split("=", 1) for x in result.stdout.splitlines() if "=" in x)
    kind = words.get("TYPE") or words.get("PTTYPE")
    if result.returncode == 0 and kind:
        return f"a signature ({kind})"
    empty = all(word.startswith(_NO_CONTENT) for word in words)
    if result.returncode not in (0, _BLKID_NOTHING) or not empty:
        raise CommandError(["blkid", "-p", str(node)], f"exit {result.returncode}", result.stderr)
    try:
        end = os.lseek(handle, 0, os.SEEK_END)
        for offset in (0, max(0, end - _EDGE)):
            if any(os.pread(handle, _EDGE, offset)):
                return "data without a signature (in its first or last MiB)"
    except OSError as error:
        raise NotYoursError(f"{node} cannot be read: {error.strerror}") from error
    return ""


def wipe(node: Path) -> None:
    """Remove the signatures of a device that nobody uses, and what `open_free` would see else.

    Errors: as `open_unused`; CommandError with the words of wipefs.
    """
    os.close(open_unused(node))
    run(["wipefs", "-q", "-a", node], timeout_s=60)
    handle = os.open(node, os.O_WRONLY | os.O_EXCL)
    try:
        end = os.lseek(handle, 0, os.SEEK_END)
        for offset in (0, max(0, end - _EDGE)):
            os.pwrite(handle, bytes(min(_EDGE, end - offset)), offset)
        os.fsync(handle)
    finally:
        os.close(handle)
