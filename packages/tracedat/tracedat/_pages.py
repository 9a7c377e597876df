# SPDX-License-Identifier: MIT
"""Load ring-buffer pages, walk their records and check them before anything is decoded.

A page has a time stamp (8 bytes), the commit word (bytes of records; flags for lost events), then
records: a word with 5 bits of type or length and 27 bits of time delta, then data. See
``enum ring_buffer_type`` in the kernel's include/linux/ring_buffer.h, ``struct buffer_data_page``
and ``RB_MISSED_*`` in kernel/trace/ring_buffer.c; how a reader combines time stamps follows
src/kbuffer-parse.c of libtraceevent.

The memory comes from a file that may be damaged: each read stays inside the page, each loop moves
forward.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tracedat._chunks import Chunk, PageSource, groups_of, read_chunks
from tracedat._container import Container
from tracedat._errors import TraceError
from tracedat._file import TraceFile
from tracedat._formats import PageLayout
from tracedat._memory import SPAN, MemoryRoom, map_threads, reserve

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
# Of a page, beside what it holds: its elements of `Loaded`, and of the arrays made from them.
_PAGE_BYTES = 128


@numba.njit(cache=True, nogil=True)
def read_record(word: Any, second: Any, at: Any, end: Any, time: Any) -> Any:
    """Read the record at `at`; return its data's offset and bytes, the next record, its time."""
    # The offset is 0 for a record that is no event, negative for a key of `PROBLEMS`. `word` and
    # `second` are the words at `at`; the second may lie behind `end`. Values instead of an array:
    # numba would count the array's references at every call.
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


@numba.njit(cache=True, nogil=True)
def scan(
    # uint32[n]: the pages, and at least `SPARE` words behind them
    words: NDArray[np.uint32],
    # int64[p]: byte offset of each page to walk
    page_at: NDArray[np.int64],
    # Bytes of a page, of what precedes its records, and of the commit word
    page_size: Any,
    head: Any,
    commit_bytes: Any,
    # Byte offset of the event number in a record's data
    type_at: Any,
    # int32[65536]: by event number: the slot, `UNKNOWN` or `UNWANTED`
    slots: NDArray[np.int32],
    # int32[65536]: by event number: bytes of the shortest possible data
    needs: NDArray[np.int32],
    # Span of raw time in which events are counted; `end` is excluded
    begin: Any,
    end: Any,
    # int64[slots]: selected events by slot; added to
    counts: NDArray[np.int64],
    # int64[p]: written: raw time of the first and last record; -1 for a page without records
    page_first: NDArray[np.int64],
    page_last: NDArray[np.int64],
    # int32[p]: written: bytes of records, selected events
    page_end: NDArray[np.int32],
    page_wanted: NDArray[np.int32],
    # int64[p]: written: events lost before the page; -1 if the kernel does not say how many
    page_lost: NDArray[np.int64],
) -> Any:
    """Check every record of some pages and count the selected events."""
    # Returns 0 or a key of `PROBLEMS`, and the byte offset and event number of the problem.
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


@dataclass(frozen=True)
class Selection:
    """The events to decode; every wanted event type has a slot, a number from 0."""

    # int32[65536]: by event number, as for `scan`
    slots: NDArray[np.int32]
    needs: NDArray[np.int32]
    size: int
    # Byte offset of the event number in a record's data
    type_at: int
    # Span of raw time; `end` is excluded
    begin: int
    end: int


@dataclass
class Loaded:
    """Checked pages in memory."""

    # The pages, one after the other
    memory: mmap.mmap
    # uint32[m]: the same memory
    words: NDArray[np.uint32]
    # int64[sources + 1]: number of each source's first page, then the number of pages
    start: NDArray[np.int64]
    # int64[pages]: byte offset of the page in `words`
    at: NDArray[np.int64]
    # int64[pages]: raw time of the page's first and last record; -1 for a page without records
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    # int32[pages]: bytes of records
    end: NDArray[np.int32]
    # int32[pages]: number of selected events
    wanted: NDArray[np.int32]
    # int64[pages]: number of events lost before the page; -1 if the kernel does not say
    lost: NDArray[np.int64]
    # int64[slots]: number of selected events by slot
    counts: NDArray[np.int64]
    # list of (int, int, int, int64[slots]): ranges of pages: source, first page, page behind the
    # last, selected events by slot
    spans: list[tuple[int, int, int, NDArray[np.int64]]]

    def release(self, begin: int, end: int) -> None:
        """Return to the kernel the memory of pages that lie inside a span of raw time."""
        for low, high in zip(self.start[:-1].tolist(), self.start[1:].tolist(), strict=True):
            done = (self.first[low:high] >= begin) & (self.last[low:high] < end)
            pages = low + np.flatnonzero(done)
            if pages.size:
                behind = int(pages[-1]) + 1
                stop = int(self.at[behind]) if behind < self.at.size else int(self.at[-1])
                first = -(-int(self.at[pages[0]]) // mmap.PAGESIZE) * mmap.PAGESIZE
                size = stop - first - stop % mmap.PAGESIZE
                if size > 0:
                    self.memory.madvise(mmap.MADV_DONTNEED, first, size)


def load(
    file: TraceFile,
    container: Container,
    layout: PageLayout,
    parts: Sequence[tuple[PageSource, Sequence[Chunk]]],
    selection: Selection,
    *,
    room: MemoryRoom,
) -> Loaded:
    """Read chunks into memory and check every record in them."""
    sizes = [sum(chunk.plain for chunk in chunks) for _, chunks in parts]
    for (source, _), size in zip(parts, sizes, strict=True):
        room.take(size // source.page_size * _PAGE_BYTES)
    try:
        loaded = _allocate([source for source, _ in parts], sizes, selection.size)
    except (MemoryError, OSError, OverflowError) as error:
        raise TraceError(file.path, "the events do not fit into memory; read windows") from error
    places = [sum(sizes[:i]) for i in range(len(sizes))]
    starts = loaded.start.tolist()
    spans = [
        _Span(file, container, layout, source, span, place, starts[i], places[i])
        for i, (source, chunks) in enumerate(parts)
        for span, place in _spans(chunks, places[i])
    ]
    counted = map_threads(lambda span: span.run(loaded, selection), spans, sum(sizes))
    for span, counts in zip(spans, counted, strict=True):
        loaded.counts += counts
        number = int(np.searchsorted(starts, span.first_page, "right")) - 1
        loaded.spans.append((number, *span.pages, counts))
    for i, (source, _) in enumerate(parts):
        _check_order(file.path, source, loaded, starts[i], starts[i + 1])
    return loaded


def _allocate(sources: Sequence[PageSource], sizes: Sequence[int], slots: int) -> Loaded:
    """Allocate memory for so many bytes of pages of each source."""
    total = sum(sizes)
    starts = [0]
    page_at = [np.empty(0, np.int64)]
    place = 0
    for source, size in zip(sources, sizes, strict=True):
        page_at.append(np.arange(place, place + size, source.page_size, dtype=np.int64))
        starts.append(starts[-1] + page_at[-1].size)
        place += size
    memory = reserve(total + 4 * SPARE)
    pages, i32, i64 = starts[-1], np.int32, np.int64
    return Loaded(
        memory=memory,
        words=np.frombuffer(memory, np.uint32),
        start=np.array(starts, i64),
        at=np.concatenate(page_at),
        first=np.empty(pages, i64),
        last=np.empty(pages, i64),
        end=np.empty(pages, i32),
        wanted=np.empty(pages, i32),
        lost=np.empty(pages, i64),
        counts=np.zeros(slots, i64),
        spans=[],
    )


def _spans(chunks: Sequence[Chunk], place: int) -> Iterator[tuple[list[Chunk], int]]:
    """Group chunks for the threads; yield each group with its place in memory."""
    for group in groups_of(chunks, SPAN):
        yield group, place
        place += sum(chunk.plain for chunk in group)


@dataclass(frozen=True)
class _Span:
    file: TraceFile
    container: Container
    layout: PageLayout
    source: PageSource
    chunks: list[Chunk]
    place: int
    first_page: int
    source_place: int

    @property
    def pages(self) -> tuple[int, int]:
        """Number of the span's first page and of the one behind its last."""
        size = self.source.page_size
        low = self.first_page + (self.place - self.source_place) // size
        return low, low + sum(chunk.plain for chunk in self.chunks) // size

    def run(self, loaded: Loaded, selection: Selection) -> NDArray[np.int64]:
        """Fill this span's part of the arrays; return its selected events by slot."""
        octets = loaded.words.view(np.uint8)
        at = self.place
        if self.source.buffer.compressed:
            compression = self.container.compression
            for pages in read_chunks(self.file, compression, self.source, self.chunks):
                # An array and not a memoryview, because copying arrays releases the GIL.
                octets[at : at + len(pages)] = np.frombuffer(pages, np.uint8)
                at += len(pages)
        else:
            for chunk in self.chunks:
                self.file.read_into(chunk.offset, octets[at : at + chunk.plain].data)
                at += chunk.plain
        size = self.source.page_size
        low, high = self.pages
        counts = np.zeros(selection.size, np.int64)
        status, where, number = scan(
            loaded.words,
            loaded.at[low:high],
            size,
            self.layout.head,
            self.layout.commit,
            selection.type_at,
            selection.slots,
            selection.needs,
            selection.begin,
            selection.end,
            counts,
            loaded.first[low:high],
            loaded.last[low:high],
            loaded.end[low:high],
            loaded.wanted[low:high],
            loaded.lost[low:high],
        )
        if status:
            problem = PROBLEMS[status] + (f" (event {number})" if number else "")
            raise self._error(where, problem)
        if size != self.layout.size:
            self._check_rest(loaded, low, high)
        return counts

    def _check_rest(self, loaded: Loaded, low: int, high: int) -> None:
        # If the file names two page sizes, decoding with the wrong one would skip whole pages. The
        # kernel zeroes a page behind its records (ring_buffer_read_page in
        # kernel/trace/ring_buffer.c): anything else there shows that the size is wrong.
        words = loaded.words
        after = self.layout.head + loaded.end[low:high]
        after += np.where(loaded.lost[low:high] != 0, self.layout.commit, 0).astype(np.int32)
        inside = after <= self.source.page_size - 8
        place = (loaded.at[low:high][inside] + after[inside]) >> 2
        full = place[(words[place] != 0) | (words[place + 1] != 0)]
        if full.size:
            size = self.source.page_size
            problem = f"pages of {size} bytes contradict the header's {self.layout.size}"
            raise self._error(int(full[0]) << 2, problem)

    def _error(self, where: int, problem: str) -> TraceError:
        page, byte = divmod(where - self.source_place, self.source.page_size)
        inside = f"byte {byte} of page {page} of {self.source}: {problem}"
        at = self.place
        for chunk in self.chunks:
            if where < at + chunk.plain:
                offset = (
                    chunk.offset if self.source.buffer.compressed else chunk.offset + where - at
                )
                return TraceError(self.file.path, inside, offset)
            at += chunk.plain
        return TraceError(self.file.path, inside)


def _check_order(path: Path, source: PageSource, loaded: Loaded, low: int, high: int) -> None:
    used = low + np.flatnonzero(loaded.first[low:high] >= 0)
    back = np.flatnonzero(loaded.first[used[1:]] < loaded.last[used[:-1]])
    if back.size:
        page = int(used[1 + back[0]])
        raise TraceError(path, f"time goes backwards before page {page - low} of {source}")
