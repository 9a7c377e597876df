# SPDX-License-Identifier: MIT
"""Columns for all events of loaded pages: memory, parts of the time for the threads, categories."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iolab.trace.columns import (
    BUFFER,
    CPU,
    DONE,
    TIME,
    Fields,
    Memory,
    decode,
)
from iolab.trace.cursor import TraceError
from iolab.trace.formats import Column, EventFormat, PageLayout
from iolab.trace.load import Loaded, Selection, Source, in_threads, threads
from iolab.trace.merge import Pages, new_progress
from iolab.trace.pages import scan
from iolab.trace.strings import FULL, StringTable, new_table, values

__all__ = ["Assembled", "Job", "assemble", "targets"]

_ALIGN = 64
_FIRST_ENTRIES, _FIRST_POOL = 4096, 1 << 16
Categories = list[str] | list[bytes]
# The categories of the column that says in which buffer an event was.
_BUFFERS = "buffers"
# A part's events: less is not worth another thread. Several parts a thread, because a decoded
# part's pages are given back: their memory and that of the columns need not exist at once.
_PART = 200_000
_PARTS_A_THREAD = 4


@dataclass(frozen=True)
class Job:
    """Loaded pages and the columns that are wanted of them, by slot."""

    path: Path
    layout: PageLayout
    sources: tuple[Source, ...]
    buffers: tuple[str, ...]
    loaded: Loaded
    selection: Selection
    wanted: tuple[list[Column], ...]


@dataclass(frozen=True)
class Assembled:
    """The arrays of each event type in the order of its columns; the categories by their table."""

    arrays: list[dict[str, NDArray[Any]]]
    categories: dict[str, Categories]


@dataclass(frozen=True)
class _Part:
    """A span of raw time with the events of each slot that come before it and are in it."""

    begin: int
    end: int
    before: NDArray[np.int64]
    counts: NDArray[np.int64]


def targets(event: EventFormat, *, several: bool) -> list[Column]:
    """Return the columns of an event's frame in order; `several` adds the buffer's name."""
    made = [
        Column("timestamp_ns", TIME, 0, 8, signed=True),
        Column("common_cpu", CPU, 0, 2, signed=True),
    ]
    if several:
        made.append(Column("common_buffer", BUFFER, 0, 1, signed=True, table=_BUFFERS))
    return made + [column for column in event.columns if column.name != "common_type"]


def assemble(job: Job) -> Assembled:
    """Decode all wanted events.

    Errors: TraceError for a text that lies outside its record.
    """
    names = {c.table for columns in job.wanted for c in columns if c.table and c.kind != BUFFER}
    tables = {name: number for number, name in enumerate(sorted(names))}
    parts = _parts(job)
    layout, memory, arrays = _allocate(job, tables)
    worked = in_threads(
        lambda part: _decode(job, part, layout, memory, len(tables)),
        parts,
        job.loaded.words.nbytes,
    )
    categories = _merge(job, parts, worked, tables, arrays)
    categories[_BUFFERS] = list(job.buffers)
    for columns, data in zip(job.wanted, arrays, strict=True):
        for column in columns:
            if column.table:
                count = len(categories[column.table])
                data[column.name] = _narrow(data[column.name], count)
    return Assembled(arrays, categories)


def _parts(job: Job) -> list[_Part]:
    """Divide the time so that each thread gets about as many events."""
    loaded, selection = job.loaded, job.selection
    count = min(_PARTS_A_THREAD * threads(), int(loaded.counts.sum()) // _PART)
    cuts: list[int] = []
    if count > 1:
        # The cuts lie between pages of the fullest source.
        sizes = [loaded.wanted[a:b].sum() for a, b in _pairs(loaded.start)]
        low = int(loaded.start[int(np.argmax(sizes))])
        high = int(loaded.start[int(np.argmax(sizes)) + 1])
        pages = low + np.flatnonzero(loaded.wanted[low:high])
        steps = np.cumsum(loaded.wanted[pages])
        at = np.searchsorted(steps, steps[-1] * np.arange(1, count) // count)
        cuts = np.unique(loaded.first[pages[at]]).tolist()
    times = [selection.begin, *(c for c in cuts if selection.begin < c < selection.end)]
    before = [_before(job, cut) for cut in times[1:]]
    edges = [np.zeros_like(loaded.counts), *before, loaded.counts]
    return [
        _Part(begin, end, a, b - a)
        for begin, end, a, b in zip(
            times, [*times[1:], selection.end], edges[:-1], edges[1:], strict=True
        )
    ]


def _pairs(start: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(start[:-1].tolist(), start[1:].tolist(), strict=True))


def _before(job: Job, cut: int) -> NDArray[np.int64]:
    """Count the wanted events before a raw time, by slot."""
    loaded, selection = job.loaded, job.selection
    counts = np.zeros_like(loaded.counts)
    for source, low, high, events in loaded.spans:
        last = loaded.last[low:high].max(initial=-1)
        if last < cut:
            counts += events
            continue
        # Pages without records have the time -1: harmless on either side.
        inside = low + np.flatnonzero(loaded.first[low:high] < cut)
        scratch = [np.empty(inside.size, np.int64) for _ in range(3)]
        scan(
            loaded.words,
            loaded.at[inside],
            job.sources[source].page_size,
            job.layout.head,
            job.layout.commit,
            selection.type_at,
            selection.slots,
            selection.needs,
            selection.begin,
            cut,
            counts,
            scratch[0],
            scratch[1],
            np.empty(inside.size, np.int32),
            np.empty(inside.size, np.int32),
            scratch[2],
        )
    return counts


def _allocate(
    job: Job, tables: dict[str, int]
) -> tuple[Fields, Memory, list[dict[str, NDArray[Any]]]]:
    """Return where each field goes, the memory of all columns, and the columns in it."""
    start = np.zeros(len(job.wanted) + 1, np.int64)
    rows: list[tuple[int, int, int, int, int]] = []
    size = codes = 0
    for slot, columns in enumerate(job.wanted):
        count = int(job.loaded.counts[slot])
        for column in columns:
            table = tables.get(column.table or "", -1)
            if table >= 0:
                rows.append((column.kind, column.offset, column.size, codes, table))
                codes += count
            else:
                first = size // column.size
                rows.append((column.kind, column.offset, column.size, first, table))
                size += -(-count * column.size // _ALIGN) * _ALIGN
        start[slot + 1] = len(rows)
    try:
        # Not np.empty: its huge pages would all be there as soon as each column has its first row.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        base = np.frombuffer(mmap.mmap(-1, size + 8, flags=private), np.uint64)
        code_base = np.frombuffer(mmap.mmap(-1, 4 * codes + 4, flags=private), np.int32)
    except (MemoryError, OSError, OverflowError) as error:
        raise TraceError(job.path, "the columns do not fit into memory; read windows") from error
    memory = Memory(
        base.view(np.uint8), base.view(np.uint16), base.view(np.uint32), base, code_base
    )
    arrays: list[dict[str, NDArray[Any]]] = []
    for slot, columns in enumerate(job.wanted):
        count = int(job.loaded.counts[slot])
        arrays.append({})
        for column, row in zip(columns, rows[start[slot] : start[slot + 1]], strict=True):
            first = row[3]
            if row[4] >= 0:
                arrays[-1][column.name] = code_base[first : first + count]
            else:
                at = first * column.size
                span = memory.b8[at : at + count * column.size]
                arrays[-1][column.name] = span.view(column.dtype)
    kind, offset, width, target, table_of = np.array(rows, np.int64).reshape(-1, 5).T
    i32 = np.int32
    fields = Fields(
        start,
        kind.astype(i32),
        offset.astype(i32),
        width.astype(i32),
        target.copy(),
        table_of.astype(i32),
    )
    return fields, memory, arrays


def _decode(job: Job, part: _Part, fields: Fields, memory: Memory, tables: int) -> StringTable:
    """Decode a part of the time into the columns; return its categories."""
    loaded, selection = job.loaded, job.selection
    inside = (loaded.first < part.end) & (loaded.last >= part.begin)
    pages = Pages(
        loaded.at,
        loaded.first,
        loaded.end,
        np.where(inside, loaded.wanted, 0).astype(np.int32),
        loaded.start,
        np.array([source.data.cpu for source in job.sources], np.int32),
        np.array([job.buffers.index(s.buffer.name) for s in job.sources], np.int8),
    )
    behind = fields.target + np.repeat(part.before, np.diff(fields.start))
    fields = fields._replace(target=behind)
    halves, raw = loaded.words.view(np.uint16), loaded.words.view(np.uint8)
    strings = new_table(tables, _FIRST_ENTRIES, _FIRST_POOL)
    progress = new_progress(len(job.sources), selection.size)
    while True:
        status = decode(
            loaded.words,
            halves,
            raw,
            pages,
            job.layout.head,
            selection.type_at,
            selection.slots,
            part.begin,
            part.end,
            fields,
            memory,
            strings,
            progress,
        )
        if status == DONE:
            loaded.drop(part.begin, part.end)
            return strings
        if status != FULL:
            raise _outside(job, -status - 10)
        strings = new_table(tables, 4 * strings.low.size, 4 * strings.pool.size, strings)


def _merge(
    job: Job,
    parts: Sequence[_Part],
    worked: Sequence[StringTable],
    tables: dict[str, int],
    arrays: Sequence[dict[str, NDArray[Any]]],
) -> dict[str, Categories]:
    """Give all parts the codes of the first; return the categories by table."""
    merged: dict[str, Categories] = {}
    codes: list[dict[str, NDArray[np.int32]]] = [{} for _ in parts]
    for name, number in tables.items():
        known: dict[Any, int] = {}
        for strings, mine in zip(worked, codes, strict=True):
            found = values(strings, number, name.endswith(":1"))
            mine[name] = np.array([known.setdefault(v, len(known)) for v in found], np.int32)
        merged[name] = list(known)
    for slot, columns in enumerate(job.wanted):
        for column in columns:
            if column.table not in tables:
                continue
            array = arrays[slot][column.name]
            for part, mine in zip(parts[1:], codes[1:], strict=True):
                low = int(part.before[slot])
                own = array[low : low + int(part.counts[slot])]
                if own.size:
                    own[:] = mine[column.table][own]
    return merged


def _outside(job: Job, place: int) -> TraceError:
    loaded = job.loaded
    page = int(np.searchsorted(loaded.at, place, "right")) - 1
    number = int(np.searchsorted(loaded.start, page, "right")) - 1
    where = f"byte {place - int(loaded.at[page])} of page {page - int(loaded.start[number])}"
    text = f"{where} of {job.sources[number]}: a text lies outside its record"
    return TraceError(job.path, text, job.sources[number].data.offset)


def _narrow(codes: NDArray[Any], categories: int) -> NDArray[Any]:
    """Return codes in the type that pandas wants for so many categories, in memory of their own."""
    kinds = (np.int8, np.int16, np.int32)
    kind = next(k for k in kinds if categories <= np.iinfo(k).max)
    return codes.astype(kind)
