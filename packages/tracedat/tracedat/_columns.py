# SPDX-License-Identifier: MIT
"""Decode checked pages into columns: merge the CPUs by time, copy fields block by block.

A block of merged events is sorted by event type; one loop copies each field of each type. That is
twice as fast as one field of the whole trace after the other: a block's records stay in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tracedat._formats import INTEGER, INTEGER_UNALIGNED
from tracedat._merge import Pages, Progress, fill_block, group_block
from tracedat._strings import DONE, StringTable, copy_texts

# Columns whose values are not in the record; `_formats` has the other kinds.
TIME, CPU, BUFFER = 20, 21, 22


class Fields(NamedTuple):
    """The fields to copy; slot s has those from ``start[s]`` to ``start[s + 1]``."""

    # int64[slots + 1]: first field of each slot
    start: NDArray[np.int64]
    # int32[fields]: `TIME`, `CPU`, `BUFFER` or a kind of `_formats`
    kind: NDArray[np.int32]
    # int32[fields]: bytes in the record
    offset: NDArray[np.int32]
    size: NDArray[np.int32]
    # int64[fields]: first element of the field's column, counted in the column's own width
    target: NDArray[np.int64]
    # int32[fields]: table of categories; -1 for integers
    table: NDArray[np.int32]


class Memory(NamedTuple):
    """The memory of all integer columns, as arrays of four widths, and that of all codes."""

    b8: NDArray[np.uint8]
    b16: NDArray[np.uint16]
    b32: NDArray[np.uint32]
    b64: NDArray[np.uint64]
    codes: NDArray[np.int32]


@numba.njit(cache=True, nogil=True)
def decode(
    # The pages, in three views of one memory
    words: NDArray[np.uint32],
    halves: NDArray[np.uint16],
    raw: NDArray[np.uint8],
    pages: Pages,
    # Bytes before a page's records; offset of the event number in a record
    head: Any,
    type_at: Any,
    # int32[65536]: slot by event number, as for `scan`
    slots: NDArray[np.int32],
    # Span of raw time; `end` is excluded
    begin: Any,
    end: Any,
    fields: Fields,
    memory: Memory,
    strings: StringTable,
    state: Progress,
) -> Any:
    """Decode until everything is done or a table is full; call again to continue."""
    # Returns `DONE`, `FULL`, or -`LOCATION` - offset of a field whose string lies outside its
    # record. `scan` has checked the pages with the same `slots`, `begin` and `end`, and counted the
    # rows of the columns.
    # Over 60 lines: most of them pass arrays as single arguments; see `fill_block`.
    written, group_start, pending = state.written, state.group_start, state.pending
    while True:
        if pending[1] == 0:
            fill_block(
                words,
                pages.at,
                pages.first,
                pages.end,
                pages.wanted,
                pages.start,
                head,
                type_at,
                slots,
                begin,
                end,
                state.page,
                state.left,
                state.next,
                state.stop,
                state.time,
                state.data,
                state.length,
                state.slot,
                state.heap,
                pending,
                state.block_time,
                state.block_data,
                state.block_length,
                state.block_slot,
                state.block_source,
            )
            if pending[1] == 0:
                return DONE
            group_block(state)
        _copy_integers(
            words,
            halves,
            raw,
            memory.b8,
            memory.b16,
            memory.b32,
            memory.b64,
            fields.start,
            fields.kind,
            fields.offset,
            fields.size,
            fields.target,
            pages.cpu,
            pages.buffer,
            written,
            group_start,
            state.group_time,
            state.group_data,
            state.group_source,
        )
        status = copy_texts(words, raw, fields, memory.codes, strings, state)
        if status != DONE:
            return status
        for slot in range(written.size):
            written[slot] += group_start[slot + 1] - group_start[slot]
        pending[1] = 0


@numba.njit(cache=True, nogil=True)
def _copy_integers(
    words: Any,
    halves: Any,
    raw: Any,
    b8: Any,
    b16: Any,
    b32: Any,
    b64: Any,
    f_start: Any,
    f_kind: Any,
    f_offset: Any,
    f_size: Any,
    f_target: Any,
    cpu: Any,
    buffer: Any,
    written: Any,
    group_start: Any,
    group_time: Any,
    group_data: Any,
    group_source: Any,
) -> None:
    """Copy all integer columns of the block."""
    # Over 60 lines, and arrays as single arguments: see `fill_block`.
    for slot in range(written.size):
        a, b = group_start[slot], group_start[slot + 1]
        if a == b:
            continue
        for f in range(f_start[slot], f_start[slot + 1]):
            to = f_target[f] + written[slot] - a
            kind, size = f_kind[f], f_size[f]
            offset = np.int64(f_offset[f])
            if kind == INTEGER:
                if size == 4:
                    for i in range(a, b):
                        b32[to + i] = words[(group_data[i] + offset) >> 2]
                elif size == 8:
                    for i in range(a, b):
                        w = (group_data[i] + offset) >> 2
                        b64[to + i] = np.uint64(words[w]) | np.uint64(words[w + 1]) << np.uint64(32)
                elif size == 2:
                    for i in range(a, b):
                        b16[to + i] = halves[(group_data[i] + offset) >> 1]
                else:
                    for i in range(a, b):
                        b8[to + i] = raw[group_data[i] + offset]
            elif kind == TIME:
                for i in range(a, b):
                    b64[to + i] = np.uint64(group_time[i])
            elif kind == CPU:
                for i in range(a, b):
                    b16[to + i] = np.uint16(cpu[group_source[i]])
            elif kind == BUFFER:
                for i in range(a, b):
                    b8[to + i] = np.uint8(buffer[group_source[i]])
            elif kind == INTEGER_UNALIGNED:
                for i in range(a, b):
                    value = np.uint64(0)
                    for k in range(size):
                        value |= np.uint64(raw[group_data[i] + offset + k]) << np.uint64(8 * k)
                    if size == 8:
                        b64[to + i] = value
                    elif size == 4:
                        b32[to + i] = np.uint32(value)
                    else:
                        b16[to + i] = np.uint16(value)
