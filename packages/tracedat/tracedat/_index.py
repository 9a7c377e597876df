# SPDX-License-Identifier: MIT
"""Find a time in a file without reading all of it."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracedat._chunks import Chunk, Source, chunks_of, read_chunks
from tracedat._container import Container
from tracedat._file import TraceError, TraceFile
from tracedat._memory import Room
from tracedat._parallel import map_threads

__all__ = ["Index", "Part"]

# Decompressed bytes between two indexed times: a window reads at most so many in vain at each edge.
_STEP = 1 << 20

Part = tuple[Source, list[Chunk]]


@dataclass(frozen=True)
class _Track:
    """A source's chunks in steps, with the raw time at which each step begins."""

    source: Source
    times: list[int]
    steps: list[list[Chunk]]


class Index:
    """The raw time at which every step (about a MiB of pages) of every source begins.

    Parameters
    ----------
    file : TraceFile
        The open file.
    container : Container
        Its description.
    sources : sequence of Source
        The sources to index.

    Raises
    ------
    TraceError
        If a chunk is damaged or time goes backwards; it names the offset.
    """

    def __init__(self, file: TraceFile, container: Container, sources: Sequence[Source]) -> None:
        self._file = file
        self._container = container
        size = sum(source.data.size for source in sources)
        room = Room(file.path)
        self._tracks = map_threads(lambda source: self._track(source, room), sources, size)

    @property
    def first(self) -> int | None:
        """Raw time of the first page; None for a file without records."""
        return min((track.times[0] for track in self._tracks if track.times), default=None)

    def parts(self, begin: int, end: int, room: Room) -> list[Part]:
        """Return the chunks that may hold events of a span of raw time.

        Parameters
        ----------
        begin, end : int
            The span; `end` is excluded.
        room : Room
            The memory for what the chunks hold.

        Returns
        -------
        list of (Source, list of Chunk)
            One element a source.

        Raises
        ------
        TooLargeError
            If they do not fit.
        """
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

    def _track(self, source: Source, room: Room) -> _Track:
        times: list[int] = []
        steps: list[list[Chunk]] = []
        for step in _steps(chunks_of(self._file, source, room)):
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

    def _time(self, source: Source, chunk: Chunk) -> int | None:
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


def _steps(chunks: Iterator[Chunk]) -> Iterator[list[Chunk]]:
    step: list[Chunk] = []
    size = 0
    for chunk in chunks:
        step.append(chunk)
        size += chunk.plain
        if size >= _STEP:
            yield step
            step, size = [], 0
    if step:
        yield step
