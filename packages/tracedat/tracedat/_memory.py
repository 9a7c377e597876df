# SPDX-License-Identifier: MIT
"""Memory and threads for reading a trace: how much of them it may take."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from tracedat._errors import TooLargeError

T = TypeVar("T")
R = TypeVar("R")

# Decompressed bytes that a thread handles at a time: they fit a core's cache.
SPAN = 2 << 20
_MAX_THREADS = 8
_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 62


class MemoryRoom:
    """The memory that reading a trace may take; its threads share it."""

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
        """Count `size` bytes before they are allocated."""
        with self._lock:
            self._left -= size
            if self._left < 0:
                problem = f"its events need more than {self._most >> 20} MiB of memory"
                raise TooLargeError(self._path, f"{problem}; read windows of it")


def reserve(size: int) -> mmap.mmap:
    """Return private memory of `size` bytes, all zero; a page is resident when it is written."""
    # Huge pages where the kernel has them: faults of small ones cost as much as the copying.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel without transparent huge pages refuses (madvise_behavior_valid in mm/madvise.c).
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def thread_count() -> int:
    """Return the number of threads for decoding: the CPUs it may use, at most 8."""
    return min(len(os.sched_getaffinity(0)), _MAX_THREADS)


def map_threads(function: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
    """Apply a function to items in parallel."""
    if thread_count() == 1 or len(items) < 2 or size < SPAN:
        return [function(item) for item in items]
    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(function, items))


def free_bytes() -> int:
    """Return how many bytes of memory are free, for the machine and for each cgroup around us.

    The page cache counts as free. A machine that does not show it has no limit.
    """
    free = [_table(Path("/proc/meminfo")).get("MemAvailable:", _NO_LIMIT >> 10) << 10]
    with suppress(OSError):
        for line in _OWN.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" or controllers == "memory":
                root = _CGROUPS / controllers
                group = root / path.lstrip("/")
                # A path of the host does not exist in a container; the mount does.
                inside = [one for one in (group, *group.parents) if one.is_relative_to(root)]
                free += [_free_in(one) for one in inside if ".." not in one.parts]
    return min(free)


def _free_in(group: Path) -> int:
    # The files of cgroup v2, then of v1.
    limits = _numbers(group, "max", "high", "limit_in_bytes")
    used = _numbers(group, "current", "usage_in_bytes")
    if not limits or not used:
        return _NO_LIMIT
    found = _table(group / "memory.stat")
    # v1's plain counters lack the groups below.
    cache = sum(found.get(f"total_{x}", found.get(x, 0)) for x in ("inactive_file", "active_file"))
    return max(0, min(limits) - max(0, used[0] - cache))


def _numbers(group: Path, *names: str) -> list[int]:
    found = []
    for name in names:
        # The word "max", or a number beyond all memory, means no limit.
        with suppress(OSError, ValueError):
            found.append(int((group / f"memory.{name}").read_text()))
    return found


def _table(path: Path) -> dict[str, int]:
    with suppress(OSError):
        lines = (line.split() for line in path.read_text().splitlines())
        return {words[0]: int(words[1]) for words in lines}
    return {}
