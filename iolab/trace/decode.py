# SPDX-License-Identifier: MIT
"""From a file to a Trace: which events, which columns, how times convert; then the record walk."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iolab.errors import UserError
from iolab.trace.assemble import Job, assemble, targets
from iolab.trace.container import Container, read_container
from iolab.trace.cursor import TraceFile
from iolab.trace.formats import (
    EventFormat,
    PageLayout,
    common_type,
    parse_formats,
    parse_page_layout,
)
from iolab.trace.index import Index
from iolab.trace.load import Chunk, Loaded, Selection, Source, chunks_of, load, sources_of
from iolab.trace.pages import UNKNOWN, UNWANTED
from iolab.trace.times import Clock
from iolab.trace.trace import EventColumns, Loss, Trace, TraceInfo

__all__ = ["Plan", "plan", "read", "run"]

_NUMBERS = 1 << 16


@dataclass
class Plan:
    """What is wanted of an open file."""

    file: TraceFile
    container: Container
    layout: PageLayout
    clock: Clock
    info: TraceInfo
    formats: dict[str, EventFormat]
    wanted: list[str]
    type_at: int
    sources: list[Source]


def read(
    path: str | Path,
    events: Sequence[str] | None = None,
    between: tuple[int, int] | None = None,
    *,
    buffer: str | None = None,
) -> Trace:
    """Read a trace.dat into columns.

    Parameters
    ----------
    path
        A file of trace-cmd, version 6 or 7, uncompressed or compressed with zlib or zstd.
    events
        Names of events (``sched_switch`` or ``sched:sched_switch``); None reads all.
    between
        (start, end) in nanoseconds of the trace's clock; events at `end` are left out.
    buffer
        The ring buffer: ``""`` is the top one, other names are instances; None reads all, and the
        frames then say in ``common_buffer`` where an event was, if there are several.

    Errors: TraceError naming the offset or section of a damaged or foreign file; UserError for
    an event or a buffer the file does not have, with the nearest names.
    """
    with TraceFile(Path(path)) as file:
        what = plan(file, events, buffer)
        begin, end = what.clock.raw_span(between)
        if between is None:
            parts = [(source, list(chunks_of(file, source))) for source in what.sources]
        else:
            parts = Index(file, what.container, what.sources).parts(begin, end)
        return run(what, parts, begin, end, between)


def plan(file: TraceFile, events: Iterable[str] | None, buffer: str | None) -> Plan:
    """Read the file's description and settle what is wanted of it."""
    container = read_container(file)
    layout = parse_page_layout(file.path, container.header_page)
    known = parse_formats(file.path, container.formats)
    names = [event.name for event in known.values()]
    formats = {
        event.name if names.count(event.name) == 1 else f"{event.system}:{event.name}": event
        for event in known.values()
    }
    buffers = [one.name for one in container.buffers]
    if buffer is not None and buffer not in buffers:
        raise UserError(f"{file.path} has no buffer {buffer!r}; it has {buffers}")
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
    wanted = list(formats) if events is None else [_find(file.path, formats, e) for e in events]
    type_at = common_type(file.path, known.values())
    clock = Clock(container.offset_ns, container.tsc)
    return Plan(
        file, container, layout, clock, info, formats, list(dict.fromkeys(wanted)), type_at, sources
    )


def run(
    what: Plan,
    parts: Sequence[tuple[Source, Sequence[Chunk]]],
    begin: int,
    end: int,
    between: tuple[int, int] | None,
) -> Trace:
    """Decode the chunks' wanted events from raw time `begin` up to `end` into a Trace."""
    chosen = [what.formats[name] for name in what.wanted]
    slots = np.full(_NUMBERS, UNKNOWN, np.int32)
    needs = np.zeros(_NUMBERS, np.int32)
    for event in what.formats.values():
        slots[event.number] = UNWANTED
        needs[event.number] = event.min_size
    for slot, event in enumerate(chosen):
        slots[event.number] = slot
    selection = Selection(slots, needs, len(chosen), what.type_at, begin, end)
    loaded = load(what.file, what.container, what.layout, parts, selection)
    sources = [source for source, _ in parts]
    buffers = list(dict.fromkeys(source.buffer.name for source in sources))
    job = Job(
        what.file.path,
        what.layout,
        tuple(sources),
        tuple(buffers),
        loaded,
        selection,
        tuple(targets(event, several=len(buffers) > 1) for event in chosen),
    )
    assembled = assemble(job)
    columns = {}
    for name, event, listed, arrays in zip(
        what.wanted, chosen, job.wanted, assembled.arrays, strict=True
    ):
        what.clock.convert(arrays["timestamp_ns"])
        for array in arrays.values():
            array.flags.writeable = False
        tables = {column.name: column.table for column in listed if column.table}
        columns[name] = EventColumns(event, arrays, tables)
    losses = _losses(what, sources, loaded, begin, end)
    comms = _comms(what.container.cmdlines)
    return Trace(
        what.file.path,
        info=what.info,
        columns=columns,
        categories=assembled.categories,
        formats=what.formats,
        comms=comms,
        losses=losses,
        between=between,
    )


def _losses(
    what: Plan, sources: Sequence[Source], loaded: Loaded, begin: int, end: int
) -> list[Loss]:
    found: list[Loss] = []
    for number, source in enumerate(sources):
        name, cpu = source.buffer.name, source.data.cpu
        low, high = int(loaded.start[number]), int(loaded.start[number + 1])
        for page in (low + np.flatnonzero(loaded.lost[low:high])).tolist():
            lost = int(loaded.lost[page])
            count = lost if lost > 0 else None
            # A page without records has no time of its own: the next one's tells where.
            times = loaded.first[page:high]
            time = times[np.argmax(times >= 0)].reshape(1)
            if time[0] < 0:
                found.append(Loss(name, cpu, None, count, "page"))
            elif begin <= time[0] < end:
                what.clock.convert(time)
                found.append(Loss(name, cpu, int(time[0]), count, "page"))
    chosen = {source.buffer.name for source in sources}
    for (name, cpu), stats in what.container.cpustats.items():
        for counter in ("overrun", "commit overrun", "dropped events"):
            number = int(stats.get(counter, 0))
            if name in chosen and number > 0:
                found.append(Loss(name, cpu, None, number, counter))
    return found


def _comms(text: str) -> dict[int, str]:
    found = (line.split(" ", 1) for line in text.split("\0", 1)[0].splitlines())
    return {int(pair[0]): pair[1] for pair in found if len(pair) == 2 and pair[0].isdigit()}


def _find(path: Path, formats: dict[str, EventFormat], name: str) -> str:
    """Return the key of an event that is called ``name`` or ``system:name``."""
    for key, event in formats.items():
        if name in {key, f"{event.system}:{event.name}"}:
            return key
    near = difflib.get_close_matches(name.rsplit(":", maxsplit=1)[-1], formats, n=5)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise UserError(f"{path} has no event {name!r}{hint}")
