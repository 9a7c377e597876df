# SPDX-License-Identifier: MIT
"""Read files of /proc and /sys that may be missing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = [
    "available_memory",
    "in_guest",
    "is_kernel_thread",
    "mounts",
    "processes",
    "stat_of",
    "text_of",
    "user_of",
]

_PROC = Path("/proc")
# PF_KTHREAD of include/linux/sched.h. No program can set it, whatever it calls itself.
_KERNEL_THREAD = 0x00200000


def text_of(path: Path) -> str | None:
    """Return a file's text.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    str or None
        The text, stripped; None if it cannot be read.
    """
    with suppress(OSError):
        return path.read_text(errors="replace").strip()
    return None


def available_memory() -> int:
    """Return the kernel's estimate of the memory that programs can still use.

    Returns
    -------
    int
        MemAvailable of /proc/meminfo in bytes; 0 if it is not shown.
    """
    lines = (text_of(Path("/proc/meminfo")) or "").splitlines()
    return next((int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:")), 0)


def mounts(kind: str) -> list[tuple[Path, list[str]]]:
    """Return the mounts of a kind of file system.

    Parameters
    ----------
    kind : str
        Kind of file system, such as "tracefs".

    Returns
    -------
    list of (Path, list of str)
        Mount point and options of each.
    """
    lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    entries = [line.split() for line in lines]
    return [(Path(entry[1]), entry[3].split(",")) for entry in entries if entry[2] == kind]


def processes() -> list[int]:
    """Return the ids of all processes.

    Returns
    -------
    list of int
        In no order; some may have ended meanwhile.
    """
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def stat_of(pid: int) -> tuple[str, list[str]]:
    """Return a process's name, and the fields of its ``stat`` behind the name.

    Parameters
    ----------
    pid : int
        The process's id.

    Returns
    -------
    (str, list of str)
        Field N of proc(5) is item N - 3 of the list.

    Raises
    ------
    OSError
        If the process has ended.
    """
    # The name may hold any bytes, parentheses too: the fields start after the last parenthesis.
    head, _, tail = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")
    return head.partition("(")[2], tail.split()


def is_kernel_thread(fields: list[str]) -> bool:
    """Return whether a process is one of the kernel's own threads.

    Parameters
    ----------
    fields : list of str
        As `stat_of` returns them.

    Returns
    -------
    bool
        False for every program, also for one that has the name of a kernel thread.
    """
    return bool(int(fields[6]) & _KERNEL_THREAD)


def user_of(pid: int) -> int | None:
    """Return the real user of a process.

    No owner in /proc tells it: the folder has the effective user, which is root for a program of
    root's that another user runs, and the files are root's if the process is not dumpable.

    Parameters
    ----------
    pid : int
        The process's id.

    Returns
    -------
    int or None
        The user's id; None if the process has ended.
    """
    lines = (text_of(_PROC / str(pid) / "status") or "").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def in_guest() -> bool:
    """Return whether this is iolab's own virtual machine, which nobody else uses.

    Returns
    -------
    bool
        Whether the first process is the guest's init.
    """
    return b"/iolab/guest_init.py" in (_PROC / "1/cmdline").read_bytes().split(b"\0")
