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
    BYTES_DYNAMIC,
    BYTES_RELATIVE,
    BYTES_TAIL,
    INTEGER,
    INTEGER_UNALIGNED,
)
from iolab.trace.merge import Pages, Progress, fill_block, group_block
from iolab.trace.strings import FULL, SHORT, StringTable, gather, hash_of, intern

__all__ = [
    "BUFFER",
    "CPU",
    "DONE",
    "TIME",
    "Fields",
    "Memory",
    "decode",
]

# Columns that are not in the record, beside the kinds of `formats`.
TIME, CPU, BUFFER = 20, 21, 22

# decode()'s status; otherwise strings.FULL or a location's byte offset as -offset - 10.
DONE = 0
_LOCATION = 10

_LOW = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)


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
    codes: NDArray[np.int32]


@numba.njit(cache=True, nogil=True)
def decode(
    words: NDArray[np.uint32],
    halves: NDArray[np.uint16],
    raw: NDArray[np.uint8],
    pages: Pages,
    head: Any,
    type_at: Any,
    slots: NDArray[np.int32],
    begin: Any,
    end: Any,
    fields: Fields,
    memory: Memory,
    strings: StringTable,
    state: Progress,
) -> Any:
    """Decode until everything is done or a table must grow; call again to go on.

    `words`, `halves` and `raw` are the same memory, which `pages.scan` has checked with the same
    `slots`, `begin` and `end`; the columns have exactly the rows that it counted. Returns `DONE`,
    `strings.FULL`, or -10 - offset of a field whose location lies outside its record.
    """
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
        status = _copy_texts(words, raw, fields, memory.codes, strings, state)
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
    """Copy all columns of integers of the block; arrays one by one as in `fill_block`."""
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


@numba.njit(cache=True, nogil=True)
def _copy_texts(words: Any, raw: Any, fields: Any, codes: Any, strings: Any, state: Any) -> Any:
    """Copy all columns of texts and byte strings of the block."""
    for slot in range(state.written.size):
        a, b = state.group_start[slot], state.group_start[slot + 1]
        if a == b:
            continue
        for f in range(fields.start[slot], fields.start[slot + 1]):
            if fields.table[f] < 0:
                continue
            status = _copy_strings(
                codes[fields.target[f] + state.written[slot] :],
                words,
                raw,
                state.group_data[a:b],
                state.group_length[a:b],
                np.int64(fields.offset[f]),
                np.int64(fields.size[f]),
                fields.kind[f],
                fields.table[f],
                strings,
            )
            if status != DONE:
                return status
    return DONE


@numba.njit(cache=True, nogil=True)
def _shifted(low: Any, high: Any, rest: Any, byte: Any, size: Any) -> Any:
    """Return the `size` (up to 16) bytes from `byte` (0 to 3) on of 20 bytes, as two words."""
    bits = np.uint64(byte << 3)
    if bits:
        left = np.uint64(64) - bits
        low = low >> bits | high << left
        high = high >> bits | rest << left
    if size < 8:
        return low & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)), np.uint64(0)
    if size < 16:
        return low, high & ((np.uint64(1) << np.uint64(8 * size - 64)) - np.uint64(1))
    return low, high


@numba.njit(cache=True, nogil=True)
def _up_to_nul(low: Any, high: Any) -> Any:
    """Return two words without the bytes from their first zero byte on: garbage follows a NUL."""
    zero = (low - _LOW) & ~low & _HIGH
    if zero:
        return low & (((zero & (~zero + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)), np.uint64(
            0
        )
    zero = (high - _LOW) & ~high & _HIGH
    if zero:
        high &= ((zero & (~zero + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
    return low, high


@numba.njit(cache=True, nogil=True)
def _locate(
    word: Any, second: Any, data: Any, length: Any, offset: Any, size: Any, kind: Any
) -> Any:
    """Return (byte offset, bytes) of a text or byte string; bytes are -1 outside the record.

    `word` and `second` are the words at the field, for locations.
    """
    if kind < BYTES_DYNAMIC:
        return data + offset, size
    if kind >= BYTES_TAIL:
        return data + offset, length - offset
    bits = ((data + offset) & 3) << 3
    place = (word >> bits | second << (32 - bits)) & 0xFFFFFFFF
    start = place & 0xFFFF
    width = place >> 16
    if kind >= BYTES_RELATIVE:
        start += offset + 4
    if start + width > length:
        return data + offset, -1
    return data + start, width


@numba.njit(cache=True, nogil=True)
def _copy_known(
    target: Any,
    words: Any,
    data: Any,
    lengths: Any,
    offset: Any,
    size: Any,
    kind: Any,
    table: Any,
    slots: Any,
    lows: Any,
    highs: Any,
    known: Any,
    tables: Any,
    codes: Any,
    i: Any,
) -> Any:
    """Copy codes from row `i` on; return the first row whose value is long or has no code yet.

    Values of up to 16 bytes are compared and looked up as two words; the same one often comes
    twice running.
    """
    text = bool(kind & 1)
    last_low = last_high = np.uint64(0)
    code = np.int64(-1)
    last_width = np.int64(-2)  # unlike any value's
    mask = slots.size - 1
    while i < data.size:
        w = (data[i] + offset) >> 2
        word, second = np.int64(words[w]), np.int64(words[w + 1])
        at, width = _locate(word, second, data[i], np.int64(lengths[i]), offset, size, kind)
        if width < 0 or width > SHORT:
            return i
        w = at >> 2
        low = np.uint64(words[w]) | np.uint64(words[w + 1]) << np.uint64(32)
        high = np.uint64(words[w + 2]) | np.uint64(words[w + 3]) << np.uint64(32)
        rest = np.uint64(words[w + 4])
        low, high = _shifted(low, high, rest, at & 3, width)
        if text:
            low, high = _up_to_nul(low, high)
            # A text's two words tell it from all others.
            width = np.int64(-1)
        if low != last_low or high != last_high or width != last_width:
            slot = hash_of(low, high, table) & mask
            code = np.int64(-1)
            while slots[slot] >= 0:
                entry = slots[slot]
                slot = (slot + 1) & mask
                if (
                    lows[entry] == low
                    and highs[entry] == high
                    and tables[entry] == table
                    and (known[entry] == width or (width < 0 and known[entry] <= SHORT))
                ):
                    code = np.int64(codes[entry])
                    break
            if code < 0:
                return i
            last_low, last_high, last_width = low, high, width
        target[i] = code
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _copy_strings(
    target: Any,
    words: Any,
    raw: Any,
    data: Any,
    lengths: Any,
    offset: Any,
    size: Any,
    kind: Any,
    table: Any,
    strings: Any,
) -> Any:
    """Copy one column of texts or byte strings as codes."""
    i = 0
    while True:
        i = _copy_known(
            target,
            words,
            data,
            lengths,
            offset,
            size,
            kind,
            table,
            strings.slots,
            strings.low,
            strings.high,
            strings.length,
            strings.table,
            strings.code,
            i,
        )
        if i >= data.size:
            return DONE
        w = (data[i] + offset) >> 2
        word, second = np.int64(words[w]), np.int64(words[w + 1])
        at, width = _locate(word, second, data[i], np.int64(lengths[i]), offset, size, kind)
        if width < 0:
            return -_LOCATION - at
        low, high, length = gather(raw, at, width, bool(kind & 1))
        code = intern(strings, raw, at, low, high, length, table)
        if code == FULL:
            return FULL
        target[i] = code
        i += 1
