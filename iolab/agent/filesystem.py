# SPDX-License-Identifier: MIT
"""Where a cell's files are: a fresh file system, or a fresh folder on one that is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from iolab.agent.journal import FILES, Journal
from iolab.agent.modules import load_module
from iolab.agent.plan import FileSystem
from iolab.errors import CannotRunError
from iolab.process import run

__all__ = ["make_filesystem", "make_folder"]

_FILE_SYSTEMS = Path("/proc/filesystems")


@contextmanager
def _cache_kept(node: Path) -> Iterator[None]:
    """Keep what is in the page cache of a block device: its last close drops it."""
    # To read only: some kernels refuse to mount what somebody may write to.
    handle = os.open(node, os.O_RDONLY)
    try:
        yield
    finally:
        os.close(handle)


def make_folder(parent: Path) -> Path:
    """Make a folder for one cell's files; restoring removes it, after a reboot too.

    `parent` is a trusted folder (see `iolab.agent.trusted`): nobody else can replace what is made
    in it. Errors: OSError if it may not be written.
    """
    # A name that nobody has: what is noted before it is made is removed, whoever made it.
    folder = parent / f"iolab-{os.urandom(8).hex()}"
    lasting = Journal(FILES)
    try:
        lasting.note("tree", str(folder))
    finally:
        lasting.close()
    above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.mkdir(folder.name, 0o700, dir_fd=above)
    finally:
        os.close(above)
    return folder


def make_filesystem(
    journal: Journal,
    filesystem: FileSystem,
    nodes: Mapping[str, Path],
    folder: Path,
    *,
    stored: bool = True,
) -> None:
    """Make a file system on `nodes` (device name → node) and mount it at `folder`.

    Not `stored`: the device drops what is written to it. Then ext4's metadata live in the device's
    page cache, from mkfs to umount; there must be memory for them.

    Errors: CannotRunError where the kernel or the tool for it is missing; CommandError with the
    words of mkfs or mount.
    """
    kind = filesystem.kind
    if shutil.which(f"mkfs.{kind}") is None:
        raise CannotRunError(f"there is no mkfs.{kind} here")
    if kind not in _FILE_SYSTEMS.read_text().split():
        load_module(journal, kind)
    # From the mount on, the mount holds the device open.
    with _cache_kept(nodes[filesystem.device]):
        _make(journal, filesystem, nodes, folder, stored=stored)


def _make(
    journal: Journal,
    filesystem: FileSystem,
    nodes: Mapping[str, Path],
    folder: Path,
    *,
    stored: bool,
) -> None:
    node = nodes[filesystem.device]
    options: list[str] = []
    if filesystem.kind == "ext4":
        # What mke2fs leaves for later the kernel does while the job is measured.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        # In memory only: few inodes, and blocks of a page, as another size empties the cache.
        small = [] if stored else ["-b", "4096", "-N", "64"]
        run(["mkfs.ext4", "-q", "-F", "-E", lazy, *small, node], timeout_s=300)
    else:
        # -K: nothing to discard on a device that was made a moment ago.
        argv = ["mkfs.xfs", "-q", "-f", "-K"]
        if filesystem.realtime_device is not None:
            realtime = str(nodes[filesystem.realtime_device])
            argv += ["-d", "rtinherit=1", "-r", f"rtdev={realtime}"]
            options = ["-o", f"rtdev={realtime}"]
        run([*argv, node], timeout_s=300)
    journal.note("rmdir", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    journal.note("umount", str(folder), "users")
    run(["mount", "-t", filesystem.kind, *options, node, folder], timeout_s=60)
