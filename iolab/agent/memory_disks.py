# SPDX-License-Identifier: MIT
"""Disks in memory that most kernels can make: zram and brd.

Both do their I/O in the process that asks for it and complete it there.
"""

from __future__ import annotations

import time
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.modules import load_module
from iolab.agent.proc import available_memory
from iolab.errors import CannotRunError, IolabError

__all__ = ["make_brd", "make_zram"]

_CONTROL = Path("/sys/class/zram-control")
_SYS_BLOCK = Path("/sys/block")
_BRD = Path("/sys/module/brd")
_NODE_S = 5.0


def _check_memory(size_mib: int) -> None:
    """Check that there is memory for a disk that is full of what cannot be compressed."""
    free_mib = available_memory() >> 20
    if free_mib < size_mib:
        raise CannotRunError(
            f"a disk in memory of {size_mib} MiB is wanted, {free_mib} MiB are available"
        )


def _node(name: str) -> Path:
    """Return the node of a disk that was just made, once it is there."""
    node = Path("/dev") / name
    until = time.monotonic() + _NODE_S
    while not node.exists():
        if time.monotonic() > until:
            raise CannotRunError(f"{node} did not appear within {_NODE_S:.0f} s")
        time.sleep(0.05)
    return node


def make_zram(journal: Journal, size_mib: int) -> Path:
    """Make a zram device and return its node; restoring removes it.

    Errors: CannotRunError without zram or the memory for it; IolabError if somebody else makes
    one at the same time.
    """
    # Built in, it may have no folder among the modules.
    if not _CONTROL.is_dir():
        load_module(journal, "zram")
    _check_memory(size_mib)
    # The kernel gives the lowest free number, so that it can be noted before it is made.
    number = next(n for n in range(1 << 20) if not (_SYS_BLOCK / f"zram{n}").exists())
    size = size_mib << 20
    journal.note("zram", f"/dev/zram{number}", str(size))
    made = int((_CONTROL / "hot_add").read_text())
    if made != number:
        journal.note("zram", f"/dev/zram{made}", str(size))
        raise IolabError("somebody else makes zram devices at the same time")
    (_SYS_BLOCK / f"zram{number}" / "disksize").write_text(str(size))
    return _node(f"zram{number}")


def make_brd(journal: Journal, size_mib: int) -> Path:
    """Load brd with one disk and return its node; restoring unloads it.

    Errors: CannotRunError if there is no such module, if it is there already (its disks are then
    somebody else's), without the memory for it, or if the kernel does not count its I/Os.
    """
    if _BRD.is_dir():
        raise CannotRunError("brd is loaded or built in already, so its disks are not ours to use")
    _check_memory(size_mib)
    load_module(journal, "brd", "rd_nr=1", f"rd_size={size_mib << 10}")
    node = _node("ram0")
    with node.open("rb") as stream:
        stream.read(4096)
    if not any(map(int, (_SYS_BLOCK / node.name / "stat").read_text().split())):
        raise CannotRunError("this kernel does not count the I/Os of a brd disk")
    return node
