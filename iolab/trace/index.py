# SPDX-License-Identifier: MIT
"""Where in a file a time is, without reading all of it."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from iolab.trace.compression import decompress
from iolab.trace.container import Container
from iolab.trace.cursor import TraceError, TraceFile
from iolab.trace.load import Chunk, Source, chunks_of, in_threads

__all__ = ["Index", "Part"]

# Unpacked bytes between two known times: what a window may read too much at each edge.
_STEP = 1 << 20

Part = tuple[Source, list[Chunk]]


@dataclass(frozen=True)
class _Track:
    """A source's chunks in steps, with the raw time that each step begins at."""

    source: Source
    times: list[int]
    steps: list[list[Chunk]]


class Index:
    """The raw time of every step (about a MiB of pages) of every source of a file.

    Errors: TraceError naming the offset of damaged chunks and of time that goes backwards.
    """

    def __init__(self, file: TraceFile, container: Container, sources: Sequence[Source]) -> None:
        self._file = file
        self._container = container
        size = sum(source.data.size for source in sources)
        self._tracks = in_threads(self._track, sources, size)

    @property
    def first(self) -> int | None:
        """The first page's raw time; None for a file without records."""
        return min((track.times[0] for track in self._tracks if track.times), default=None)

    def parts(self, begin: int, end: int) -> list[Part]:
        """Return the sources with the chunks that may hold events of a span of raw time."""
        found = []
        for track in self._tracks:
            low = max(bisect.bisect_left(track.times, begin) - 1, 0)
            high = bisect.bisect_left(track.times, end)
            found.append((track.source, [c for step in track.steps[low:high] for c in step]))
        return found

    def following(self, time: int) -> int | None:
        """Return the time of the first step that begins at a raw time or later."""
        later = []
        for track in self._tracks:
            at = bisect.bisect_left(track.times, time)
            later += track.times[at : at + 1]
        return min(later, default=None)

    def _track(self, source: Source) -> _Track:
        times: list[int] = []
        steps: list[list[Chunk]] = []
        for step in _steps(chunks_of(self._file, source)):
            time = self._time(source, step[0])
            if time is None and steps:
                steps[-1] += step
                continue
            time = time or 0
            if times and time < times[-1]:
                what = f"time goes backwards in {source}"
                raise TraceError(self._file.path, what, step[0].offset)
            times.append(time)
            steps.append(step)
        return _Track(source, times, steps)

    def _time(self, source: Source, chunk: Chunk) -> int | None:
        """Return the raw time of a chunk's first page with records."""
        if source.buffer.compressed:
            how, what = self._container.compression, f"a chunk of {source}"
            packed = self._file.read(chunk.offset, chunk.packed)
            data = decompress(
                self._file.path, how, packed, chunk.plain, offset=chunk.offset, what=what
            )
        else:
            data = self._file.read(chunk.offset, source.page_size)
        heads = np.frombuffer(data, np.uint64).reshape(-1, source.page_size // 8)[:, :2]
        full = heads[(heads[:, 1] & np.uint64(0x7FFFFFF)) != 0]
        return int(full[0, 0]) if len(full) else None


def _steps(chunks: Iterator[Chunk]) -> Iterator[list[Chunk]]:
    step: list[Chunk] = []
    for chunk in chunks:
        step.append(chunk)
        if sum(one.plain for one in step) >= _STEP:
            yield step
            step = []
    if step:
        yield step
