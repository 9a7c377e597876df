# SPDX-License-Identifier: MIT
"""Disks that exist already: find the disk beneath a folder, open one that may be overwritten."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from iolab_base.errors import CannotRunError, UserError
from iolab_base.process import CommandError, run

_BY_NUMBER = Path("/sys/dev/block")
# blkid(8): nothing was detected.
_BLKID_NOTHING = 2
# blkid's keys about the partition itself, not about its content.
_NO_CONTENT = ("DEVNAME", "PART_ENTRY_")
# Bytes at both ends of a device that must be zero, and that are zeroed when it is wiped.
_EDGE = 1 << 20
_PAGE = 4096
# Requests and structure of include/uapi/linux/loop.h; a request for its state begins with device
# and inode of the backing file, and its number if it is itself a device.
_LOOP_SET_FD = 0x4C00
LOOP_CLEAR = 0x4C01
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_SET_DIRECT_IO = 0x4C08
_LOOP_GET_FREE = 0x4C82
_LOOP_INFO64 = struct.Struct("=QQQ208x")


class DeviceInUseError(UserError):
    """A device is in use or holds data, and must not be overwritten."""


def _numbers(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def _sysfs(number: int) -> Path:
    """Return the folder in sysfs of the block device with number `number` (st_rdev)."""
    link = _BY_NUMBER / _numbers(number)
    if not link.exists():
        raise CannotRunError(f"block device {link.name} is not in sysfs")
    return link.resolve()


def _whole(folder: Path) -> Path:
    """Return the disk's folder in sysfs for a partition's folder, or a disk's folder itself."""
    return folder.parent if (folder / "partition").exists() else folder


def number_of(node: Path) -> int:
    """Return the device number (st_rdev) of a block device, given its node or a link to it."""
    try:
        status = node.stat()
    except OSError as error:
        raise DeviceInUseError(f"{node}: {error.strerror}") from error
    if not stat.S_ISBLK(status.st_mode):
        raise DeviceInUseError(f"{node} is not a block device")
    return status.st_rdev


def node_of(path: Path) -> Path:
    """Return the kernel's own node of a block device, from any path such as /dev/disk/by-id/ID.

    Raises DeviceInUseError if it is not a block device, or the node belongs to another one.
    """
    number = number_of(path)
    lines = (_sysfs(number) / "uevent").read_text().splitlines()
    uevent = dict(line.split("=", 1) for line in lines)
    node = Path("/dev") / uevent["DEVNAME"]
    if node.is_symlink() or number_of(node) != number:
        raise DeviceInUseError(f"{path}: {node} is not the node of this device")
    return node


def disk_of(node: Path) -> Path:
    """Return the node of the whole disk of a partition, or of a disk itself."""
    return Path("/dev") / _whole(_sysfs(number_of(node))).name


def beneath(folder: Path) -> Path:
    """Return the node of the whole disk beneath a folder.

    Raises CannotRunError if the folder's file system has no block device of its own.
    """
    number = folder.stat().st_dev
    # Major number 0: a file system in memory, on the network, over another, or on several disks.
    if os.major(number) == 0:
        raise CannotRunError(f"the file system of {folder} has no block device of its own")
    return Path("/dev") / _whole(_sysfs(number)).name


def _and_below(folder: Path) -> Iterator[Path]:
    """Yield the sysfs folders of a device and of all devices it is stacked on."""
    yield folder
    for slave in (folder / "slaves").glob("*"):
        yield from _and_below(slave.resolve())


def disks_beneath(node: Path) -> set[Path]:
    """Return the sysfs folders of the disks that a block device is stacked on, or its own."""
    parts = _and_below(_sysfs(number_of(node)))
    return {_whole(part) for part in parts if not any((part / "slaves").glob("*"))}


def _disks_of_root() -> set[Path]:
    number = Path("/").stat().st_dev
    if os.major(number) == 0:
        return set()
    return {_whole(part) for part in _and_below(_sysfs(number))}


def serials(node: Path) -> set[str]:
    """Return the serial number and the WWID of a device's disk, as far as sysfs has them."""
    return _serials(_whole(_sysfs(number_of(node))))


def _serials(disk: Path) -> set[str]:
    numbers = set()
    for name in ("serial", "device/serial", "wwid", "device/wwid"):
        with suppress(OSError):
            numbers.add((disk / name).read_text(errors="replace").strip())
    with suppress(OSError):
        # SCSI Primary Commands: the Unit Serial Number page has a header of four bytes.
        page = (disk / "device/vpd_pg80").read_bytes()
        numbers.add(page[4:].decode(errors="replace").strip())
    return numbers - {""}


def identity_of(node: Path) -> str:
    """Return a text that changes if another disk gets the same node before the next reboot."""
    return identity_at(_sysfs(number_of(node)))


def identity_at(folder: Path) -> str:
    """Return what `identity_of` returns, for a device's folder in sysfs.

    Disk sequence number ("-" if the kernel has none), inode of the disk in sysfs, size in sectors,
    a loop device's backing file (device and inode), and serial numbers.
    """
    disk = _whole(folder)
    # Linux commit cf179948554a ("block: add disk sequence number") counts the disks of a boot, and
    # what is put into one. Each disk that appears has an inode of its own, on all kernels.
    sequence = disk / "diskseq"
    words = [sequence.read_text().strip() if sequence.exists() else "-", str(disk.stat().st_ino)]
    words.append((folder / "size").read_text().strip())
    if (disk / "loop").is_dir():
        words += [f"{loop.device}:{loop.inode}" for _, loop in loops() if loop.name == disk.name]
    return " ".join([*words, *sorted(_serials(disk))])


class Loop(NamedTuple):
    """A loop device with a backing file.

    ``device`` and ``inode`` are the file's (stat(2)); ``number`` is its device number if it is
    itself a device, else 0.
    """

    name: str
    device: int
    inode: int
    number: int


def loops() -> Iterator[tuple[int, Loop]]:
    """Yield a descriptor, open until the next one, and the data of each loop device with a file."""
    for path in sorted(Path("/sys/block").glob("loop*/loop")):
        name, state = path.parent.name, bytearray(_LOOP_INFO64.size)
        try:
            handle = os.open(Path("/dev") / name, os.O_RDONLY)
        except OSError:
            # Gone, or without a node here.
            continue
        try:
            # ENXIO: it has no file.
            with suppress(OSError):
                fcntl.ioctl(handle, _LOOP_GET_STATUS64, state)
                yield handle, Loop(name, *_LOOP_INFO64.unpack(state))
        finally:
            os.close(handle)


def attach_loop(backing: Path, *, direct: bool = False) -> Path:
    """Make a loop device of a file and return its node; not every guest has losetup.

    With `direct` the kernel may still do buffered I/O. Raises CannotRunError if it refuses.
    """
    try:
        return _attach_loop(backing, direct=direct)
    except OSError as error:
        raise CannotRunError(f"no loop device of {backing}: {error.strerror}") from error


def _attach_loop(backing: Path, *, direct: bool) -> Path:
    with ExitStack() as stack:

        def opened(path: Path) -> int:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            stack.callback(os.close, handle)
            return handle

        file, control = opened(backing), opened(Path("/dev/loop-control"))
        while True:
            node = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_GET_FREE)}")
            device = opened(node)
            try:
                fcntl.ioctl(device, _LOOP_SET_FD, file)
                break
            except OSError as error:
                # Another program was faster.
                if error.errno != errno.EBUSY:
                    raise
        if direct:
            try:
                fcntl.ioctl(device, _LOOP_SET_DIRECT_IO, 1)
            except OSError:
                fcntl.ioctl(device, LOOP_CLEAR)
                raise
        return node


def open_unused(node: Path) -> int:
    """Open an unused device exclusively (O_EXCL), for reading.

    While the descriptor is open, the kernel lets nobody mount the device or open it exclusively,
    including mkfs and mount of this process. Raises DeviceInUseError if the device is in use in any
    way, or read-only.
    """
    number = number_of(node)
    folder = _sysfs(number)
    for part in (folder, *(p.parent for p in folder.glob("*/partition"))):
        holders = sorted(p.name for p in (part / "holders").glob("*"))
        if holders:
            raise DeviceInUseError(f"{node} is in use: {part.name} is part of {', '.join(holders)}")
    if shared := _shared(folder):
        raise DeviceInUseError(f"{node} is in use: {shared}")
    if (folder / "ro").read_text().strip() != "0":
        raise DeviceInUseError(f"{node} is read-only")
    try:
        # Fails if the disk or one of its partitions is mounted, swap space or open exclusively.
        handle = os.open(node, os.O_RDONLY | os.O_EXCL)
    except OSError as error:
        raise DeviceInUseError(
            f"{node} is in use (mounted, swap or claimed by a program): {error.strerror}"
        ) from error
    if os.fstat(handle).st_rdev != number:
        os.close(handle)
        raise DeviceInUseError(f"{node} was replaced just now")
    return handle


def _shared(folder: Path) -> str:
    """Return how another device shares a device's contents, or "".

    The kernel does not count a loop device among the holders of the device beneath it.
    """
    disk, found = _whole(folder), [loop for _, loop in loops()]
    own = next((loop for loop in found if loop.name == disk.name), None)
    if own is not None and own.number:
        return f"its contents are those of block device {_numbers(own.number)}"
    for loop in found:
        if own is not None and loop != own and loop[1:] == own[1:]:
            return f"it has the same backing file as {loop.name}"
        backing = _BY_NUMBER / _numbers(loop.number)
        if loop.number and backing.exists():
            of_loop = backing.resolve()
            if of_loop in (folder, disk) or _whole(of_loop) == folder:
                return f"{of_loop.name} is the backing file of {loop.name}"
    return ""


def check_size(node: Path, size_mib: int) -> None:
    """Check that a device has at least `size_mib` MiB, else raise CannotRunError."""
    if int((_sysfs(number_of(node)) / "size").read_text()) * 512 < size_mib << 20:
        raise CannotRunError(f"{node} is smaller than the {size_mib} MiB that a cell needs")


def open_free(node: Path, serial: str | None) -> int:
    """Open exclusively a device that may be overwritten: it is unused and contains no data.

    If the user typed its `serial`, its data may be lost, and it may be an unused partition of the
    system's disk. A device in use raises DeviceInUseError in any case.
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
        raise DeviceInUseError(f"{serial!r} is not the serial number of {node}")
    advice = "type its serial number (--serial)" if known else "it has no serial number to type"
    if disk in _disks_of_root():
        raise DeviceInUseError(f"{node} is on the disk that this system runs from; {advice}")
    content = _content(node, handle)
    if content:
        raise DeviceInUseError(f"{node} holds {content}; wipe it yourself, or {advice}")


def _content(node: Path, handle: int) -> str:
    """Describe what an open device contains, partitions included, or return ""."""
    parts = sorted(p.parent.name for p in _sysfs(number_of(node)).glob("*/partition"))
    if parts:
        return f"partitions ({', '.join(parts)})"
    result = run(["blkid", "-p", "-o", "export", node], timeout_s=60, check=False)
    tags = dict(x.split("=", 1) for x in result.stdout.splitlines() if "=" in x)
    kind = tags.get("TYPE") or tags.get("PTTYPE")
    if result.returncode == 0 and kind:
        return f"a signature ({kind})"
    empty = all(tag.startswith(_NO_CONTENT) for tag in tags)
    if result.returncode not in (0, _BLKID_NOTHING) or not empty:
        argv, code = ["blkid", "-p", str(node)], result.returncode
        raise CommandError(argv, f"exit {code}", result.stderr, code)
    try:
        end = os.lseek(handle, 0, os.SEEK_END)
        for offset in (0, max(0, end - _EDGE)):
            if any(os.pread(handle, _EDGE, offset)):
                return "data without a signature (in its first or last MiB)"
        for _, kind in _remains(handle, end):
            return f"a copy of a signature ({kind})"
    except OSError as error:
        raise DeviceInUseError(f"{node} cannot be read: {error.strerror}") from error
    return ""


def _copies(size: int) -> Iterator[tuple[int, str, dict[int, bytes]]]:
    """Yield where file systems keep copies of a device's beginning, with parts of them."""
    # Groups of 8 * block blocks; those of a power of 3, 5 or 7 have a copy (ext4's sparse_super).
    for exponent in range(7):
        block = 1024 << exponent
        for group in (1, 3, 5, 7, 9, 25, 27, 49):
            # Blocks of 1 KiB: the first block of the device belongs to no group.
            offset = 8 * block * block * group + (1024 if exponent == 0 else 0)
            yield offset, "ext4", {0x18: bytes([exponent, 0, 0, 0]), 0x38: b"\x53\xef"}
    # mkfs.xfs makes four allocation groups by default, of whole blocks.
    blocks = size // _PAGE
    for group in (1, 2, 3):
        yield -(-blocks // 4) * _PAGE * group, "xfs", {0: b"XFSB"}
    for offset in (64 << 20, 256 << 30):
        yield offset, "btrfs", {0x40: b"_BHRfS_M"}


def _remains(handle: int, size: int) -> Iterator[tuple[int, str]]:
    """Yield offset and kind of each copy of a signature on an open device."""
    for offset, kind, parts in _copies(size):
        page = os.pread(handle, _PAGE, offset) if offset < size else b""
        if page and all(page[at : at + len(part)] == part for at, part in parts.items()):
            yield offset, kind


def wipe(node: Path) -> None:
    """Remove all data for which `open_free` would refuse an unused device."""
    os.close(open_unused(node))
    run(["wipefs", "-q", "-a", node], timeout_s=60)
    handle = os.open(node, os.O_RDWR | os.O_EXCL)
    try:
        end = os.lseek(handle, 0, os.SEEK_END)
        for offset in (0, max(0, end - _EDGE)):
            os.pwrite(handle, bytes(min(_EDGE, end - offset)), offset)
        for offset, _ in _remains(handle, end):
            os.pwrite(handle, bytes(_PAGE), offset)
        os.fsync(handle)
    finally:
        os.close(handle)
