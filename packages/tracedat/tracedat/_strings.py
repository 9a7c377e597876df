# SPDX-License-Identifier: MIT
"""A hash table that turns strings and byte strings into codes of categories.

Compiled code fills it: every distinct value of a table of categories gets the table's next code.
Values of up to 16 bytes are their own key; longer ones are copied to a pool.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["FULL", "SHORT", "StringTable", "gather", "hash_of", "intern", "new_table", "values"]

# Status: the table must grow before it can store a value.
FULL = -1

# The longest value, in bytes, that is its own key.
SHORT = 16


class StringTable(NamedTuple):
    """The hash table's arrays.

    Parameters
    ----------
    slots : int32[2^k]
        Number of the entry by hash; -1 for none.
    low, high : uint64[entries]
        The value, or a hash of a long one.
    length : int32[entries]
        Bytes of the value.
    place : int64[entries]
        Byte offset of a long value in `pool`.
    table, code : int32[entries]
        The table of categories, and the value's code there.
    pool : uint8[bytes]
        Long values.
    used : int64[2]
        Number of entries and bytes of the pool in use.
    next_code : int32[tables]
        Number of codes by table.
    """

    slots: NDArray[np.int32]
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    length: NDArray[np.int32]
    place: NDArray[np.int64]
    table: NDArray[np.int32]
    code: NDArray[np.int32]
    pool: NDArray[np.uint8]
    used: NDArray[np.int64]
    next_code: NDArray[np.int32]


def new_table(tables: int, entries: int, pool: int, old: StringTable | None = None) -> StringTable:
    """Return a hash table.

    Parameters
    ----------
    tables : int
        Number of tables of categories.
    entries, pool : int
        Room for so many values, and for so many bytes of long values.
    old : StringTable, optional
        Contents to copy.
    """
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
    """Return the values of one table of categories in the order of their codes.

    Parameters
    ----------
    strings : StringTable
        The hash table.
    table : int
        The table of categories.
    text : bool
        Whether to decode the values to strings.
    """
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
