# SPDX-License-Identifier: MIT
"""Merge the events of all CPUs by time into blocks, and sort each block by event type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tracedat._pages import read_record

_BLOCK = 16384
_LAST = (1 << 63) - 1


class Pages(NamedTuple):
    """Checked pages; source s has those from ``start[s]`` to ``start[s + 1]``."""

    # int64[pages]: byte offset
    at: NDArray[np.int64]
    # int64[pages]: raw time of the first record
    first: NDArray[np.int64]
    # int32[pages]: bytes of records
    end: NDArray[np.int32]
    # int32[pages]: number of selected events
    wanted: NDArray[np.int32]
    # int64[sources + 1]: first page of each source; events of equal time come in the order of the
    # sources
    start: NDArray[np.int64]
    # int32[sources]: the source's CPU and ring buffer
    cpu: NDArray[np.int32]
    buffer: NDArray[np.int8]


class Progress(NamedTuple):
    """The state of the merge, so that it can stop for a full table and continue."""

    # [sources]: current page, and its selected events that are still to come
    page: NDArray[np.int64]
    left: NDArray[np.int32]
    # [sources]: byte offset of the next record and of the end of the page's records
    next: NDArray[np.int64]
    stop: NDArray[np.int64]
    # [sources]: current event: raw time, byte offset and size of its data, slot
    time: NDArray[np.int64]
    data: NDArray[np.int64]
    length: NDArray[np.int32]
    slot: NDArray[np.int32]
    # [sources]: sources, ordered by the time of their current event
    heap: NDArray[np.int32]
    # [2]: sources in the heap (-1 before the first event), events in the block
    pending: NDArray[np.int64]
    # [slots]: rows written so far
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
    """Return the state of the merge before the first event."""
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
    """Fill the block with the next events of all sources in order of time."""
    # Arguments from `words` to `page_start` are those of `Pages`; `head` to `end` are those of
    # `decode`; the others are fields of `Progress`, which are updated.
    # Over 60 lines: one compiled loop. It takes arrays as single arguments, because numba counts
    # references for each array of a tuple.
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
            # Move every source to its first event, as if it had just delivered one.
            if fresh == s_page.size:
                starting = False
                continue
            s = fresh
            fresh += 1
        elif size > 0:
            s = heap[0]
        else:
            break
        # Events of this source are next until the first event of the following source.
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
    """Move a source that was added at place `i` of the heap up to its place."""
    while i > 0:
        parent = (i - 1) >> 1
        if not _before(times, heap[i], heap[parent]):
            break
        heap[i], heap[parent] = heap[parent], heap[i]
        i = parent


@numba.njit(cache=True, nogil=True)
def _sink(heap: Any, times: Any, size: Any) -> None:
    """Move the heap's first source down to its place, after its time has changed."""
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
    """Sort the block by slot; events of one slot stay in order of time."""
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
    # Each start has moved to the next slot's: shift them back.
    for slot in range(start.size - 1, 0, -1):
        start[slot] = start[slot - 1]
    start[0] = 0
