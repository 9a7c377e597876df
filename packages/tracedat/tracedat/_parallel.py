# SPDX-License-Identifier: MIT
"""Spread work over threads; the compiled loops and the decompressors release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["SPAN", "map_threads", "thread_count"]

T = TypeVar("T")
R = TypeVar("R")

# Decompressed bytes that a thread handles at a time: they fit a core's cache.
SPAN = 2 << 20
_MAX_THREADS = 8


def thread_count() -> int:
    """Return the number of threads for decoding: the CPUs it may use, at most 8."""
    return min(len(os.sched_getaffinity(0)), _MAX_THREADS)


def map_threads(function: Callable[[T], R], items: Sequence[T], size: int) -> list[R]:
    """Apply a function to items in parallel.

    Parameters
    ----------
    function : callable
        Takes one item; releases the GIL where it matters.
    items : sequence
        The items.
    size : int
        Bytes of all the work; below 2 MiB no thread is started.

    Returns
    -------
    list
        The results in the order of the items.
    """
    if thread_count() == 1 or len(items) < 2 or size < SPAN:
        return [function(item) for item in items]
    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(function, items))
