# SPDX-License-Identifier: MIT
"""Copy strings and byte strings of records into columns, as codes of categories."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tracedat._formats import BYTES_DYNAMIC, BYTES_RELATIVE, BYTES_TAIL
from tracedat._strings import FULL, SHORT, gather, hash_of, intern

__all__ = ["DONE", "LOCATION", "copy_texts", "replace_codes"]

# Statuses beside `tracedat._strings.FULL`: everything is copied, or a string lies outside its
# record; then the status is -LOCATION - offset.
DONE = 0
LOCATION = 10

_LOW = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)


@numba.njit(cache=True, nogil=True)
def copy_texts(words: Any, raw: Any, fields: Any, codes: Any, strings: Any, state: Any) -> Any:
    """Copy all string columns of the block.

    Parameters
    ----------
    words, raw : uint32[n], uint8[4 n]
        The pages, in two views of one memory.
    fields : Fields
        The fields to copy.
    codes : int32[m]
        The memory of the columns.
    strings : StringTable
        The categories; grows.
    state : Progress
        The block.

    Returns
    -------
    int
        `DONE`, `tracedat._strings.FULL`, or -`LOCATION` - offset of a field whose string lies
        outside its record.
    """
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
    """Return `size` (up to 16) of 20 bytes as two words, beginning at `byte` (0 to 3)."""
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
    """Clear the first NUL of two words and all bytes behind it, which are garbage."""
    zero = (low - _LOW) & ~low & _HIGH
    if zero:
        low &= ((zero & (~zero + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
        return low, np.uint64(0)
    zero = (high - _LOW) & ~high & _HIGH
    if zero:
        high &= ((zero & (~zero + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
    return low, high


@numba.njit(cache=True, nogil=True)
def _locate(
    word: Any, second: Any, data: Any, length: Any, offset: Any, size: Any, kind: Any
) -> Any:
    """Return byte offset and size of a string; the size is -1 if it lies outside its record.

    `word` and `second` are the words at the field. A dynamic field holds a location: the size in
    its upper 16 bits, the offset in its lower ones (``__data_loc`` from the record's begin,
    ``__rel_loc`` from the field's end; the kernel's include/trace/stages/).
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
    """Copy codes, beginning at row `i`; return the first row whose value is long or new.

    Values of up to 16 bytes are compared as two words. The previous value is tried first, because
    values often repeat.
    """
    # Over 60 lines: one compiled loop that keeps the previous value in local variables.
    text = bool(kind & 1)
    last_low = last_high = np.uint64(0)
    code = np.int64(-1)
    last_width = np.int64(-2)  # no value has this width
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
            # The two words identify a text: its width is not compared.
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
    """Copy one string column as codes."""
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
            return -LOCATION - at
        low, high, length = gather(raw, at, width, bool(kind & 1))
        code = intern(strings, raw, at, low, high, length, table)
        if code == FULL:
            return FULL
        target[i] = code
        i += 1


@numba.njit(cache=True, nogil=True)
def replace_codes(codes: Any, common: Any, target: Any) -> None:
    """Write the common code of each code.

    Parameters
    ----------
    codes : int32[n]
        A part's codes.
    common : array[categories]
        The common code of each of the part's codes.
    target : array[n]
        Written; of the type of `common`.
    """
    for i in range(codes.size):
        target[i] = common[codes[i]]
