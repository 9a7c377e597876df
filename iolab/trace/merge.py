# SPDX-License-Identifier: MIT
"""The events of all CPUs in order of time, block after block, each block sorted by event type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from iolab.trace.pages import read_record

__all__ = ["Pages", "Progress", "fill_block", "group_block", "new_progress"]

_BLOCK = 16384
_LAST = (1 << 63) - 1


class Pages(NamedTuple):
    """Checked pages: `at` (byte offset), first time, bytes of records, wanted events.

    Source (buffer and CPU) s owns the pages from ``start[s]`` to ``start[s + 1]``; ``cpu`` and
    ``buffer`` are by source, in the order that equal times are put in.
    """

    at: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int32]
    wanted: NDArray[np.int32]
    start: NDArray[np.int64]
    cpu: NDArray[np.int32]
    buffer: NDArray[np.int8]


class Progress(NamedTuple):
    """Where the merge stands, so that it can stop for a table that must grow, and go on.

    By source: ``page``, ``left`` (wanted events left in the page), ``next``, ``stop``, ``time``,
    and the current event's ``data``, ``length`` and ``slot``. ``heap`` orders the sources,
    ``pending`` is [sources in the heap, events in the block]; ``written`` counts rows by slot.
    The block: ``block_*`` in merged order, ``group_*`` by type; ``group_start`` by slot.
    """

    page: NDArray[np.int64]
    left: NDArray[np.int32]
    next: NDArray[np.int64]
    stop: NDArray[np.int64]
    time: NDArray[np.int64]
    data: NDArray[np.int64]
    length: NDArray[np.int32]
    slot: NDArray[np.int32]
    heap: NDArray[np.int32]
    pending: NDArray[np.int64]
    written: NDArray[np.int64]
    block_time: NDArray[np.int64]
    block_data: NDArray[np.int64]
    block_length: NDArray[np.int32]
    block_slot: NDArray[np.int32]
    block_source: NDArray[np.int32]
    group_time: NDArray[np.int64]
    group_data: NDArray[np.int64]
    group_length: NDArray[np.int32]
    group_source: NDArray[np.int32]
    group_start: NDArray[np.int64]


def new_progress(sources: int, slots: int) -> Progress:
    """Return the state before the first event."""
    i32, i64 = np.int32, np.int64
    return Progress(
        page=np.zeros(sources, i64),
        left=np.zeros(sources, i32),
        next=np.zeros(sources, i64),
        stop=np.zeros(sources, i64),
        time=np.zeros(sources, i64),
        data=np.zeros(sources, i64),
        length=np.zeros(sources, i32),
        slot=np.zeros(sources, i32),
        heap=np.zeros(sources, i32),
        pending=np.array([-1, 0], i64),
        written=np.zeros(slots, i64),
        block_time=np.empty(_BLOCK, i64),
        block_data=np.empty(_BLOCK, i64),
        block_length=np.empty(_BLOCK, i32),
        block_slot=np.empty(_BLOCK, i32),
        block_source=np.empty(_BLOCK, i32),
        group_time=np.empty(_BLOCK, i64),
        group_data=np.empty(_BLOCK, i64),
        group_length=np.empty(_BLOCK, i32),
        group_source=np.empty(_BLOCK, i32),
        group_start=np.zeros(slots + 1, i64),
    )


@numba.njit(cache=True, nogil=True)
def fill_block(
    words: Any,
    page_at: Any,
    page_first: Any,
    page_end: Any,
    page_wanted: Any,
    page_start: Any,
    head: Any,
    type_at: Any,
    slots: Any,
    begin: Any,
    end: Any,
    s_page: Any,
    s_left: Any,
    s_next: Any,
    s_stop: Any,
    s_time: Any,
    s_data: Any,
    s_length: Any,
    s_slot: Any,
    heap: Any,
    pending: Any,
    block_time: Any,
    block_data: Any,
    block_length: Any,
    block_slot: Any,
    block_source: Any,
) -> None:
    """Fill the block with the next events of all sources in order of time.

    The state's arrays one by one: a tuple of many arrays is dear in a loop as hot as this one.
    """
    size = pending[0]
    starting = size < 0
    if starting:
        size = 0
        for s in range(s_page.size):
            s_page[s] = page_start[s] - 1
            s_left[s] = 0
    count = 0
    fresh = 0
    while count < _BLOCK:
        if starting:
            # Every source is once moved to its first event, as if it had just given one.
            if fresh == s_page.size:
                starting = False
                continue
            s = fresh
            fresh += 1
        elif size > 0:
            s = heap[0]
        else:
            break
        # Nothing else comes before this: the first event of the source that is next.
        limit_time, limit_source = _LAST, s
        if not starting:
            for child in range(1, min(size, 3)):
                other = heap[child]
                t = s_time[other]
                if t < limit_time or (t == limit_time and other < limit_source):
                    limit_time, limit_source = t, other
        left, at, stop, time = s_left[s], s_next[s], s_stop[s], s_time[s]
        data, length, slot = s_data[s], s_length[s], s_slot[s]
        alive = True
        first = starting
        while first or (
            count < _BLOCK and (time < limit_time or (time == limit_time and s <= limit_source))
        ):
            if not first:
                block_time[count] = time
                block_data[count] = data
                block_length[count] = length
                block_slot[count] = slot
                block_source[count] = s
                count += 1
            alive = False
            while not alive:
                if left == 0:
                    page = s_page[s] + 1
                    while page < page_start[s + 1] and page_wanted[page] == 0:
                        page += 1
                    s_page[s] = page
                    if page >= page_start[s + 1]:
                        break
                    left = page_wanted[page]
                    at = page_at[page] + head
                    stop = at + page_end[page]
                    time = page_first[page]
                if at >= stop:
                    left = 0
                    continue
                word, second = np.int64(words[at >> 2]), np.int64(words[(at >> 2) + 1])
                data, length, at, time = read_record(word, second, at, stop, time)
                if data <= 0:
                    continue
                place = data + type_at
                slot = slots[(np.int64(words[place >> 2]) >> ((place & 2) << 3)) & 0xFFFF]
                if slot >= 0 and begin <= time < end:
                    left -= 1
                    alive = True
            if first or not alive:
                break
        s_left[s], s_next[s], s_stop[s], s_time[s] = left, at, stop, time
        s_data[s], s_length[s], s_slot[s] = data, length, slot
        if starting:
            if alive:
                heap[size] = s
                size += 1
                _rise(heap, s_time, size - 1)
        else:
            if not alive:
                size -= 1
                heap[0] = heap[size]
            _sink(heap, s_time, size)
    pending[0] = size
    pending[1] = count


@numba.njit(cache=True, nogil=True)
def _before(times: Any, a: Any, b: Any) -> Any:
    return times[a] < times[b] or (times[a] == times[b] and a < b)


@numba.njit(cache=True, nogil=True)
def _rise(heap: Any, times: Any, i: Any) -> None:
    """Put a source that was added at place `i` of the heap where it belongs."""
    while i > 0:
        parent = (i - 1) >> 1
        if not _before(times, heap[i], heap[parent]):
            break
        heap[i], heap[parent] = heap[parent], heap[i]
        i = parent


@numba.njit(cache=True, nogil=True)
def _sink(heap: Any, times: Any, size: Any) -> None:
    """Put the heap in order again after its first source has moved on."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _before(times, heap[child + 1], heap[child]):
            child += 1
        if not _before(times, heap[child], heap[i]):
            break
        heap[i], heap[child] = heap[child], heap[i]
        i = child


@numba.njit(cache=True, nogil=True)
def group_block(state: Any) -> None:
    """Sort the block by event type, stable."""
    start = state.group_start
    count = state.pending[1]
    block_time, block_data = state.block_time, state.block_data
    block_length, block_slot = state.block_length, state.block_slot
    block_source = state.block_source
    group_time, group_data = state.group_time, state.group_data
    group_length, group_source = state.group_length, state.group_source
    start[:] = 0
    for i in range(count):
        start[block_slot[i] + 1] += 1
    for slot in range(1, start.size):
        start[slot] += start[slot - 1]
    for i in range(count):
        slot = block_slot[i]
        to = start[slot]
        start[slot] += 1
        group_time[to] = block_time[i]
        group_data[to] = block_data[i]
        group_length[to] = block_length[i]
        group_source[to] = block_source[i]
    # Each start has moved to the next one's place.
    for slot in range(start.size - 1, 0, -1):
        start[slot] = start[slot - 1]
    start[0] = 0
