# SPDX-License-Identifier: MIT
"""Walk the records of ring-buffer pages and check them before anything is decoded.

A page has a time stamp (8 bytes), the commit word (bytes of records; flags for lost events), then
records: a word with 5 bits of type or length and 27 bits of time delta, then data. See
``enum ring_buffer_type`` in the kernel's include/linux/ring_buffer.h, ``struct buffer_data_page``
and ``RB_MISSED_*`` in kernel/trace/ring_buffer.c; how a reader combines time stamps follows
src/kbuffer-parse.c of libtraceevent.

The memory comes from a file that may be damaged: each read stays inside the page, each loop moves
forward.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["PROBLEMS", "SPARE", "UNKNOWN", "UNWANTED", "load_compiled", "read_record", "scan"]

# Words behind the last page that the record walk and its callers may read.
SPARE = 8

# Slots of event numbers without a format, and of events that are not selected.
UNKNOWN, UNWANTED = -1, -2

# Messages for the negative statuses of `scan`.
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
# Absolute time stamps have 59 bits; the others are those of the previous time (rb_fix_abs_ts in
# kernel/trace/ring_buffer.c).
_STAMP_HIGH = ~((1 << 59) - 1)


@numba.njit(cache=True, nogil=True)
def read_record(word: Any, second: Any, at: Any, end: Any, time: Any) -> Any:
    """Read one record.

    Parameters
    ----------
    word, second : int64
        The two 32-bit words at `at`; `second` may lie behind `end`. Values instead of an array:
        numba would count the array's references at every call.
    at, end : int
        Byte offset of the record, and of the end of the page's records.
    time : int64
        Raw time of the previous record.

    Returns
    -------
    int
        Byte offset of the record's data; 0 for a record that is not an event; a key of `PROBLEMS`.
    int
        Bytes of data.
    int
        Byte offset of the next record.
    int64
        Raw time of the record.
    """
    kind, delta = word & 31, word >> 5
    if 0 < kind < 29:
        data = at + 4
        length = kind << 2
        if data + length > end:
            return -2, 0, end, time
        return data, length, data + length, time + delta
    if kind == 29 and delta == 0:
        return 0, 0, end, time  # padding: the unused rest of the page
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
    if kind == 29:  # a discarded record, whose time delta still counts
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


def load_compiled() -> None:
    """Do what the first call of a compiled loop does: load numba's tables, for half a second."""
    none = np.zeros(0, np.int64)
    short, words = none.astype(np.int32), none.astype(np.uint32)
    scan(
        *(words, none, 0, 0, 0, 0, short, short, 0, 0),
        *(none, none, none, short, short, none),
    )


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
    """Check every record of some pages and count the selected events.

    Parameters
    ----------
    words : uint32[n]
        The pages, and at least `SPARE` words behind them.
    page_at : int64[p]
        Byte offset of each page to walk.
    page_size, head, commit_bytes : int
        Bytes of a page, of what precedes its records, and of the commit word.
    type_at : int
        Byte offset of the event number in a record's data.
    slots : int32[65536]
        By event number: the slot, `UNKNOWN` or `UNWANTED`.
    needs : int32[65536]
        By event number: bytes of the shortest possible data.
    begin, end : int
        Span of raw time in which events are counted; `end` is excluded.
    counts : int64[slots]
        Selected events by slot; added to.
    page_first, page_last : int64[p]
        Written: raw time of the first and last record; -1 for a page without records.
    page_end, page_wanted : int32[p]
        Written: bytes of records, selected events.
    page_lost : int64[p]
        Written: events lost before the page; -1 if the kernel does not say how many.

    Returns
    -------
    int
        0, or a key of `PROBLEMS`.
    int, int
        Byte offset and event number of the problem.
    """
    # Over 60 lines: one compiled loop.
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
