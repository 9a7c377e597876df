# SPDX-License-Identifier: MIT
"""Make a fresh XFS on a new disk: run mkfs.xfs once, and write its pages to each disk.

mkfs.xfs writes zeros to the whole log and to much else. A new disk reads as zeros, so some dozens
of pages are all that a fresh file system needs. mkfs.xfs makes them on a file in memory of the
disk's size; every disk of that size then gets the same file system, UUID and times included.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from iolab.process import run

__all__ = ["fresh_pages", "write_fresh_xfs"]

_PAGE = 4096
_CHUNK = 1 << 20
# ioctls of include/uapi/linux/fs.h: size in bytes, and bytes of a physical sector.
_BLKGETSIZE64 = 0x80081272
_BLKPBSZGET = 0x127B


def write_fresh_xfs(node: Path, realtime: Path | None) -> None:
    """Write a fresh XFS to a disk that reads as zeros.

    Parameters
    ----------
    node : Path
        The disk.
    realtime : Path or None
        Disk of its realtime section, which gets the data of its files.

    Raises
    ------
    CommandError
        If mkfs.xfs fails.
    OSError
        If a disk cannot be opened or written.
    """
    size, sector = _shape(node)
    realtime_size = 0 if realtime is None else _shape(realtime)[0]
    handle = os.open(node, os.O_WRONLY)
    try:
        for offset, page in fresh_pages(size, sector, realtime_size):
            os.pwrite(handle, page, offset)
        # XFS reads past the page cache.
        os.fsync(handle)
    finally:
        os.close(handle)


def _shape(node: Path) -> tuple[int, int]:
    """Return the bytes of a disk and those of a physical sector, which mkfs.xfs takes for its."""
    handle = os.open(node, os.O_RDONLY)
    try:
        (size,) = struct.unpack("Q", fcntl.ioctl(handle, _BLKGETSIZE64, bytes(8)))
        (sector,) = struct.unpack("I", fcntl.ioctl(handle, _BLKPBSZGET, bytes(4)))
    finally:
        os.close(handle)
    return size, sector


@cache
def fresh_pages(size: int, sector: int, realtime_size: int) -> tuple[tuple[int, bytes], ...]:
    """Return the pages of a fresh file system that are not zeros; mkfs.xfs runs at the first call.

    A virtual machine calls it before it is kept as a snapshot.

    Parameters
    ----------
    size : int
        Bytes of the disk.
    sector : int
        Bytes of its physical sector.
    realtime_size : int
        Bytes of the disk of its realtime section; 0 without one.

    Returns
    -------
    tuple of (int, bytes)
        Offset and content of each page.

    Raises
    ------
    CommandError
        If mkfs.xfs fails.
    """
    data = _empty_file(size)
    realtime = _empty_file(realtime_size)
    try:
        # -K: there is nothing to discard.
        argv = ["mkfs.xfs", "-q", "-K", "-s", f"size={sector}"]
        argv += ["-d", f"file,name={_path(data)},size={size}"]
        if realtime_size:
            argv += ["-d", "rtinherit=1", "-r", f"rtdev={_path(realtime)}"]
        run(argv, timeout_s=300)
        return tuple(_written(data, size))
    finally:
        os.close(data)
        os.close(realtime)


def _empty_file(size: int) -> int:
    handle = os.memfd_create("xfs")
    os.truncate(handle, size)
    return handle


def _path(handle: int) -> str:
    # In the words of another process.
    return f"/proc/{os.getpid()}/fd/{handle}"


def _written(handle: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the pages of a file in memory that are not zeros."""
    zeros = bytes(_CHUNK)
    end = 0
    while end < size:
        try:
            begin = os.lseek(handle, end, os.SEEK_DATA)
        except OSError:
            # The rest is a hole.
            return
        end = os.lseek(handle, begin, os.SEEK_HOLE)
        for at in range(begin, end, _CHUNK):
            chunk = os.pread(handle, min(_CHUNK, end - at), at)
            if chunk == zeros:
                continue
            for offset in range(0, len(chunk), _PAGE):
                page = chunk[offset : offset + _PAGE]
                if page != zeros[:_PAGE]:
                    yield at + offset, page
