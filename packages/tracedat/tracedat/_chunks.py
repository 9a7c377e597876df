# SPDX-License-Identifier: MIT
"""Locate the pages of each CPU of each ring buffer chunk by chunk, and find a time in them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np

from tracedat._container import Buffer, Container, CpuData
from tracedat._errors import TooLargeError, TraceError
from tracedat._file import Plain, TraceFile, decompress, decompress_frames
from tracedat._formats import PageLayout
from tracedat._memory import SPAN, MemoryRoom, map_threads

# The kernel's have 4 KiB to 1 MiB (RB_WRITE_MASK in kernel/trace/ring_buffer.c).
_MIN_PAGE, _MAX_PAGE = 1 << 10, 1 << 20
# Decompressed bytes of a chunk: trace-cmd's have 10 pages.
_MOST_PLAIN = 16 << 20
# A Chunk in memory.
_CHUNK_BYTES = 256
# Bytes of a chunk in the file, and after decompression.
_CHUNK_HEAD = Struct("<II")


@dataclass(frozen=True)
class PageSource:
    """One CPU of one ring buffer, whose events are in order of time."""

    buffer: Buffer
    number: int
    # The place of the CPU's pages
    data: CpuData
    page_size: int

    def __str__(self) -> str:
        name = f" of buffer {self.buffer.name!r}" if self.buffer.name else ""
        return f"CPU {self.data.cpu}{name}"


class Chunk(NamedTuple):
    """A run of whole pages in the file."""

    offset: int
    # Bytes in the file, and after decompression
    packed: int
    plain: int


def sources_of(container: Container, layout: PageLayout, name: str | None) -> list[PageSource]:
    """Return the CPUs that have pages; events of equal time are put in this order."""
    sources: list[PageSource] = []
    for number, buffer in enumerate(container.buffers):
        if name is not None and buffer.name != name:
            continue
        size = buffer.page_size or layout.size
        if not _MIN_PAGE <= size <= _MAX_PAGE or size % 8 or size < layout.head + 8:
            problem = f"buffer {buffer.name!r} has pages of {size} bytes, which is impossible"
            raise TraceError(container.path, problem)
        sources += [PageSource(buffer, number, cpu, size) for cpu in buffer.cpus if cpu.size]
    return sources


def chunks_of(file: TraceFile, source: PageSource, room: MemoryRoom) -> Iterator[Chunk]:
    """Yield the chunks of a source in order; each holds whole pages."""
    data, page = source.data, source.page_size
    if not source.buffer.compressed:
        if data.size % page:
            problem = f"the {data.size} bytes of {source} are not whole pages of {page} bytes"
            raise TraceError(file.path, problem, data.offset)
        step = max(SPAN // page, 1) * page
        for at in range(data.offset, data.offset + data.size, step):
            size = min(step, data.offset + data.size - at)
            room.take(_CHUNK_BYTES)
            yield Chunk(at, size, size)
        return
    count = int.from_bytes(file.read(data.offset, 4), "little")
    at = data.offset + 4
    for _ in range(count):
        packed, plain = _CHUNK_HEAD.unpack(file.read(at, 8))
        at += 8
        if at + packed > file.size or at - data.offset - 4 > data.size:
            raise TraceError(file.path, f"a chunk of {source} ends beyond its data", at - 8)
        if plain % page or not plain:
            problem = f"the {plain} bytes in a chunk of {source} are not whole pages of {page}"
            raise TraceError(file.path, problem, at - 8)
        # Both compressions add less than a 64th to what cannot be compressed.
        if plain > _MOST_PLAIN or packed > plain + (plain >> 6) + 1024:
            problem = f"a chunk of {source} claims {plain} bytes in {packed}, which is impossible"
            raise TooLargeError(file.path, problem, at - 8)
        room.take(_CHUNK_BYTES)
        yield Chunk(at, packed, plain)
        at += packed
    # The recorded size excludes the four bytes before the chunks.
    if not at - data.offset - 4 <= data.size <= at - data.offset:
        problem = f"{source}: its {count} chunks do not fill its {data.size} bytes"
        raise TraceError(file.path, problem, data.offset)


def read_chunks(
    file: TraceFile, compression: str, source: PageSource, chunks: Sequence[Chunk]
) -> Sequence[Plain]:
    """Return the pages of each of some compressed chunks that follow each other in the file."""
    start, last = chunks[0].offset, chunks[-1]
    packed = file.read(start, last.offset + last.packed - start)
    if compression == "zstd":
        places = [(chunk.offset - start, chunk.packed) for chunk in chunks]
        pages = decompress_frames(packed, places, [chunk.plain for chunk in chunks])
        if pages is not None:
            return pages
    subject = f"a chunk of {source}"
    return [
        decompress(
            file.path,
            compression,
            packed[chunk.offset - start : chunk.offset - start + chunk.packed],
            chunk.plain,
            offset=chunk.offset,
            subject=subject,
        )
        for chunk in chunks
    ]


# Decompressed bytes between two indexed times: a window reads at most so many in vain at each edge.
_STEP = 1 << 20

Part = tuple[PageSource, list[Chunk]]


@dataclass(frozen=True)
class _Track:
    """A source's chunks in steps, with the raw time at which each step begins."""

    source: PageSource
    times: list[int]
    steps: list[list[Chunk]]


class Index:
    """The raw time at which every step (about a MiB of pages) of every source begins."""

    def __init__(
        self, file: TraceFile, container: Container, sources: Sequence[PageSource]
    ) -> None:
        self._file = file
        self._container = container
        size = sum(source.data.size for source in sources)
        room = MemoryRoom(file.path)
        self._tracks = map_threads(lambda source: self._track(source, room), sources, size)

    @property
    def first(self) -> int | None:
        """Raw time of the first page; None for a file without records."""
        return min((track.times[0] for track in self._tracks if track.times), default=None)

    def parts(self, begin: int, end: int, room: MemoryRoom) -> list[Part]:
        """Return the chunks that may hold events of a span of raw time."""
        parts = []
        for track in self._tracks:
            low = max(bisect.bisect_left(track.times, begin) - 1, 0)
            high = bisect.bisect_left(track.times, end)
            chunks = [chunk for step in track.steps[low:high] for chunk in step]
            room.take(sum(chunk.plain for chunk in chunks))
            parts.append((track.source, chunks))
        return parts

    def following(self, time: int) -> int | None:
        """Return the raw time of the first step that begins at `time` or later, if any."""
        later = []
        for track in self._tracks:
            at = bisect.bisect_left(track.times, time)
            later += track.times[at : at + 1]
        return min(later, default=None)

    def _track(self, source: PageSource, room: MemoryRoom) -> _Track:
        times: list[int] = []
        steps: list[list[Chunk]] = []
        for step in groups_of(chunks_of(self._file, source, room), _STEP):
            time = self._time(source, step[0])
            if time is None and steps:
                steps[-1] += step
                continue
            time = time or 0
            if times and time < times[-1]:
                raise TraceError(
                    self._file.path, f"time goes backwards in {source}", step[0].offset
                )
            times.append(time)
            steps.append(step)
        return _Track(source, times, steps)

    def _time(self, source: PageSource, chunk: Chunk) -> int | None:
        """Return the raw time of a chunk's first page with records, if any."""
        if source.buffer.compressed:
            compression = self._container.compression
            (data,) = read_chunks(self._file, compression, source, [chunk])
        else:
            data = self._file.read(chunk.offset, source.page_size)
        heads = np.frombuffer(data, np.uint64).reshape(-1, source.page_size // 8)[:, :2]
        # The commit word's lower 27 bits are the bytes of records; see `tracedat._pages`.
        full = heads[(heads[:, 1] & np.uint64(0x7FFFFFF)) != 0]
        return int(full[0, 0]) if len(full) else None


def groups_of(chunks: Iterable[Chunk], least: int) -> Iterator[list[Chunk]]:
    """Group chunks in their order; each group but the last has at least `least` plain bytes."""
    group: list[Chunk] = []
    size = 0
    for chunk in chunks:
        group.append(chunk)
        size += chunk.plain
        if size >= least:
            yield group
            group, size = [], 0
    if group:
        yield group
