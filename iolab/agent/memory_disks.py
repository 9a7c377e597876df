# SPDX-License-Identifier: MIT
"""Make disks in memory with zram and brd, which most kernels have.

Both do their I/O, and complete it, in the process that submits it.
"""

from __future__ import annotations

import time
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.modules import load_module
from iolab.agent.proc import available_memory
from iolab_base.errors import CannotRunError

__all__ = ["make_brd", "make_zram"]

_CONTROL = Path("/sys/class/zram-control")
_SYS_BLOCK = Path("/sys/block")
_BRD = Path("/sys/module/brd")
_NODE_S = 5.0


def _check_memory(size_mib: int) -> None:
    """Check that there is memory for a disk full of incompressible data."""
    free_mib = available_memory() >> 20
    if free_mib < size_mib:
        raise CannotRunError(f"a disk in memory needs {size_mib} MiB, {free_mib} MiB are available")


def _node(name: str) -> Path:
    """Return the node of a new disk, once it exists."""
    node = Path("/dev") / name
    until = time.monotonic() + _NODE_S
    while not node.exists():
        if time.monotonic() > until:
            raise CannotRunError(f"{node} did not appear within {_NODE_S:.0f} s")
        time.sleep(0.05)
    return node


def make_zram(journal: Journal, size_mib: int) -> Path:
    """Make a zram device and return its node.

    Raises CannotRunError if the kernel has no zram, or there is too little memory.
    """
    # A built-in zram may have no folder in /sys/module.
    if not _CONTROL.is_dir():
        load_module(journal, "zram")
    _check_memory(size_mib)
    # hot_add takes the lowest free number (zram_add() of drivers/block/zram/zram_drv.c), so it can
    # be noted before the device is made.
    number = next(n for n in range(1 << 20) if not (_SYS_BLOCK / f"zram{n}").exists())
    size = size_mib << 20
    journal.note("zram", f"/dev/zram{number}", str(size))
    added = int((_CONTROL / "hot_add").read_text())
    if added != number:
        # Another program took it meanwhile: no inode is 0.
        journal.note("zram", f"/dev/zram{number}", f"{size} 0")
    folder = _SYS_BLOCK / f"zram{added}"
    journal.note("zram", f"/dev/zram{added}", f"{size} {folder.stat().st_ino}")
    (folder / "disksize").write_text(str(size))
    return _node(folder.name)


def make_brd(journal: Journal, size_mib: int) -> Path:
    """Load brd with one disk and return the disk's node.

    Raises CannotRunError if the kernel has no brd or does not count the disk's I/Os, brd is loaded
    already (another program may use its disks), or there is too little memory.
    """
    if _BRD.is_dir():
        raise CannotRunError("brd is loaded or built in already, so another program may use it")
    _check_memory(size_mib)
    load_module(journal, "brd", "rd_nr=1", f"rd_size={size_mib << 10}")
    node = _node("ram0")
    with node.open("rb") as stream:
        stream.read(4096)
    if not any(map(int, (_SYS_BLOCK / node.name / "stat").read_text().split())):
        raise CannotRunError("this kernel does not count the I/Os of a brd disk")
    return node
