# SPDX-License-Identifier: MIT
"""Decode a trace.dat, or windows of it: choose events, load pages, walk the records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracedat._assemble import Assembly, assemble, columns_of
from tracedat._chunks import Chunk, Index, PageSource, chunks_of, sources_of
from tracedat._container import Container, read_container
from tracedat._errors import RequestError, TooLargeError, nearest
from tracedat._file import TraceFile
from tracedat._formats import (
    EventFormat,
    PageLayout,
    common_type,
    parse_formats,
    parse_page_layout,
)
from tracedat._memory import MemoryRoom
from tracedat._pages import UNKNOWN, UNWANTED, Loaded, Selection, load
from tracedat._text import is_text, read_text
from tracedat._trace import EventColumns, Loss, Symbols, Trace, TraceInfo

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1
# An event's number has 16 bits: common_type is an unsigned short.
_NUMBERS = 1 << 16
# A `Loss` in memory.
_LOSS_BYTES = 256
# What is made of pages takes at most so many times their memory, and some for short traces.
_MOST_TIMES, _LEAST_BYTES = 8, 256 << 20
_COMM = re.compile(r"^([0-9]{1,10}) (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Clock:
    """The conversion ``time = (raw * multiplier >> shift) + offset_ns``.

    Times are nanoseconds, except for clocks that count something else (``counter``, ``uptime``,
    an unconverted cycle counter; see Documentation/trace/ftrace.rst): those keep their own unit.
    """

    offset_ns: int
    # Multiplier and shift of a cycle counter; None for clocks in nanoseconds
    tsc: tuple[int, int] | None

    def convert(self, times: NDArray[np.int64]) -> None:
        """Convert an array of raw times in place."""
        if self.tsc and self.tsc[0]:
            multiplier, shift = self.tsc
            # The product has 96 bits: computed in two halves, it is exact.
            high = (times >> 32) * multiplier
            low = (times & 0xFFFFFFFF).astype(np.uint64) * np.uint64(multiplier)
            if shift <= 32:
                rest = (low >> np.uint64(shift)).astype(np.int64)
                times[:] = (high << (32 - shift)) + rest
            else:
                times[:] = (high + (low >> np.uint64(32)).astype(np.int64)) >> (shift - 32)
        if self.offset_ns:
            times += self.offset_ns

    def time_of(self, raw: int) -> int:
        """Convert one raw time to nanoseconds."""
        if self.tsc and self.tsc[0]:
            raw = raw * self.tsc[0] >> self.tsc[1]
        return raw + self.offset_ns

    def raw_span(self, between: tuple[int, int] | None) -> tuple[int, int]:
        """Convert a span of time to raw time."""
        if between is None:
            return _FIRST, _LAST
        start, end = (self._raw(int(t)) for t in between)
        return start, end

    def _raw(self, time: int) -> int:
        raw = time - self.offset_ns
        if self.tsc and self.tsc[0]:
            multiplier, shift = self.tsc
            raw = -((-raw << shift) // multiplier)
        return min(max(raw, _FIRST), _LAST)


@dataclass
class DecodePlan:
    """The part of an open file to decode."""

    file: TraceFile
    container: Container
    layout: PageLayout
    clock: Clock
    info: TraceInfo
    symbols: Symbols
    # All event types of the file by name; ``system:name`` for a name that two systems share
    formats: dict[str, EventFormat]
    wanted: list[str]
    # Byte offset of the event number in a record's data
    type_at: int
    sources: list[PageSource]


def read(
    path: str | Path,
    events: Sequence[str] | None = None,
    between: tuple[int, int] | None = None,
    *,
    buffer: str | None = None,
    most: int | None = None,
) -> Trace:
    """Read a trace.dat, or the text of ``trace-cmd report``, into columns.

    Parameters
    ----------
    path : str or Path
        A file of trace-cmd, version 6 or 7, uncompressed or compressed with zlib or zstd; or a
        text that trace-cmd or the kernel (tracefs's ``trace``) printed.
    events : sequence of str, optional
        Names of events (``sched_switch`` or ``sched:sched_switch``); None reads all.
    between : (int, int), optional
        Start and end in nanoseconds of the trace's clock; events at the end are excluded.
    buffer : str, optional
        The ring buffer: ``""`` is the top one, other names are instances. None reads all; if
        there are several, the frames' column ``common_buffer`` names the one of each event.
    most : int, optional
        The most bytes of memory for pages and columns; by default half of what is free.

    Returns
    -------
    Trace
        The events in memory.

    Raises
    ------
    TooLargeError
        If they need more memory, or the file claims more than a trace has: a `TraceError`.
    TraceError
        If the file is damaged or not a trace; it names the offset or the section.
    RequestError
        If the file lacks an event or the buffer: a `TraceError`; it suggests the nearest event.

    Examples
    --------
    >>> trace = read("small_v7_mono.dat", events=["sched_switch", "sched_waking"])
    >>> trace.events
    {'sched_switch': 16154, 'sched_waking': 11917}
    """
    with TraceFile(Path(path)) as file:
        if is_text(file):
            return read_text(file, events, between, buffer=buffer, most=most)
        todo = plan(file, events, buffer)
        begin, end = todo.clock.raw_span(between)
        room = MemoryRoom(file.path, most)
        if between is None:
            parts = [(source, _all_chunks(file, source, room)) for source in todo.sources]
        else:
            parts = Index(file, todo.container, todo.sources).parts(begin, end, room)
        return run(todo, parts, begin, end, between, room=room)


def _all_chunks(file: TraceFile, source: PageSource, room: MemoryRoom) -> list[Chunk]:
    chunks = []
    for chunk in chunks_of(file, source, room):
        room.take(chunk.plain)
        chunks.append(chunk)
    return chunks


def check_size(path: Path, most: int) -> None:
    """Check what a trace.dat claims to hold, without decompressing its pages.

    Raises TooLargeError if its pages, decompressed, claim more than `most` bytes, or more than a
    trace has; else `TraceError` as `read` does.
    """
    with TraceFile(path) as file:
        left, room = most, MemoryRoom(path)
        for source in plan(file, None, None).sources:
            for chunk in chunks_of(file, source, room):
                left -= chunk.plain
                if left < 0:
                    raise TooLargeError(path, f"its pages hold more than {most} bytes")


def plan(file: TraceFile, events: Iterable[str] | None, buffer: str | None) -> DecodePlan:
    """Read the file's description and choose the events to decode."""
    container = read_container(file)
    layout = parse_page_layout(file.path, container.header_page)
    known = parse_formats(file.path, container.formats)
    names = [event.name for event in known.values()]
    formats = {
        event.name if names.count(event.name) == 1 else f"{event.system}:{event.name}": event
        for event in known.values()
    }
    buffers = [ring.name for ring in container.buffers]
    if buffer is not None and buffer not in buffers:
        raise RequestError(file.path, f"has no buffer {buffer!r}; it has {buffers}")
    sources = sources_of(container, layout, buffer)
    info = TraceInfo(
        version=container.version,
        compression=container.compression,
        cpus=container.cpu_count,
        clock=container.buffers[0].clock,
        buffers=tuple(buffers),
        options=dict(container.options),
        counters=dict(container.cpustats),
    )
    wanted = list(formats) if events is None else [_key(file.path, formats, e) for e in events]
    return DecodePlan(
        file,
        container,
        layout,
        Clock(container.offset_ns, container.tsc),
        info,
        Symbols(container.kallsyms),
        formats,
        list(dict.fromkeys(wanted)),
        common_type(file.path, known.values()),
        sources,
    )


def run(
    todo: DecodePlan,
    parts: Sequence[tuple[PageSource, Sequence[Chunk]]],
    begin: int,
    end: int,
    between: tuple[int, int] | None,
    *,
    room: MemoryRoom,
) -> Trace:
    """Decode chunks into a `Trace`."""
    chosen = [todo.formats[name] for name in todo.wanted]
    selection = _selection(todo, chosen, begin, end)
    loaded = load(todo.file, todo.container, todo.layout, parts, selection, room=room)
    # Fields that overlap, and texts that many fields share, are no kernel's.
    room.limit(_MOST_TIMES * len(loaded.memory) + _LEAST_BYTES)
    sources = [source for source, _ in parts]
    buffers = list(dict.fromkeys(source.buffer.name for source in sources))
    job = Assembly(
        todo.file.path,
        todo.layout,
        tuple(sources),
        tuple(buffers),
        loaded,
        selection,
        tuple(columns_of(event, several=len(buffers) > 1) for event in chosen),
        room,
    )
    assembled = assemble(job)
    columns = {}
    for name, event, listed, arrays in zip(
        todo.wanted, chosen, job.wanted, assembled.arrays, strict=True
    ):
        todo.clock.convert(arrays["timestamp_ns"])
        for array in arrays.values():
            array.flags.writeable = False
        tables = {column.name: column.table for column in listed if column.table}
        columns[name] = EventColumns(event, arrays, tables)
    return Trace(
        todo.file.path,
        info=todo.info,
        columns=columns,
        categories=assembled.categories,
        formats=todo.formats,
        comms=_comms(todo.container.cmdlines),
        symbols=todo.symbols,
        losses=_losses(todo, sources, loaded, (begin, end), room),
        between=between,
    )


def _selection(todo: DecodePlan, chosen: Sequence[EventFormat], begin: int, end: int) -> Selection:
    slots = np.full(_NUMBERS, UNKNOWN, np.int32)
    needs = np.zeros(_NUMBERS, np.int32)
    for event in todo.formats.values():
        slots[event.number] = UNWANTED
        needs[event.number] = event.min_size
    for slot, event in enumerate(chosen):
        slots[event.number] = slot
    return Selection(slots, needs, len(chosen), todo.type_at, begin, end)


def _losses(
    todo: DecodePlan,
    sources: Sequence[PageSource],
    loaded: Loaded,
    span: tuple[int, int],
    room: MemoryRoom,
) -> list[Loss]:
    losses: list[Loss] = []
    for number, source in enumerate(sources):
        name, cpu = source.buffer.name, source.data.cpu
        low, high = int(loaded.start[number]), int(loaded.start[number + 1])
        pages = np.flatnonzero(loaded.lost[low:high])
        room.take(_LOSS_BYTES * pages.size)
        # A page without records has no time: take that of the next page with records.
        timed = np.flatnonzero(loaded.first[low:high] >= 0)
        following = np.searchsorted(timed, pages).tolist()
        for lost, at in zip(loaded.lost[low + pages].tolist(), following, strict=True):
            count = lost if lost > 0 else None
            if at == timed.size:
                losses.append(Loss(name, cpu, None, count, "page"))
                continue
            time = loaded.first[low + timed[at : at + 1]]
            if span[0] <= time[0] < span[1]:
                todo.clock.convert(time)
                losses.append(Loss(name, cpu, int(time[0]), count, "page"))
    chosen = {source.buffer.name for source in sources}
    for (name, cpu), stats in todo.container.cpustats.items():
        for counter in ("overrun", "commit overrun", "dropped events"):
            number = int(stats.get(counter, 0))
            if name in chosen and number > 0:
                losses.append(Loss(name, cpu, None, number, counter))
    return losses


def _comms(text: str) -> dict[int, str]:
    return {int(pid): comm for pid, comm in _COMM.findall(text.partition("\0")[0])}


def _key(path: Path, formats: dict[str, EventFormat], name: str) -> str:
    """Return the key of the event with this ``name`` or ``system:name``."""
    for key, event in formats.items():
        if name in {key, f"{event.system}:{event.name}"}:
            return key
    hint = nearest(name.rsplit(":", maxsplit=1)[-1], formats)
    raise RequestError(path, f"has no event {name!r}{hint}")


def windows(
    path: str | Path, ns: int, events: Sequence[str] | None = None, *, buffer: str | None = None
) -> Iterator[Trace]:
    """Yield a trace in windows of `ns` nanoseconds, counted from the time of its first page.

    Every event is in exactly one window; windows without events are skipped. Memory holds one
    window and about a MiB for each CPU. The kernel's loss counters carry no time: every window's
    losses have them.

    Parameters
    ----------
    path : str or Path
        A trace.dat.
    ns : int
        Length of a window in nanoseconds.
    events, buffer
        As for `tracedat.read`.

    Yields
    ------
    Trace
        The events of one window; `Trace.between` has its limits.

    Raises
    ------
    RequestError
        If `ns` is not positive, or as `tracedat.read`.
    TraceError
        As `tracedat.read`; damaged records raise it when their window is reached.

    Examples
    --------
    >>> parts = windows("small_v7_mono.dat", 100_000_000, ["sched_switch"])
    >>> sum(part.events["sched_switch"] for part in parts)
    16154
    """
    if ns <= 0:
        raise RequestError(Path(path), f"the length of a window must be positive, not {ns} ns")
    with TraceFile(Path(path)) as file:
        todo = plan(file, events, buffer)
        index = Index(file, todo.container, todo.sources)
        if index.first is None:
            return
        origin = todo.clock.time_of(index.first)
        number: int | None = 0
        while number is not None:
            between = (origin + number * ns, origin + (number + 1) * ns)
            begin, end = todo.clock.raw_span(between)
            room = MemoryRoom(file.path)
            parts = index.parts(begin, end, room)
            trace = run(todo, parts, begin, end, between, room=room)
            if any(trace.events.values()):
                yield trace
                number += 1
            else:
                number = _next(todo, index, end, origin, ns)


def _next(todo: DecodePlan, index: Index, end: int, origin: int, ns: int) -> int | None:
    """Return the number of the next window with an event at raw time `end` or later."""
    times = []
    # A step that begins before `end` may hold later events.
    room = MemoryRoom(todo.file.path)
    rest = run(todo, index.parts(end, end + 1, room), end, _LAST, None, room=room)
    if any(rest.events.values()):
        times.append(rest.span[0])
    following = index.following(end)
    if following is not None:
        times.append(todo.clock.time_of(following))
    return (min(times) - origin) // ns if times else None
