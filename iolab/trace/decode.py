# SPDX-License-Identifier: MIT
"""From a file to a Trace: which events, which columns, how times convert; then the record walk."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.errors import UserError
from iolab.trace.columns import (
    BUFFER,
    CPU,
    DONE,
    TIME,
    WIDE,
    Fields,
    Memory,
    Pages,
    decode,
    new_progress,
)
from iolab.trace.container import Container, read_container
from iolab.trace.cursor import TraceError, TraceFile
from iolab.trace.formats import (
    Column,
    EventFormat,
    PageLayout,
    common_type,
    parse_formats,
    parse_page_layout,
)
from iolab.trace.load import Chunk, Loaded, Selection, Source, chunks_of, load, sources_of
from iolab.trace.pages import UNKNOWN, UNWANTED
from iolab.trace.strings import FULL, StringTable, new_table, values
from iolab.trace.times import Clock
from iolab.trace.trace import EventColumns, Loss, Trace, TraceInfo

__all__ = ["Plan", "plan", "read", "run"]

_NUMBERS = 1 << 16
_ALIGN = 64
_FIRST_ENTRIES, _FIRST_POOL = 4096, 1 << 16
# The categories of the column that says in which buffer an event was.
_BUFFERS = "buffers"


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
        parts = [(source, list(chunks_of(file, source))) for source in what.sources]
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
    wanted = [_targets(event, several=len(buffers) > 1) for event in chosen]
    arrays, strings, tables = _decode(what, sources, buffers, loaded, selection, wanted)
    dtypes = {
        name: pd.CategoricalDtype(pd.Index(values(strings, number, name.endswith(":1"))))
        for name, number in tables.items()
    }
    dtypes[_BUFFERS] = pd.CategoricalDtype(pd.Index(buffers, dtype="str"))
    columns = {}
    for name, event, targets, data in zip(what.wanted, chosen, wanted, arrays, strict=True):
        what.clock.convert(data["timestamp_ns"])
        kinds = {t.name: dtypes[t.table] for t in targets if t.table is not None}
        for key, dtype in kinds.items():
            data[key] = _narrow(data[key], len(dtype.categories))
        for array in data.values():
            array.flags.writeable = False
        columns[name] = EventColumns(event, data, kinds)
    losses = _losses(what, sources, loaded, begin, end)
    comms = _comms(what.container.cmdlines)
    return Trace(
        what.file.path,
        info=what.info,
        columns=columns,
        formats=what.formats,
        comms=comms,
        losses=losses,
        between=between,
    )


def _targets(event: EventFormat, *, several: bool) -> list[Column]:
    """Return the columns of an event's frame in order."""
    made = [
        Column("timestamp_ns", TIME, 0, 8, signed=True),
        Column("common_cpu", CPU, 0, 2, signed=True),
    ]
    if several:
        made.append(Column("common_buffer", BUFFER, 0, 1, signed=True, table=_BUFFERS))
    return made + [column for column in event.columns if column.name != "common_type"]


def _decode(
    what: Plan,
    sources: Sequence[Source],
    buffers: Sequence[str],
    loaded: Loaded,
    selection: Selection,
    wanted: Sequence[Sequence[Column]],
) -> tuple[list[dict[str, NDArray[Any]]], StringTable, dict[str, int]]:
    """Return each event's arrays, the strings, and the number of each table of categories."""
    flat = [column for columns in wanted for column in columns]
    names = {c.table for c in flat if c.table is not None and c.kind != BUFFER}
    tables = {name: number for number, name in enumerate(sorted(names))}
    pages = Pages(
        loaded.at,
        loaded.first,
        loaded.end,
        loaded.wanted,
        loaded.start,
        np.array([source.data.cpu for source in sources], np.int32),
        np.array([buffers.index(source.buffer.name) for source in sources], np.int8),
    )
    halves, raw = loaded.words.view(np.uint16), loaded.words.view(np.uint8)
    strings = new_table(len(tables), _FIRST_ENTRIES, _FIRST_POOL)
    code_type: type[np.int16 | np.int32] = np.int16
    while True:
        fields, memory, arrays = _allocate(what, wanted, tables, loaded.counts, code_type)
        progress = new_progress(len(sources), selection.size)
        while (
            status := decode(
                loaded.words,
                halves,
                raw,
                pages,
                what.layout.head,
                what.type_at,
                selection.slots,
                selection.begin,
                selection.end,
                fields,
                memory,
                strings,
                progress,
            )
        ) == FULL:
            strings = new_table(len(tables), 4 * strings.low.size, 4 * strings.pool.size, strings)
        if status == DONE:
            return arrays, strings, tables
        if status != WIDE:
            place = -status - 10
            raise _outside(what, sources, loaded, place)
        code_type = np.int32


def _outside(what: Plan, sources: Sequence[Source], loaded: Loaded, place: int) -> TraceError:
    page = int(np.searchsorted(loaded.at, place, "right")) - 1
    number = int(np.searchsorted(loaded.start, page, "right")) - 1
    where = f"byte {place - int(loaded.at[page])} of page {page - int(loaded.start[number])}"
    text = f"{where} of {sources[number]}: a text lies outside its record"
    return TraceError(what.file.path, text, sources[number].data.offset)


def _allocate(
    what: Plan,
    wanted: Sequence[Sequence[Column]],
    tables: dict[str, int],
    counts: NDArray[np.int64],
    code_type: type[np.int16 | np.int32],
) -> tuple[Fields, Memory, list[dict[str, NDArray[Any]]]]:
    """Return where each field goes, the memory for all columns, and the columns in it."""
    start = np.zeros(len(wanted) + 1, np.int64)
    rows: list[tuple[int, int, int, int, int]] = []
    places: list[list[tuple[Column, int]]] = []
    size = codes = 0
    for slot, columns in enumerate(wanted):
        count = int(counts[slot])
        places.append([])
        for column in columns:
            table = tables.get(column.table or "", -1)
            if table >= 0:
                target, codes = codes, codes + count
                places[-1].append((column, target))
            else:
                places[-1].append((column, size))
                target = size // column.size
                size += -(-count * column.size // _ALIGN) * _ALIGN
            rows.append((column.kind, column.offset, column.size, target, table))
        start[slot + 1] = len(rows)
    table_of = np.array(rows, np.int64).reshape(-1, 5)
    try:
        base = np.empty(size // 8, np.uint64)
        code_base = np.empty(codes, code_type)
    except MemoryError as error:
        text = f"{size + codes * 2} bytes of columns do not fit into memory; read windows"
        raise TraceError(what.file.path, text) from error
    fields = Fields(
        start,
        table_of[:, 0].astype(np.int32),
        table_of[:, 1].astype(np.int32),
        table_of[:, 2].astype(np.int32),
        table_of[:, 3].copy(),
        table_of[:, 4].astype(np.int32),
    )
    memory = Memory(
        base.view(np.uint8), base.view(np.uint16), base.view(np.uint32), base, code_base
    )
    arrays: list[dict[str, NDArray[Any]]] = []
    for slot, placed in enumerate(places):
        count = int(counts[slot])
        arrays.append({})
        for column, place in placed:
            if column.table in tables:
                arrays[-1][column.name] = code_base[place : place + count]
            else:
                span = memory.b8[place : place + count * column.size]
                arrays[-1][column.name] = span.view(column.dtype)
    return fields, memory, arrays


def _narrow(codes: NDArray[Any], categories: int) -> NDArray[Any]:
    """Return codes in the type that pandas wants for so many categories, in memory of their own."""
    kinds = (np.int8, np.int16, np.int32)
    kind = next(k for k in kinds if categories <= np.iinfo(k).max)
    return codes.astype(kind)


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
