# SPDX-License-Identifier: MIT
"""Read files of /proc and /sys that may be missing; pin programs to cores."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iolab_base.errors import CannotRunError

_PROC = Path("/proc")
# PF_KTHREAD of include/linux/sched.h. No program can set it, whatever its name.
_KERNEL_THREAD = 0x00200000


def text_of(path: Path) -> str | None:
    """Return a file's text, stripped, or None if it cannot be read."""
    with suppress(OSError):
        return path.read_text(errors="replace").strip()
    return None


def available_memory() -> int:
    """Return MemAvailable of /proc/meminfo in bytes; 0 if it is not shown."""
    lines = (text_of(Path("/proc/meminfo")) or "").splitlines()
    return next((int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:")), 0)


def mounts(kind: str) -> list[tuple[Path, list[str]]]:
    """Return mount point and options of each mount of a kind of file system, such as "tracefs"."""
    lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    entries = [line.split() for line in lines]
    return [(Path(entry[1]), entry[3].split(",")) for entry in entries if entry[2] == kind]


def processes() -> list[int]:
    """Return the ids of all processes, in no order; some may have ended meanwhile."""
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def stat_of(pid: int) -> tuple[str, list[str]]:
    """Return a process's name, and the fields of its ``stat`` behind the name.

    Field N of proc(5) is item N - 3. Raises OSError if the process has ended.
    """
    # The name may hold any bytes, parentheses too: the fields start after the last parenthesis.
    head, _, tail = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")
    return head.partition("(")[2], tail.split()


def is_kernel_thread(fields: list[str]) -> bool:
    """Return whether fields from `stat_of` are those of one of the kernel's own threads."""
    return bool(int(fields[6]) & _KERNEL_THREAD)


def user_of(pid: int) -> int | None:
    """Return the real user of a process, or None if it has ended.

    No owner in /proc shows it: the folder has the effective user, which is root for a setuid-root
    program that another user runs, and the files are root's if the process is not dumpable.
    """
    lines = (text_of(_PROC / str(pid) / "status") or "").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def in_guest() -> bool:
    """Return whether the first process is the init of iolab's own virtual machine."""
    return b"/icountvm/guest_init.py" in (_PROC / "1/cmdline").read_bytes().split(b"\0")


@contextmanager
def pinned_to(cpus: Iterable[int]) -> Iterator[None]:
    """Pin this process, and what it starts meanwhile, to cores; CannotRunError if none exists."""
    before, wanted = os.sched_getaffinity(0), set(cpus)
    try:
        os.sched_setaffinity(0, wanted)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        listed = ", ".join(map(str, sorted(wanted)))
        raise CannotRunError(f"this machine has no CPU {listed}") from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
