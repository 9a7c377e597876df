# SPDX-License-Identifier: MIT
"""The record walk over ring-buffer pages: what is in them, checked before anything is decoded.

A page is a time stamp (8 bytes), the commit word (bytes of records; flags for lost events), then
records: a word of 5 bits type/length and 27 bits time delta, and data. Source: the kernel's
include/linux/ring_buffer.h and kernel/trace/ring_buffer.c, and libtraceevent's kbuffer for what
a reader makes of time stamps.

Everything here takes memory as it comes from a file: each read is inside the page, each loop
moves forward.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["PROBLEMS", "SPARE", "UNKNOWN", "UNWANTED", "read_record", "scan"]

# Words behind the last page that the record walk and its users may look at.
SPARE = 8

# A record's fate by its event number, where it is no slot of a wanted event.
UNKNOWN, UNWANTED = -1, -2

# What scan() can find wrong, by its negative status.
PROBLEMS = {
    -1: "a page claims more bytes than it has",
    -2: "a record reaches beyond its page's end",
    -3: "a record of impossible length",
    -4: "an event of a number that no format describes",
    -5: "a record shorter than its event",
    -6: "a time stamp of more than 62 bits",
    -7: "time goes backwards inside a page",
}

_COMMIT_BITS = (1 << 27) - 1
_LOST, _LOST_STORED = 1 << 31, 1 << 30
_MAX_TIME = 1 << 62
# Absolute stamps have 59 bits; the rest comes from the time so far.
_STAMP_HIGH = ~((1 << 59) - 1)


@numba.njit(cache=True, nogil=True)
def read_record(word: Any, second: Any, at: Any, end: Any, time: Any) -> Any:
    """Read one record at byte `at` of a page's records that end at `end`.

    `word` and `second` are the two words at `at`, as int64: arrays as arguments would have their
    references counted at every call. What `second` is beyond `end` does not matter.

    Returns (data offset or a status, data length, next record, time). A status of 0 says: no
    event here, go on; a negative one is a key of `PROBLEMS`.
    """
    kind, delta = word & 31, word >> 5
    if 0 < kind < 29:
        data = at + 4
        length = kind << 2
        if data + length > end:
            return -2, 0, end, time
        return data, length, data + length, time + delta
    if kind == 29 and delta == 0:
        return 0, 0, end, time  # the page's unused rest
    if at + 8 > end:
        return -2, 0, end, time
    if kind == 0:
        length = (second - 4 + 3) & ~3
        data = at + 8
        if second < 4:
            return -3, 0, end, time
        if data + length > end:
            return -2, 0, end, time
        return data, length, data + length, time + delta
    if kind == 29:  # a discarded record: its time still counts
        if second & 3:
            return -3, 0, end, time
        if at + 4 + second > end:
            return -2, 0, end, time
        return 0, 0, at + 4 + second, time + delta
    stamp = (second << 27) + delta
    if kind == 30:
        stamp += time
    else:
        stamp |= time & _STAMP_HIGH
        if stamp < time:
            return -7, 0, end, time
    if stamp > _MAX_TIME:
        return -6, 0, end, time
    return 0, 0, at + 8, stamp


@numba.njit(cache=True, nogil=True)
def scan(
    words: NDArray[np.uint32],
    page_at: NDArray[np.int64],
    page_size: Any,
    head: Any,
    commit_bytes: Any,
    type_at: Any,
    slots: NDArray[np.int32],
    needs: NDArray[np.int32],
    begin: Any,
    end: Any,
    counts: NDArray[np.int64],
    page_first: NDArray[np.int64],
    page_last: NDArray[np.int64],
    page_end: NDArray[np.int32],
    page_wanted: NDArray[np.int32],
    page_lost: NDArray[np.int64],
) -> Any:
    """Walk pages, check every record, count the wanted events of each type.

    Parameters
    ----------
    words
        All pages as 32-bit words, and at least `SPARE` words behind them.
    page_at
        Byte offset of each page to walk.
    page_size, head, commit_bytes
        A page's bytes, those before the records and those of the commit word.
    type_at
        Where the event number stands in a record's data.
    slots, needs
        By event number: the slot, `UNKNOWN` or `UNWANTED`; the shortest allowed data in bytes.
    begin, end
        Count events of this span of raw time, the end excluded.
    counts
        By slot; added to.
    page_first, page_last, page_end, page_wanted, page_lost
        Results by page: the first and last time (-1 for a page without records), bytes of
        records, wanted events, lost events before it (-1: unknown number).

    Returns
    -------
        (0, 0, 0), or a key of `PROBLEMS`, the byte offset in `words`, and the event number.
    """
    for p in range(page_at.size):
        base = page_at[p]
        first_word = base >> 2
        low = np.int64(words[first_word])
        high = np.int64(words[first_word + 1])
        commit = np.int64(words[first_word + 2])
        size = commit & _COMMIT_BITS
        page_first[p] = page_last[p] = -1
        page_end[p] = page_wanted[p] = page_lost[p] = 0
        if size > page_size - head or size & 3:
            return -1, base, 0
        if commit & _LOST:
            page_lost[p] = -1
            if commit & _LOST_STORED and head + size + commit_bytes <= page_size:
                after = (base + head + size) >> 2
                lost = np.int64(words[after])
                if commit_bytes == 8:
                    lost |= np.int64(words[after + 1] & np.uint32(0x7FFFFFFF)) << 32
                page_lost[p] = lost
        if size == 0:
            continue
        if high >= 1 << 30:
            return -6, base, 0
        time: Any = (high << 32) | low
        page_first[p] = time
        page_end[p] = size
        at = base + head
        stop = at + size
        wanted = 0
        while at < stop:
            word, second = np.int64(words[at >> 2]), np.int64(words[(at >> 2) + 1])
            data, length, following, time = read_record(word, second, at, stop, time)
            if data <= 0:
                if data < 0:
                    return data, at, 0
                at = following
                continue
            if length < type_at + 2:
                return -5, at, 0
            place = data + type_at
            number = (np.int64(words[place >> 2]) >> ((place & 2) << 3)) & 0xFFFF
            slot = slots[number]
            if slot >= 0:
                if length < needs[number]:
                    return -5, at, number
                if begin <= time < end:
                    counts[slot] += 1
                    wanted += 1
            elif slot == UNKNOWN:
                return -4, at, number
            at = following
        page_last[p] = time
        page_wanted[p] = wanted
    return 0, 0, 0
