# SPDX-License-Identifier: MIT
"""Make a fresh XFS on a new disk: run mkfs.xfs once, and write its pages to each disk.

mkfs.xfs writes zeros to the whole log and much else. A new disk reads as zeros, so a few dozen
pages make a fresh file system. mkfs.xfs makes them in a memory file of the disk's size; every disk
of that size then gets the same file system, including UUID and times.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from iolab_base.process import run

__all__ = ["fresh_pages", "write_fresh_xfs"]

_PAGE = 4096
_CHUNK = 1 << 20
# ioctls of include/uapi/linux/fs.h: size in bytes, and bytes of a physical sector.
_BLKGETSIZE64 = 0x80081272
_BLKPBSZGET = 0x127B


def write_fresh_xfs(node: Path, realtime: Path | None) -> None:
    """Write a fresh XFS to a disk that reads as zeros.

    `realtime` is the disk of its realtime section, which gets the data of its files.
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
    """Return the bytes of a disk and of its physical sector, which mkfs.xfs uses as its own."""
    handle = os.open(node, os.O_RDONLY)
    try:
        (size,) = struct.unpack("Q", fcntl.ioctl(handle, _BLKGETSIZE64, bytes(8)))
        (sector,) = struct.unpack("I", fcntl.ioctl(handle, _BLKPBSZGET, bytes(4)))
    finally:
        os.close(handle)
    return size, sector


@cache
def fresh_pages(size: int, sector: int, realtime_size: int) -> tuple[tuple[int, bytes], ...]:
    """Return offset and content of each page of a fresh file system that is not all zeros.

    Sizes are in bytes; `realtime_size` is 0 without a realtime section. mkfs.xfs runs at the first
    call: a virtual machine makes it before its snapshot.
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
    # The path as another process sees it.
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
