# SPDX-License-Identifier: MIT
"""Read files of /proc and /sys that may be missing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["available_memory", "mounts", "text_of"]


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
