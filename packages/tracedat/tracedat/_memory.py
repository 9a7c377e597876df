# SPDX-License-Identifier: MIT
"""Memory of a trace: how much reading it may take, and arrays that are written from end to end."""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path
from threading import Lock

from iolab.reading import free_bytes
from tracedat._file import TooLargeError

__all__ = ["Room", "reserve"]


class Room:
    """The memory that reading a trace may take; its threads share it.

    Parameters
    ----------
    path : Path
        The file, for messages.
    most : int, optional
        The most bytes; never more than half of the free memory.
    """

    def __init__(self, path: Path, most: int | None = None) -> None:
        free = free_bytes() // 2
        self._path = path
        self._most = self._left = free if most is None else min(most, free)
        self._lock = Lock()

    def limit(self, size: int) -> None:
        """Leave at most `size` bytes from now on."""
        if size < self._left:
            self._most = self._left = size

    def take(self, size: int) -> None:
        """Count `size` bytes before they are allocated.

        Raises
        ------
        TooLargeError
            If that is more than there is room for.
        """
        with self._lock:
            self._left -= size
            if self._left < 0:
                problem = f"its events need more than {self._most >> 20} MiB of memory"
                raise TooLargeError(self._path, f"{problem}; read windows of it")


def reserve(size: int) -> mmap.mmap:
    """Return private memory of `size` bytes, all zero; a page is resident when it is written.

    Huge pages where the kernel has them: faults of small ones cost as much as the copying.

    Raises
    ------
    OSError, OverflowError
        If the address space has no room.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel without transparent huge pages refuses (madvise_behavior_valid in mm/madvise.c).
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
