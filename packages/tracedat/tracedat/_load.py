# SPDX-License-Identifier: MIT
"""Load pages into memory: read, decompress and check chunks in parallel."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracedat._chunks import Chunk, Source, read_chunks
from tracedat._container import Container
from tracedat._file import TraceError, TraceFile
from tracedat._formats import PageLayout
from tracedat._memory import Room, reserve
from tracedat._pages import PROBLEMS, SPARE, scan
from tracedat._parallel import SPAN, map_threads

__all__ = ["Loaded", "Selection", "load"]

# Of a page, beside what it holds: its elements of `Loaded`, and of the arrays made from them.
_PAGE_BYTES = 128


@dataclass(frozen=True)
class Selection:
    """The events to decode.

    Every wanted event type has a slot, a number from 0.

    Parameters
    ----------
    slots, needs : int32[65536]
        By event number, as for `tracedat._pages.scan`.
    size : int
        Number of slots.
    type_at : int
        Byte offset of the event number in a record's data.
    begin, end : int
        Span of raw time; `end` is excluded.
    """

    slots: NDArray[np.int32]
    needs: NDArray[np.int32]
    size: int
    type_at: int
    begin: int
    end: int


@dataclass
class Loaded:
    """Checked pages in memory.

    Parameters
    ----------
    memory : mmap
        The pages, one after the other.
    words : uint32[m]
        The same memory.
    start : int64[sources + 1]
        Number of each source's first page, then the number of pages.
    at : int64[pages]
        Byte offset of the page in `words`.
    first, last : int64[pages]
        Raw time of the page's first and last record; -1 for a page without records.
    end : int32[pages]
        Bytes of records.
    wanted : int32[pages]
        Number of selected events.
    lost : int64[pages]
        Number of events lost before the page; -1 if the kernel does not say.
    counts : int64[slots]
        Number of selected events by slot.
    spans : list of (int, int, int, int64[slots])
        Ranges of pages: source, first page, page behind the last, selected events by slot.
    """

    memory: mmap.mmap
    words: NDArray[np.uint32]
    start: NDArray[np.int64]
    at: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    end: NDArray[np.int32]
    wanted: NDArray[np.int32]
    lost: NDArray[np.int64]
    counts: NDArray[np.int64]
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
    parts: Sequence[tuple[Source, Sequence[Chunk]]],
    selection: Selection,
    *,
    room: Room,
) -> Loaded:
    """Read chunks into memory and check every record in them.

    Parameters
    ----------
    file : TraceFile
        The open file.
    container : Container
        Its description.
    layout : PageLayout
        The layout of a page.
    parts : sequence of (Source, sequence of Chunk)
        The chunks to read.
    selection : Selection
        The events to count.
    room : Room
        The memory for what stands beside the pages; what the chunks hold was counted.

    Returns
    -------
    Loaded
        The pages.

    Raises
    ------
    TraceError
        If a chunk, a page or a record is damaged, if time goes backwards, or if the pages do not
        fit into memory; it names the offset.
    """
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


def _allocate(sources: Sequence[Source], sizes: Sequence[int], slots: int) -> Loaded:
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
    group: list[Chunk] = []
    size = 0
    for chunk in chunks:
        group.append(chunk)
        size += chunk.plain
        if size >= SPAN:
            yield group, place
            place += size
            group, size = [], 0
    if group:
        yield group, place


@dataclass(frozen=True)
class _Span:
    file: TraceFile
    container: Container
    layout: PageLayout
    source: Source
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


def _check_order(path: Path, source: Source, loaded: Loaded, low: int, high: int) -> None:
    used = low + np.flatnonzero(loaded.first[low:high] >= 0)
    back = np.flatnonzero(loaded.first[used[1:]] < loaded.last[used[:-1]])
    if back.size:
        page = int(used[1 + back[0]])
        raise TraceError(path, f"time goes backwards before page {page - low} of {source}")
