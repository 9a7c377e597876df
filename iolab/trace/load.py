# SPDX-License-Identifier: MIT
"""Pages from the file into memory: chunks read, unpacked and checked, in parallel."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from iolab.trace.compression import decompress
from iolab.trace.container import Buffer, Container, CpuData
from iolab.trace.cursor import TraceError, TraceFile
from iolab.trace.formats import PageLayout
from iolab.trace.pages import PROBLEMS, SPARE, scan

__all__ = [
    "Chunk",
    "Loaded",
    "Selection",
    "Source",
    "chunks_of",
    "in_threads",
    "load",
    "sources_of",
    "threads",
]

T = TypeVar("T")
R = TypeVar("R")

# Unpacked bytes that one thread reads, unpacks and checks at a time: fits a core's cache.
_SPAN = 2 << 20
_MAX_THREADS = 8
_MIN_PAGE, _MAX_PAGE = 64, 1 << 24


@dataclass(frozen=True)
class Source:
    """One CPU of one buffer: the smallest thing whose events are in order of time."""

    buffer: Buffer
    number: int
    data: CpuData
    page_size: int

    def __str__(self) -> str:
        name = f" of buffer {self.buffer.name!r}" if self.buffer.name else ""
        return f"CPU {self.data.cpu}{name}"


@dataclass(frozen=True)
class Chunk:
    """A run of whole pages: `packed` bytes at `offset` of the file hold `plain` bytes."""

    offset: int
    packed: int
    plain: int


@dataclass(frozen=True)
class Selection:
    """Which records count: by event number their slot, and a span of raw time.

    ``slots`` and ``needs`` are those of `pages.scan`; ``size`` is the number of slots.
    """

    slots: NDArray[np.int32]
    needs: NDArray[np.int32]
    size: int
    type_at: int
    begin: int
    end: int


@dataclass
class Loaded:
    """Pages in memory (`words`), checked. By page: `at`, `first`, `last`, `end`, `wanted`, `lost`.

    ``start`` has the first page of each source and the number of all pages; `counts` the wanted
    events by slot. ``spans`` divide the pages: (source, first page, page behind the last, wanted
    events by slot).
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

    def drop(self, begin: int, end: int) -> None:
        """Give the memory of the pages whose events are all in a span of raw time back."""
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


def sources_of(container: Container, layout: PageLayout, name: str | None) -> list[Source]:
    """Return the CPUs that have pages, in the order that equal time stamps are put in.

    ``name`` chooses one buffer.

    Errors: TraceError for a page size that cannot be.
    """
    found: list[Source] = []
    for number, buffer in enumerate(container.buffers):
        if name is not None and buffer.name != name:
            continue
        size = buffer.page_size or layout.size
        if not _MIN_PAGE <= size <= _MAX_PAGE or size % 8 or size < layout.head + 8:
            what = f"buffer {buffer.name!r} has pages of {size} bytes"
            raise TraceError(container.path, what)
        found += [Source(buffer, number, cpu, size) for cpu in buffer.cpus if cpu.size]
    return found


def chunks_of(file: TraceFile, source: Source) -> Iterator[Chunk]:
    """Give the chunks of a source in order; each holds whole pages.

    Errors: TraceError naming the offset if sizes contradict each other.
    """
    data, page = source.data, source.page_size
    if not source.buffer.compressed:
        if data.size % page:
            what = f"{source} has {data.size} bytes, no whole number of pages of {page}"
            raise TraceError(file.path, what, data.offset)
        step = max(_SPAN // page, 1) * page
        for at in range(data.offset, data.offset + data.size, step):
            size = min(step, data.offset + data.size - at)
            yield Chunk(at, size, size)
        return
    count = int.from_bytes(file.read(data.offset, 4), "little")
    at = data.offset + 4
    for _ in range(count):
        head = file.read(at, 8)
        packed = int.from_bytes(head[:4], "little")
        plain = int.from_bytes(head[4:], "little")
        at += 8
        if at + packed > file.size or at - data.offset - 4 > data.size:
            raise TraceError(file.path, f"a chunk of {source} ends beyond its data", at - 8)
        if plain % page or not plain:
            what = f"a chunk of {source} has {plain} bytes, no whole number of pages of {page}"
            raise TraceError(file.path, what, at - 8)
        yield Chunk(at, packed, plain)
        at += packed
    # The size does not count the four bytes before the chunks.
    if not at - data.offset - 4 <= data.size <= at - data.offset:
        what = f"{source}: its {count} chunks do not fill its {data.size} bytes"
        raise TraceError(file.path, what, data.offset)


def load(
    file: TraceFile,
    container: Container,
    layout: PageLayout,
    parts: Sequence[tuple[Source, Sequence[Chunk]]],
    selection: Selection,
) -> Loaded:
    """Read chunks of the given sources into memory and check every record in them.

    Errors: TraceError naming the offset for damaged chunks, pages and records, and for time that
    goes backwards.
    """
    places: list[int] = []
    total = 0
    starts = [0]
    page_at: list[NDArray[np.int64]] = []
    try:
        for source, chunks in parts:
            places.append(total)
            size = sum(chunk.plain for chunk in chunks)
            page_at.append(np.arange(total, total + size, source.page_size, dtype=np.int64))
            starts.append(starts[-1] + page_at[-1].size)
            total += size
        pages = starts[-1]
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, total + 4 * SPARE, flags=private)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (MemoryError, OSError, OverflowError) as error:
        raise TraceError(file.path, "the events do not fit into memory; read windows") from error
    at = np.concatenate([*page_at, np.empty(0, np.int64)])
    i32, i64 = np.int32, np.int64
    first, last, lost = (np.empty(pages, i64) for _ in range(3))
    end, wanted = (np.empty(pages, i32) for _ in range(2))
    loaded = Loaded(
        memory,
        np.frombuffer(memory, np.uint32),
        np.array(starts, i64),
        at,
        first,
        last,
        end,
        wanted,
        lost,
        np.zeros(selection.size, i64),
        [],
    )
    spans = [
        _Span(file, container, layout, source, span, place, starts[i], places[i])
        for i, (source, chunks) in enumerate(parts)
        for span, place in _spans(chunks, places[i])
    ]
    for span, counts in zip(
        spans, in_threads(lambda span: span.run(loaded, selection), spans, total), strict=True
    ):
        loaded.counts += counts
        number = int(np.searchsorted(starts, span.first_page, "right")) - 1
        loaded.spans.append((number, *span.pages, counts))
    for i, (source, _) in enumerate(parts):
        _check_order(file.path, source, loaded, starts[i], starts[i + 1])
    return loaded


def threads() -> int:
    """Return how many threads decoding uses: the processors it may use, up to 8."""
    return min(len(os.sched_getaffinity(0)), _MAX_THREADS)


def in_threads(function: Callable[[T], R], todo: Sequence[T], size: int) -> list[R]:
    """Return the function's results in order; one thread for each processor.

    ``size`` is in bytes of all the work: little work is done without threads.
    """
    if threads() == 1 or len(todo) < 2 or size < _SPAN:
        return [function(one) for one in todo]
    with ThreadPoolExecutor(threads()) as pool:
        return list(pool.map(function, todo))


def _spans(chunks: Sequence[Chunk], place: int) -> Iterator[tuple[list[Chunk], int]]:
    """Group chunks for the threads; give each group with its place in memory."""
    group: list[Chunk] = []
    size = 0
    for chunk in chunks:
        group.append(chunk)
        size += chunk.plain
        if size >= _SPAN:
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
        """The span's first page among all, and the one behind its last."""
        size = self.source.page_size
        low = self.first_page + (self.place - self.source_place) // size
        return low, low + sum(chunk.plain for chunk in self.chunks) // size

    def run(self, loaded: Loaded, selection: Selection) -> NDArray[np.int64]:
        """Fill this span's part of the arrays; return its wanted events by slot."""
        view = loaded.words.data.cast("B")
        at = self.place
        for chunk in self.chunks:
            target = view[at : at + chunk.plain]
            if self.source.buffer.compressed:
                packed = self.file.read(chunk.offset, chunk.packed)
                how, what = self.container.compression, f"a chunk of {self.source}"
                target[:] = decompress(
                    self.file.path, how, packed, chunk.plain, offset=chunk.offset, what=what
                )
            else:
                self.file.read_into(chunk.offset, target)
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
            what = PROBLEMS[status] + (f" (event {number})" if number else "")
            raise self._error(where, what)
        if size != self.layout.size:
            self._check_rest(loaded, low, high)
        return counts

    def _check_rest(self, loaded: Loaded, low: int, high: int) -> None:
        # Where the file names two page sizes, a wrong one would pass over whole pages unseen. The
        # kernel zeroes a page's unused rest, so the word after the records tells.
        words = loaded.words
        after = self.layout.head + loaded.end[low:high]
        after += np.where(loaded.lost[low:high] != 0, self.layout.commit, 0).astype(np.int32)
        inside = after <= self.source.page_size - 8
        place = (loaded.at[low:high][inside] + after[inside]) >> 2
        full = place[(words[place] != 0) | (words[place + 1] != 0)]
        if full.size:
            size = self.source.page_size
            what = f"pages of {size} bytes contradict the header's {self.layout.size}"
            raise self._error(int(full[0]) << 2, what)

    def _error(self, where: int, what: str) -> TraceError:
        page, byte = divmod(where - self.source_place, self.source.page_size)
        inside = f"byte {byte} of page {page} of {self.source}: {what}"
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
