# SPDX-License-Identifier: MIT
"""From checked pages to columns: merge the CPUs by time, copy the fields of block after block.

Blocks of merged events, each sorted by event type, then one loop per type and field: twice as
fast as field by field over the whole trace, because a block's records stay in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from iolab.trace.formats import (
    BYTES,
    BYTES_DYNAMIC,
    BYTES_RELATIVE,
    BYTES_TAIL,
    INTEGER,
    INTEGER_UNALIGNED,
    TEXT,
    TEXT_DYNAMIC,
    TEXT_RELATIVE,
    TEXT_TAIL,
)
from iolab.trace.pages import read_record
from iolab.trace.strings import FULL, StringTable, gather, intern

__all__ = [
    "BUFFER",
    "CPU",
    "DONE",
    "TIME",
    "Fields",
    "Memory",
    "Pages",
    "Progress",
    "decode",
    "new_progress",
]

# Columns that are not in the record, beside the kinds of `formats`.
TIME, CPU, BUFFER = 20, 21, 22

# decode()'s status; otherwise strings.FULL, WIDE or a location's byte offset as -offset - 10.
DONE, WIDE = 0, -2
_LOCATION = 10

_BLOCK = 4096
_NARROW_CODES = 1 << 15

_LOW = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)


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


class Fields(NamedTuple):
    """What to copy: slot s owns the fields from ``start[s]`` to ``start[s + 1]``.

    ``target`` is the first element of the field's column, in elements of its own width.
    """

    start: NDArray[np.int64]
    kind: NDArray[np.int32]
    offset: NDArray[np.int32]
    size: NDArray[np.int32]
    target: NDArray[np.int64]
    table: NDArray[np.int32]


class Memory(NamedTuple):
    """One piece of memory for all columns of integers, one for all codes, at several widths."""

    b8: NDArray[np.uint8]
    b16: NDArray[np.uint16]
    b32: NDArray[np.uint32]
    b64: NDArray[np.uint64]
    codes: NDArray[Any]


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
    by_source = [np.zeros(sources, t) for t in (i64, i32, i64, i64, i64, i64, i32, i32, i32)]
    pending = np.array([-1, 0], i64)
    block = [np.zeros(_BLOCK, t) for t in (i64, i64, i32, i32, i32)]
    group = [np.zeros(_BLOCK, t) for t in (i64, i64, i32, i32)]
    return Progress(
        *by_source, pending, np.zeros(slots, i64), *block, *group, np.zeros(slots + 1, i64)
    )


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def decode(
    words: NDArray[np.uint32],
    halves: NDArray[np.uint16],
    raw: NDArray[np.uint8],
    pages: Pages,
    head: int,
    type_at: int,
    slots: NDArray[np.int32],
    begin: int,
    end: int,
    fields: Fields,
    memory: Memory,
    strings: StringTable,
    state: Progress,
) -> int:
    """Decode until everything is done or a table must grow; call again to go on.

    `words`, `halves` and `raw` are the same memory, which `pages.scan` has checked with the same
    `slots`, `begin` and `end`; the columns have exactly the rows that it counted. Returns `DONE`,
    `strings.FULL`, `WIDE` (more categories than narrow codes can tell apart), or -10 - offset of a
    field whose location lies outside its record.
    """
    if state.pending[0] < 0:
        state.pending[0] = 0
        for s in range(pages.cpu.size):
            state.page[s] = pages.start[s] - 1
            state.left[s] = 0
            if _advance(words, pages, head, type_at, slots, begin, end, state, s):
                _push(state, s)
    while True:
        if state.pending[1] == 0:
            _fill(words, pages, head, type_at, slots, begin, end, state)
            if state.pending[1] == 0:
                return DONE
            _group(state)
        status = _copy(words, halves, raw, pages, fields, memory, strings, state)
        if status != DONE:
            return status
        state.pending[1] = 0


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _advance(
    words: Any,
    pages: Any,
    head: int,
    type_at: int,
    slots: Any,
    begin: int,
    end: int,
    state: Any,
    s: int,
) -> bool:
    """Move source `s` to its next wanted event; False at its end."""
    left = state.left[s]
    at = state.next[s]
    if left == 0:
        page = state.page[s] + 1
        last = pages.start[s + 1]
        while page < last and pages.wanted[page] == 0:
            page += 1
        state.page[s] = page
        if page >= last:
            return False
        left = pages.wanted[page]
        at = pages.at[page] + head
        state.stop[s] = at + pages.end[page]
        state.time[s] = pages.first[page]
    time = state.time[s]
    stop = state.stop[s]
    while at < stop:
        data, length, following, time = read_record(words, at, stop, time)
        at = following
        if data <= 0:
            continue
        place = data + type_at
        slot = slots[(np.int64(words[place >> 2]) >> ((place & 2) << 3)) & 0xFFFF]
        if slot >= 0 and begin <= time < end:
            state.left[s] = left - 1
            state.next[s] = at
            state.time[s] = time
            state.data[s] = data
            state.length[s] = length
            state.slot[s] = slot
            return True
    return False


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _before(state: Any, a: int, b: int) -> bool:
    return state.time[a] < state.time[b] or (state.time[a] == state.time[b] and a < b)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _push(state: Any, s: int) -> None:
    heap = state.heap
    i = state.pending[0]
    state.pending[0] += 1
    heap[i] = s
    while i > 0:
        parent = (i - 1) >> 1
        if not _before(state, heap[i], heap[parent]):
            break
        heap[i], heap[parent] = heap[parent], heap[i]
        i = parent


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _sink(state: Any) -> None:
    """Put the heap in order again after its first source has moved on."""
    heap = state.heap
    size = state.pending[0]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _before(state, heap[child + 1], heap[child]):
            child += 1
        if not _before(state, heap[child], heap[i]):
            break
        heap[i], heap[child] = heap[child], heap[i]
        i = child


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fill(
    words: Any, pages: Any, head: int, type_at: int, slots: Any, begin: int, end: int, state: Any
) -> None:
    count = 0
    while count < _BLOCK and state.pending[0] > 0:
        s = state.heap[0]
        state.block_time[count] = state.time[s]
        state.block_data[count] = state.data[s]
        state.block_length[count] = state.length[s]
        state.block_slot[count] = state.slot[s]
        state.block_source[count] = s
        count += 1
        if not _advance(words, pages, head, type_at, slots, begin, end, state, s):
            state.pending[0] -= 1
            state.heap[0] = state.heap[state.pending[0]]
        _sink(state)
    state.pending[1] = count


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _group(state: Any) -> None:
    """Sort the block by event type, stable."""
    start = state.group_start
    count = state.pending[1]
    start[:] = 0
    for i in range(count):
        start[state.block_slot[i] + 1] += 1
    for slot in range(1, start.size):
        start[slot] += start[slot - 1]
    for i in range(count):
        slot = state.block_slot[i]
        to = start[slot]
        start[slot] += 1
        state.group_time[to] = state.block_time[i]
        state.group_data[to] = state.block_data[i]
        state.group_length[to] = state.block_length[i]
        state.group_source[to] = state.block_source[i]
    # Each start has moved to the next one's place.
    for slot in range(start.size - 1, 0, -1):
        start[slot] = start[slot - 1]
    start[0] = 0


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _copy(
    words: Any,
    halves: Any,
    raw: Any,
    pages: Any,
    fields: Any,
    memory: Any,
    strings: Any,
    state: Any,
) -> int:
    """Copy every field of the block's events into its column."""
    slots = state.written.size
    for slot in range(slots):
        a, b = state.group_start[slot], state.group_start[slot + 1]
        if a == b:
            continue
        for f in range(fields.start[slot], fields.start[slot + 1]):
            to = fields.target[f] + state.written[slot] - a
            kind, offset, size = fields.kind[f], fields.offset[f], fields.size[f]
            if kind == INTEGER:
                if size == 4:
                    for i in range(a, b):
                        memory.b32[to + i] = words[(state.group_data[i] + offset) >> 2]
                elif size == 8:
                    for i in range(a, b):
                        w = (state.group_data[i] + offset) >> 2
                        high = np.uint64(words[w + 1]) << np.uint64(32)
                        memory.b64[to + i] = np.uint64(words[w]) | high
                elif size == 2:
                    for i in range(a, b):
                        memory.b16[to + i] = halves[(state.group_data[i] + offset) >> 1]
                else:
                    for i in range(a, b):
                        memory.b8[to + i] = raw[state.group_data[i] + offset]
            elif kind == TIME:
                for i in range(a, b):
                    memory.b64[to + i] = np.uint64(state.group_time[i])
            elif kind == CPU:
                for i in range(a, b):
                    memory.b16[to + i] = np.uint16(pages.cpu[state.group_source[i]])
            elif kind == BUFFER:
                for i in range(a, b):
                    memory.b8[to + i] = np.uint8(pages.buffer[state.group_source[i]])
            elif kind == INTEGER_UNALIGNED:
                _copy_unaligned(raw, state, memory, a, b, to, offset, size)
            elif kind == TEXT and size == 16 and offset & 3 == 0:
                status = _copy_names(words, raw, state, memory, strings, a, b, to, offset, fields.table[f])
                if status != DONE:
                    return status
            else:
                status = _copy_strings(
                    words, raw, state, memory, strings, a, b, to, offset, size, kind, fields.table[f]
                )
                if status != DONE:
                    return status
    for slot in range(slots):
        state.written[slot] += state.group_start[slot + 1] - state.group_start[slot]
    return DONE


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _copy_unaligned(
    raw: Any, state: Any, memory: Any, a: int, b: int, to: int, offset: int, size: int
) -> None:
    for i in range(a, b):
        value = np.uint64(0)
        for k in range(size):
            byte = np.uint64(raw[state.group_data[i] + offset + k])
            value |= byte << np.uint64(8 * k)
        if size == 8:
            memory.b64[to + i] = value
        elif size == 4:
            memory.b32[to + i] = np.uint32(value)
        else:
            memory.b16[to + i] = np.uint16(value)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _up_to_nul(word: Any) -> Any:
    """Return the word without the bytes from its first zero byte on, and that byte's mark."""
    zero = (word - _LOW) & ~word & _HIGH
    if zero == 0:
        return word, zero
    zero &= ~zero + np.uint64(1)
    return word & ((zero >> np.uint64(7)) - np.uint64(1)), zero


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _copy_names(
    words: Any,
    raw: Any,
    state: Any,
    memory: Any,
    strings: Any,
    a: int,
    b: int,
    to: int,
    offset: int,
    table: int,
) -> int:
    """Task names: 16 bytes in two registers; the same name often comes twice running."""
    last_low = last_high = np.uint64(0)
    code = -1
    for i in range(a, b):
        w = (state.group_data[i] + offset) >> 2
        low = np.uint64(words[w]) | np.uint64(words[w + 1]) << np.uint64(32)
        low, zero = _up_to_nul(low)
        high = np.uint64(0)
        if zero == 0:
            high = np.uint64(words[w + 2]) | np.uint64(words[w + 3]) << np.uint64(32)
            high, zero = _up_to_nul(high)
        if code < 0 or low != last_low or high != last_high:
            length = 0
            while length < 8 and (low >> np.uint64(8 * length)) & np.uint64(255):
                length += 1
            while length >= 8 and length < 16 and (high >> np.uint64(8 * length - 64)) & np.uint64(255):
                length += 1
            code = intern(strings, raw, state.group_data[i] + offset, low, high, length, table)
            if code == FULL:
                return FULL
            if code >= _NARROW_CODES and memory.codes.itemsize == 2:
                return WIDE
            last_low, last_high = low, high
        memory.codes[to + i] = code
    return DONE


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _copy_strings(
    words: Any,
    raw: Any,
    state: Any,
    memory: Any,
    strings: Any,
    a: int,
    b: int,
    to: int,
    offset: int,
    size: int,
    kind: int,
    table: int,
) -> int:
    text = bool(kind & 1)
    for i in range(a, b):
        data = state.group_data[i]
        at = data + offset
        width = size
        if kind in (BYTES_TAIL, TEXT_TAIL):
            width = state.group_length[i] - offset
        elif kind not in (BYTES, TEXT):
            place = np.int64(0)
            for k in range(4):
                place |= np.int64(raw[at + k]) << (8 * k)
            start = place & 0xFFFF
            width = place >> 16
            if kind in (BYTES_RELATIVE, TEXT_RELATIVE):
                start += offset + 4
            if start + width > state.group_length[i]:
                return -_LOCATION - at
            at = data + start
        low, high, length = gather(raw, at, width, text)
        code = intern(strings, raw, at, low, high, length, table)
        if code == FULL:
            return FULL
        if code >= _NARROW_CODES and memory.codes.itemsize == 2:
            return WIDE
        memory.codes[to + i] = code
    return DONE
