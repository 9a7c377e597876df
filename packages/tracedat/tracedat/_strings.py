# SPDX-License-Identifier: MIT
"""Turn strings and byte strings of records into codes of categories.

Compiled code fills a hash table: every distinct value of a table of categories gets the table's
next code. Values of up to 16 bytes are their own key; longer ones are copied to a pool.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tracedat._formats import BYTES_DYNAMIC, BYTES_RELATIVE, BYTES_TAIL

# Statuses: everything is copied; the table must grow before it can store a value; and
# -LOCATION - offset of a field whose string lies outside its record.
DONE, FULL, LOCATION = 0, -1, 10

# The longest value, in bytes, that is its own key.
SHORT = 16

_LOW = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)


class StringTable(NamedTuple):
    """The hash table's arrays."""

    # int32[2^k]: number of the entry by hash; -1 for none
    slots: NDArray[np.int32]
    # uint64[entries]: the value, or a hash of a long one
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    # int32[entries]: bytes of the value
    length: NDArray[np.int32]
    # int64[entries]: byte offset of a long value in `pool`
    place: NDArray[np.int64]
    # int32[entries]: the table of categories, and the value's code there
    table: NDArray[np.int32]
    code: NDArray[np.int32]
    # uint8[bytes]: long values
    pool: NDArray[np.uint8]
    # int64[2]: number of entries and bytes of the pool in use
    used: NDArray[np.int64]
    # int32[tables]: number of codes by table
    next_code: NDArray[np.int32]


def new_table(tables: int, entries: int, pool: int, old: StringTable | None = None) -> StringTable:
    """Return a hash table."""
    size = 1 << (2 * entries - 1).bit_length()
    new = StringTable(
        np.full(size, -1, np.int32),
        np.zeros(entries, np.uint64),
        np.zeros(entries, np.uint64),
        np.zeros(entries, np.int32),
        np.zeros(entries, np.int64),
        np.zeros(entries, np.int32),
        np.zeros(entries, np.int32),
        np.zeros(pool, np.uint8),
        np.zeros(2, np.int64),
        np.zeros(max(tables, 1), np.int32),
    )
    if old is not None:
        pairs: Any = zip(new[1:], old[1:], strict=True)
        for target, source in pairs:
            target[: source.size] = source
        _rehash(new.slots, new.low, new.high, new.table, int(new.used[0]))
    return new


def values(strings: StringTable, table: int, text: bool) -> list[str] | list[bytes]:
    """Return the values of one table of categories in the order of their codes."""
    count = int(strings.used[0])
    entries = np.flatnonzero(strings.table[:count] == table)
    entries = entries[np.argsort(strings.code[entries])]
    data: list[bytes] = []
    for i in entries.tolist():
        length = int(strings.length[i])
        if length <= SHORT:
            both = int(strings.low[i]) | int(strings.high[i]) << 64
            data.append(both.to_bytes(SHORT, "little")[:length])
        else:
            place = int(strings.place[i])
            data.append(strings.pool[place : place + length].tobytes())
    return [value.decode(errors="backslashreplace") for value in data] if text else data


@numba.njit(cache=True, nogil=True)
def hash_of(low: Any, high: Any, table: Any) -> Any:
    """Return the hash (31 bits) of a value's two words and its table."""
    mixed = (low ^ (high * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= np.uint64(table) * np.uint64(0x94D049BB133111EB)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(0x7FFFFFFF))


@numba.njit(cache=True, nogil=True)
def _rehash(slots: Any, low: Any, high: Any, table: Any, count: int) -> None:
    mask = slots.size - 1
    for entry in range(count):
        slot = hash_of(low[entry], high[entry], table[entry]) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = entry


@numba.njit(cache=True, nogil=True)
def gather(raw: Any, at: Any, size: Any, text: Any) -> Any:
    """Return the two words and the length of the value in `size` bytes at `at`.

    A text ends at its first NUL; what follows is garbage. The words of a value of more than 16
    bytes are a hash.
    """
    low = np.uint64(0)
    high = np.uint64(0)
    length = 0
    for i in range(size):
        byte = np.uint64(raw[at + i])
        if text and byte == 0:
            break
        if i < 8:
            low |= byte << np.uint64(8 * i)
        elif i < 16:
            high |= byte << np.uint64(8 * i - 64)
        else:
            low = (low ^ byte) * np.uint64(0x100000001B3)
            high = (high + byte) * np.uint64(0x9E3779B97F4A7C15)
        length += 1
    return low, high, length


@numba.njit(cache=True, nogil=True)
def intern(strings: Any, raw: Any, at: Any, low: Any, high: Any, length: Any, table: Any) -> Any:
    """Return the value's code in its table, a new one for a new value, or `FULL`."""
    mask = strings.slots.size - 1
    slot = hash_of(low, high, table) & mask
    while True:
        entry = strings.slots[slot]
        if entry < 0:
            break
        if (
            strings.low[entry] == low
            and strings.high[entry] == high
            and strings.length[entry] == length
            and strings.table[entry] == table
        ):
            if length <= SHORT:
                return strings.code[entry]
            place = strings.place[entry]
            same = True
            for i in range(length):
                if strings.pool[place + i] != raw[at + i]:
                    same = False
                    break
            if same:
                return strings.code[entry]
        slot = (slot + 1) & mask
    entry = strings.used[0]
    if entry >= strings.low.size:
        return FULL
    if length > SHORT:
        place = strings.used[1]
        if place + length > strings.pool.size:
            return FULL
        for i in range(length):
            strings.pool[place + i] = raw[at + i]
        strings.place[entry] = place
        strings.used[1] += length
    strings.slots[slot] = entry
    strings.low[entry] = low
    strings.high[entry] = high
    strings.length[entry] = length
    strings.table[entry] = table
    code = strings.next_code[table]
    strings.code[entry] = code
    strings.next_code[table] += 1
    strings.used[0] += 1
    return code


@numba.njit(cache=True, nogil=True)
def copy_texts(words: Any, raw: Any, fields: Any, codes: Any, strings: Any, state: Any) -> Any:
    """Copy all string columns of the block; return a status."""
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
    """Write the common code of each code."""
    for i in range(codes.size):
        target[i] = common[codes[i]]
