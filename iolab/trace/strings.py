# SPDX-License-Identifier: MIT
"""Texts and byte strings become small numbers while records are decoded.

A hash table that compiled code fills: every distinct value of a table of categories gets the
next code of that table. Values of up to 16 bytes are their own key; longer ones stand in `pool`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["FULL", "SHORT", "StringTable", "gather", "hash_of", "intern", "new_table", "values"]

# The status of a table that must grow before it can take a value.
FULL = -1

# Values of so many bytes are their own key.
SHORT = 16


class StringTable(NamedTuple):
    """The hash table's arrays.

    ``slots`` holds entry numbers (or -1) by hash; ``low``, ``high``, ``length``, ``place``,
    ``table`` and ``code`` describe the entries; ``pool`` holds long values; ``used`` is
    [entries, pool bytes]; ``next_code`` counts by table.
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
    """Return a table with room for `entries` values and `pool` bytes, with all of `old`."""
    size = 1 << (2 * entries - 1).bit_length()
    made = StringTable(
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
        pairs: Any = zip(made[1:], old[1:], strict=True)
        for target, source in pairs:
            target[: source.size] = source
        _rehash(made.slots, made.low, made.high, made.table, int(made.used[0]))
    return made


def values(strings: StringTable, table: int, text: bool) -> list[str] | list[bytes]:
    """Return a table's values in the order of their codes."""
    count = int(strings.used[0])
    mine = np.flatnonzero(strings.table[:count] == table)
    mine = mine[np.argsort(strings.code[mine])]
    found: list[bytes] = []
    for i in mine.tolist():
        length = int(strings.length[i])
        if length <= SHORT:
            both = int(strings.low[i]) | int(strings.high[i]) << 64
            found.append(both.to_bytes(SHORT, "little")[:length])
        else:
            place = int(strings.place[i])
            found.append(strings.pool[place : place + length].tobytes())
    return [one.decode(errors="backslashreplace") for one in found] if text else found


@numba.njit(cache=True, nogil=True)
def hash_of(low: Any, high: Any, table: Any) -> Any:
    """Return a value's hash: 31 bits of its two words and its table."""
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
    """Return (low key, high key, length) of the value in `size` bytes at `at`.

    A text ends at its first NUL: what follows is garbage. Beyond 16 bytes the keys are a hash.
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
    """Return the value's code in its table, a new one if need be, or `FULL`."""
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
