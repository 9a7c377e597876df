# SPDX-License-Identifier: MIT
"""Build the columns of loaded pages: allocate memory, split the time, merge the categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracedat._chunks import PageSource
from tracedat._columns import (
    BUFFER,
    CPU,
    TIME,
    Fields,
    Memory,
    decode,
)
from tracedat._errors import TraceError
from tracedat._formats import Column, EventFormat, PageLayout
from tracedat._memory import MemoryRoom, map_threads, reserve, thread_count
from tracedat._merge import Pages, new_progress
from tracedat._pages import Loaded, Selection, scan
from tracedat._strings import DONE, FULL, LOCATION, StringTable, new_table, replace_codes, values

_ALIGN = 64
_FIRST_ENTRIES, _FIRST_POOL = 4096, 1 << 16
# Of an entry and of a byte of the pool, once there: in the table, as Python's values, merged.
_ENTRY_BYTES, _POOL_BYTES = 256, 6
Categories = list[str] | list[bytes]
# The table of the column common_buffer.
_BUFFERS = "buffers"
# Events of a part: fewer are not worth another thread. A thread decodes several parts, because the
# memory of a decoded part's pages is released before the next part's columns are written.
_PART = 200_000
_PARTS_A_THREAD = 4


@dataclass(frozen=True)
class Assembly:
    """Loaded pages and the columns to decode from them."""

    path: Path
    layout: PageLayout
    # The CPUs of the pages, in the order of `Loaded.start`
    sources: tuple[PageSource, ...]
    buffers: tuple[str, ...]
    loaded: Loaded
    selection: Selection
    # The columns of each slot
    wanted: tuple[list[Column], ...]
    room: MemoryRoom


@dataclass(frozen=True)
class Assembled:
    """Decoded columns."""

    # list of dict of str to array[rows]: by slot, then by column
    arrays: list[dict[str, NDArray[Any]]]
    # The values of each table, in the order of their codes
    categories: dict[str, Categories]


@dataclass(frozen=True)
class _Part:
    """A span of raw time, with the number of events before it and inside it by slot."""

    begin: int
    end: int
    before: NDArray[np.int64]
    counts: NDArray[np.int64]


def columns_of(event: EventFormat, *, several: bool) -> list[Column]:
    """Return the columns of an event's frame in order."""
    columns = [
        Column("timestamp_ns", TIME, 0, 8, signed=True),
        Column("common_cpu", CPU, 0, 2, signed=True),
    ]
    if several:
        columns.append(Column("common_buffer", BUFFER, 0, 1, signed=True, table=_BUFFERS))
    return columns + [column for column in event.columns if column.name != "common_type"]


def assemble(job: Assembly) -> Assembled:
    """Decode all selected events."""
    names = {c.table for columns in job.wanted for c in columns if c.table and c.kind != BUFFER}
    tables = {name: number for number, name in enumerate(sorted(names))}
    parts = _parts(job)
    layout, memory, arrays = _allocate(job, tables)
    strings = map_threads(
        lambda part: _decode(job, part, layout, memory, len(tables)),
        parts,
        job.loaded.words.nbytes,
    )
    categories, codes = _merge(strings, tables)
    categories[_BUFFERS] = list(job.buffers)
    _recode(job, parts, categories, codes, arrays)
    return Assembled(arrays, categories)


def _parts(job: Assembly) -> list[_Part]:
    """Split time into parts of about as many events each."""
    loaded, selection = job.loaded, job.selection
    count = min(_PARTS_A_THREAD * thread_count(), int(loaded.counts.sum()) // _PART)
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


def _before(job: Assembly, cut: int) -> NDArray[np.int64]:
    """Count the selected events before a raw time, by slot."""
    loaded, selection = job.loaded, job.selection
    counts = np.zeros_like(loaded.counts)
    for source, low, high, events in loaded.spans:
        last = loaded.last[low:high].max(initial=-1)
        if last < cut:
            counts += events
            continue
        # Pages without records have the time -1; they add nothing to either side.
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
    job: Assembly, tables: dict[str, int]
) -> tuple[Fields, Memory, list[dict[str, NDArray[Any]]]]:
    """Return each field's place, the memory of all columns, and the columns in it."""
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
    # The codes have 4 bytes at first, and then those of pandas' type.
    job.room.take(size + 8 * codes)
    try:
        base = np.frombuffer(reserve(size + 8), np.uint64)
        code_base = np.frombuffer(reserve(4 * codes + 4), np.int32)
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


def _decode(job: Assembly, part: _Part, fields: Fields, memory: Memory, tables: int) -> StringTable:
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
            loaded.release(part.begin, part.end)
            return strings
        if status != FULL:
            raise _outside(job, -status - LOCATION)
        job.room.take(3 * (_ENTRY_BYTES * strings.low.size + _POOL_BYTES * strings.pool.size))
        strings = new_table(tables, 4 * strings.low.size, 4 * strings.pool.size, strings)


def _merge(
    strings: Sequence[StringTable], tables: dict[str, int]
) -> tuple[dict[str, Categories], list[dict[str, NDArray[np.int32]]]]:
    """Return the categories by table, and for each part the common code of each of its codes."""
    merged: dict[str, Categories] = {}
    codes: list[dict[str, NDArray[np.int32]]] = [{} for _ in strings]
    for name, number in tables.items():
        common: dict[Any, int] = {}
        for table, codes_of_part in zip(strings, codes, strict=True):
            texts = values(table, number, name.endswith(":1"))
            codes_of_part[name] = np.array(
                [common.setdefault(text, len(common)) for text in texts], np.int32
            )
        merged[name] = list(common)
    return merged, codes


def _recode(
    job: Assembly,
    parts: Sequence[_Part],
    categories: dict[str, Categories],
    codes: Sequence[dict[str, NDArray[np.int32]]],
    arrays: Sequence[dict[str, NDArray[Any]]],
) -> None:
    """Replace columns of each part's codes by columns of common codes, in pandas' type."""
    todo: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    for slot, columns in enumerate(job.wanted):
        for column in columns:
            if column.table is None:
                continue
            kind = _code_type(len(categories[column.table]))
            array = arrays[slot][column.name]
            if column.kind == BUFFER:
                arrays[slot][column.name] = array.astype(kind)
                continue
            narrow = arrays[slot][column.name] = np.empty(array.size, kind)
            for part, codes_of_part in zip(parts, codes, strict=True):
                low = int(part.before[slot])
                rows = slice(low, low + int(part.counts[slot]))
                if rows.stop > low:
                    todo.append(
                        (array[rows], codes_of_part[column.table].astype(kind), narrow[rows])
                    )
    map_threads(lambda one: replace_codes(*one), todo, sum(one[0].nbytes for one in todo))


def _outside(job: Assembly, place: int) -> TraceError:
    loaded = job.loaded
    page = int(np.searchsorted(loaded.at, place, "right")) - 1
    number = int(np.searchsorted(loaded.start, page, "right")) - 1
    where = f"byte {place - int(loaded.at[page])} of page {page - int(loaded.start[number])}"
    problem = f"{where} of {job.sources[number]}: a string lies outside its record"
    return TraceError(job.path, problem, job.sources[number].data.offset)


def _code_type(categories: int) -> type[np.signedinteger[Any]]:
    """Return the type that pandas uses for codes of so many categories."""
    kinds = (np.int8, np.int16, np.int32)
    return next(kind for kind in kinds if categories < np.iinfo(kind).max)
