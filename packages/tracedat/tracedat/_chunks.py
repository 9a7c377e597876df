# SPDX-License-Identifier: MIT
"""Locate the pages of each CPU of each ring buffer in a trace.dat, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from tracedat._compression import Plain, decompress, decompress_frames
from tracedat._container import Buffer, Container, CpuData
from tracedat._file import TooLargeError, TraceError, TraceFile
from tracedat._formats import PageLayout
from tracedat._memory import Room
from tracedat._parallel import SPAN

__all__ = ["Chunk", "Source", "chunks_of", "read_chunks", "sources_of"]

# The kernel's have 4 KiB to 1 MiB (RB_WRITE_MASK in kernel/trace/ring_buffer.c).
_MIN_PAGE, _MAX_PAGE = 1 << 10, 1 << 20
# Decompressed bytes of a chunk: trace-cmd's have 10 pages.
_MOST_PLAIN = 16 << 20
# A Chunk in memory.
_CHUNK_BYTES = 256
# Bytes of a chunk in the file, and after decompression.
_CHUNK_HEAD = Struct("<II")


@dataclass(frozen=True)
class Source:
    """One CPU of one ring buffer, whose events are in order of time.

    Parameters
    ----------
    buffer : Buffer
        The ring buffer.
    number : int
        The buffer's index in the file.
    data : CpuData
        The place of the CPU's pages.
    page_size : int
        Bytes of a page.
    """

    buffer: Buffer
    number: int
    data: CpuData
    page_size: int

    def __str__(self) -> str:
        name = f" of buffer {self.buffer.name!r}" if self.buffer.name else ""
        return f"CPU {self.data.cpu}{name}"


class Chunk(NamedTuple):
    """A run of whole pages in the file.

    Parameters
    ----------
    offset : int
        Position in the file.
    packed, plain : int
        Bytes in the file, and after decompression.
    """

    offset: int
    packed: int
    plain: int


def sources_of(container: Container, layout: PageLayout, name: str | None) -> list[Source]:
    """Return the CPUs that have pages; events of equal time are put in this order.

    Parameters
    ----------
    container : Container
        The file's description.
    layout : PageLayout
        The layout of a page.
    name : str, optional
        The buffer to read; None means all.

    Raises
    ------
    TraceError
        If a page size is impossible.
    """
    sources: list[Source] = []
    for number, buffer in enumerate(container.buffers):
        if name is not None and buffer.name != name:
            continue
        size = buffer.page_size or layout.size
        if not _MIN_PAGE <= size <= _MAX_PAGE or size % 8 or size < layout.head + 8:
            problem = f"buffer {buffer.name!r} has pages of {size} bytes, which is impossible"
            raise TraceError(container.path, problem)
        sources += [Source(buffer, number, cpu, size) for cpu in buffer.cpus if cpu.size]
    return sources


def chunks_of(file: TraceFile, source: Source, room: Room) -> Iterator[Chunk]:
    """Yield the chunks of a source in order; each holds whole pages.

    Parameters
    ----------
    file : TraceFile
        The open file.
    source : Source
        The source.
    room : Room
        The memory for the chunks themselves, not for what they hold.

    Raises
    ------
    TooLargeError
        If a chunk, or their number, is too large.
    TraceError
        If sizes contradict each other; it names the offset.
    """
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
    file: TraceFile, compression: str, source: Source, chunks: Sequence[Chunk]
) -> Sequence[Plain]:
    """Return the pages of each of some compressed chunks that follow each other in the file.

    Raises
    ------
    TraceError
        If a chunk is damaged; it names the offset.
    """
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
