# SPDX-License-Identifier: MIT
"""Make a fresh file system, or a fresh folder on an existing one, for a cell's files."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from iolab_agent.journal import FILES, Journal
from iolab_agent.plan import FileSystem
from iolab_agent.settings import load_module
from iolab_agent.undo import MOUNTED_BY_US
from iolab_base.errors import CannotRunError
from iolab_base.process import CommandError, run

_FILE_SYSTEMS = Path("/proc/filesystems")
# A new device has nothing to discard (-K, -t 0).
_MKFS = {"btrfs": ("-q", "-f", "-K"), "f2fs": ("-q", "-f", "-t", "0"), "xfs": ("-q", "-f", "-K")}
# What mkfs makes by default and older kernels do not mount (ext4(5), mkfs.xfs(8)), switched off.
_PLAIN = {
    "ext4": ("-O", "^orphan_file"),
    "xfs": ("-m", "bigtime=0,inobtcount=0", "-i", "nrext64=0"),
}


@contextmanager
def _page_cache_kept(node: Path) -> Iterator[None]:
    """Keep the page cache of a block device, which its last close would drop."""
    # Read-only: without CONFIG_BLK_DEV_WRITE_MOUNTED a device that is open for writing cannot be
    # mounted (Linux commit ed5cc702d311).
    handle = os.open(node, os.O_RDONLY)
    try:
        yield
    finally:
        os.close(handle)


def mount_kernels(journal: Journal, kind: str, folder: Path) -> None:
    """Mount a file system of the kernel's own; restoring unmounts this mount, not another's."""
    journal.note("umount", str(folder), MOUNTED_BY_US)
    run(["mount", "-t", kind, MOUNTED_BY_US, folder], timeout_s=30)


def make_folder(parent: Path) -> Path:
    """Make a folder for one cell's files; restoring removes it, even after a reboot.

    `parent` must be trusted (see `iolab_agent.trusted`): nobody else can replace its contents.
    """
    # A random name: restoring removes the folder of this name, even one that another program made.
    folder = parent / f"iolab-{os.urandom(8).hex()}"
    files_journal = Journal(FILES)
    try:
        files_journal.note("tree", str(folder))
    finally:
        files_journal.close()
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.mkdir(folder.name, 0o700, dir_fd=handle)
    finally:
        os.close(handle)
    return folder


def make_filesystem(
    journal: Journal,
    filesystem: FileSystem,
    nodes: Mapping[str, Path],
    folder: Path,
    *,
    stored: bool = True,
    empty: bool = False,
) -> None:
    """Make a file system and mount it at `folder`; `nodes` are by the plan's device names.

    If the device does not store what is written (`stored`), ext4's metadata live in its page cache
    from mkfs to umount, which must fit in memory. If it reads as zeros and has the shape of a file
    (`empty`), a fresh XFS is copied to it. Raises CannotRunError if the kernel lacks the file
    system, or mkfs is missing.
    """
    kind = filesystem.kind
    if shutil.which(f"mkfs.{kind}") is None:
        raise CannotRunError(f"the measured machine has no mkfs.{kind}")
    if kind not in _FILE_SYSTEMS.read_text().split():
        load_module(journal, kind)
    # Once mounted, the file system keeps the device open.
    with _page_cache_kept(nodes[filesystem.device]):
        _make(journal, filesystem, nodes, folder, stored=stored, empty=empty)


def _make(
    journal: Journal,
    filesystem: FileSystem,
    nodes: Mapping[str, Path],
    folder: Path,
    *,
    stored: bool,
    empty: bool,
) -> None:
    node = nodes[filesystem.device]
    section = filesystem.realtime_device
    realtime = None if section is None else nodes[section]
    mounted_with = [*filesystem.mount, *([] if realtime is None else [f"rtdev={realtime}"])]
    options = ["-o", ",".join(mounted_with)] if mounted_with else []
    journal.note("rmdir", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    journal.note("umount", str(folder))
    if empty and filesystem.kind == "xfs" and not filesystem.mkfs:
        write_fresh_xfs(node, realtime)
    else:
        _mkfs(filesystem.kind, node, realtime, *filesystem.mkfs, stored=stored)
    mount: list[str | Path] = ["mount", "-t", filesystem.kind, *options, node, folder]
    mounted = run(mount, timeout_s=60, check=False)
    if mounted.returncode and filesystem.kind in _PLAIN:
        # The kernel is asked by mounting: XFS shows nowhere which features it knows.
        with suppress(CommandError):
            plain = [*_PLAIN[filesystem.kind], *filesystem.mkfs]
            _mkfs(filesystem.kind, node, realtime, *plain, stored=stored)
            mounted = run(mount, timeout_s=60, check=False)
    if mounted.returncode:
        reason = mounted.stderr.strip() or f"mount ended with {mounted.returncode}"
        raise CannotRunError(f"the {filesystem.kind} that mkfs made is not mounted: {reason}")


def _mkfs(kind: str, node: Path, realtime: Path | None, *given: str, stored: bool) -> None:
    options = [*given]
    if kind == "ext4":
        # Lazy initialisation would run in the kernel while the job is measured.
        options += ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
        # Metadata in the page cache: few inodes; blocks of one page, because setting another block
        # size empties the device's page cache (set_blocksize()).
        options += [] if stored else ["-b", "4096", "-N", "64"]
    else:
        options += _MKFS[kind]
    options += [] if realtime is None else ["-d", "rtinherit=1", "-r", f"rtdev={realtime}"]
    run([f"mkfs.{kind}", *options, node], timeout_s=300)


def make_tmpfs(journal: Journal, folder: Path) -> None:
    """Mount a fresh tmpfs at `folder`; half of the machine's memory fits in."""
    journal.note("rmdir", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    mount_kernels(journal, "tmpfs", folder)


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
