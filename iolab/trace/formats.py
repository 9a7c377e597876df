# SPDX-License-Identifier: MIT
"""What an event's bytes mean, as the kernel's format texts in the file say.

A format text is the kernel's ``events/<system>/<event>/format``; the syntax is that of
Documentation/trace/events.rst.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from iolab.trace.cursor import TraceError

__all__ = [
    "BYTES",
    "BYTES_DYNAMIC",
    "BYTES_RELATIVE",
    "BYTES_TAIL",
    "INTEGER",
    "INTEGER_UNALIGNED",
    "TEXT",
    "TEXT_DYNAMIC",
    "TEXT_RELATIVE",
    "TEXT_TAIL",
    "Column",
    "EventFormat",
    "PageLayout",
    "common_type",
    "parse_formats",
    "parse_page_layout",
    "preempted_bit",
]

# How a column's value stands in a record. The record walk knows these numbers: texts are odd.
INTEGER, INTEGER_UNALIGNED = 0, 2
BYTES, TEXT = 4, 5
BYTES_DYNAMIC, TEXT_DYNAMIC = 6, 7
BYTES_RELATIVE, TEXT_RELATIVE = 8, 9
BYTES_TAIL, TEXT_TAIL = 10, 11

# An array of more elements than this becomes one column of bytes.
_MAX_ELEMENTS = 16
_MAX_RECORD = 1 << 16

_FIELD = re.compile(
    r"^\s*field:(?P<declaration>[^;]+);\s*offset:(?P<offset>\d{1,9});\s*size:(?P<size>\d{1,9});"
    r"(?:\s*signed:(?P<signed>\d+);)?"
)
_DECLARATION = re.compile(r"^(?P<type>.*?)(?P<name>\w+)(?P<array>(?:\[[^]]*\])*)$", re.DOTALL)
_LOCATED = re.compile(
    r"^(?P<how>__data_loc|__rel_loc)\s+(?P<type>.+?)\s*\[[^]]*\]\s*(?P<name>\w+)$"
)
_CHARACTERS = {"char", "const char"}


@dataclass(frozen=True)
class Column:
    """One column of an event's frame: where its value stands in a record and what it is.

    ``kind`` is one of this module's constants; ``size`` is in bytes. ``table`` names the set of
    categories the column shares with its like; None for integers.
    """

    name: str
    kind: int
    offset: int
    size: int
    signed: bool
    table: str | None = None

    @property
    def dtype(self) -> str:
        """The integer's NumPy dtype."""
        return f"{'i' if self.signed else 'u'}{self.size}"


@dataclass(frozen=True)
class EventFormat:
    """One event type: its columns (the common ones first) and its shortest possible record."""

    system: str
    name: str
    number: int
    columns: tuple[Column, ...]
    min_size: int
    print_format: str


@dataclass(frozen=True)
class PageLayout:
    """A sub-buffer's head: bytes before the records, bytes of the commit word, bytes in all."""

    head: int
    commit: int
    size: int


@dataclass(frozen=True)
class _Field:
    type: str
    name: str
    array: str
    located: str
    offset: int
    size: int
    signed: bool


class _FormatError(ValueError):
    """A format text that cannot be understood; says why."""


def parse_formats(path: Path, texts: Iterable[tuple[str, str]]) -> dict[int, EventFormat]:
    """Return the event types by number from (system, format text) pairs.

    Errors: TraceError naming the event if a text is damaged or two events share a number.
    """
    events: dict[int, EventFormat] = {}
    for system, text in texts:
        try:
            event = _parse_event(system, text)
        except _FormatError as error:
            name = re.match(r"name: (\S+)", text)
            what = f"the format of event {system}:{name[1] if name else '?'}: {error}"
            raise TraceError(path, what) from error
        known = events.setdefault(event.number, event)
        if known != event:
            what = f"events {known.name} and {event.name} both have the number {event.number}"
            raise TraceError(path, what)
    return events


def common_type(path: Path, events: Iterable[EventFormat]) -> int:
    """Return where in every record the event's number stands.

    Errors: TraceError if the formats disagree or say nothing.
    """
    places = {
        (column.offset, column.size)
        for event in events
        for column in event.columns
        if column.name == "common_type"
    }
    if len(places) != 1:
        raise TraceError(path, "the event formats do not agree where an event's number stands")
    ((offset, size),) = places
    if size != 2 or offset % 2:
        what = f"an event's number of {size} bytes at {offset} in the record cannot be read"
        raise TraceError(path, what)
    return offset


def parse_page_layout(path: Path, text: str) -> PageLayout:
    """Return a sub-buffer's layout from the text of ``events/header_page``.

    Errors: TraceError if the text is damaged or describes a layout iolab does not know.
    """
    fields = {}
    for line in text.splitlines():
        if found := _FIELD.match(line):
            name = found["declaration"].split()[-1]
            fields[name] = (int(found["offset"]), int(found["size"]))
    stamp, commit, data = (fields.get(n, (-1, -1)) for n in ("timestamp", "commit", "data"))
    if stamp != (0, 8) or commit not in {(8, 4), (8, 8)} or data[0] != 8 + commit[1] or data[1] < 0:
        raise TraceError(path, "section 'headers': a page header of unknown layout")
    return PageLayout(data[0], commit[1], data[0] + data[1])


def preempted_bit(event: EventFormat) -> int:
    """Return the bit of ``sched_switch``'s prev_state that prints as ``+``: still runnable.

    The bit moved between kernels; it is computed from the print format's expression
    ``REC->prev_state & (...) ? "+" : ""``. Returns 0 for kernels without such a bit.
    """
    text = event.print_format
    end = re.search(r'\?\s*"\+"\s*:\s*""', text)
    if end is None:
        return 0
    start = text.rfind("REC->prev_state &", 0, end.start())
    expression = text[start + len("REC->prev_state &") : end.start()].strip()
    try:
        return _constant(ast.parse(expression, mode="eval").body)
    except (SyntaxError, _FormatError, RecursionError):
        return 0


def _constant(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _constant(node.left), _constant(node.right)
        if isinstance(node.op, ast.BitOr):
            return left | right
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.LShift) and 0 <= right < 64:
            return left << right
    raise _FormatError("no constant")


@lru_cache(maxsize=4096)
def _parse_event(system: str, text: str) -> EventFormat:
    name = re.match(r"name: (\S+)\s*\n", text)
    number = re.search(r"^ID: (\d{1,9})\s*$", text, re.MULTILINE)
    if name is None or number is None:
        raise _FormatError("it has no name or no ID")
    if int(number[1]) >= 1 << 16:
        raise _FormatError(f"its number {number[1]} has more than 16 bits")
    body, _, print_format = text.partition("print fmt:")
    lines = [line for line in body.splitlines() if line.lstrip().startswith("field:")]
    fields = [_parse_field(line) for line in lines]
    if not fields:
        raise _FormatError("it has no fields")
    columns: list[Column] = []
    min_size = 0
    for i, one in enumerate(fields):
        # Some of ftrace's own records end with fewer or more elements than the format says.
        tail = i == len(fields) - 1 and bool(one.array) and (system == "ftrace" or one.size == 0)
        made = _columns(one, tail)
        min_size = max(min_size, one.offset + (0 if tail else one.size))
        taken = {column.name for column in columns} | {"timestamp_ns", "common_cpu"}
        # A column never hides another one of the same name.
        columns += [
            Column(c.name + "_", c.kind, c.offset, c.size, c.signed, c.table)
            if c.name in taken
            else c
            for c in made
        ]
    if min_size >= _MAX_RECORD:
        raise _FormatError(f"its records would have {min_size} bytes")
    return EventFormat(
        system, name[1], int(number[1]), tuple(columns), min_size, print_format.strip()
    )


def _parse_field(line: str) -> _Field:
    found = _FIELD.match(line)
    if found is None:
        raise _FormatError(f"no field: {line.strip()!r}")
    declaration = " ".join(found["declaration"].split())
    offset, size = int(found["offset"]), int(found["size"])
    signed = found["signed"] not in {None, "0"}
    if located := _LOCATED.match(declaration):
        if size != 4:
            raise _FormatError(f"a location of {size} bytes: {line.strip()!r}")
        return _Field(located["type"], located["name"], "[]", located["how"], offset, size, signed)
    split = _DECLARATION.match(declaration)
    if split is None:
        raise _FormatError(f"no declaration: {line.strip()!r}")
    return _Field(split["type"].strip(), split["name"], split["array"], "", offset, size, signed)


def _columns(one: _Field, tail: bool) -> list[Column]:
    text = one.type in _CHARACTERS
    if one.located:
        plain = BYTES_DYNAMIC if one.located == "__data_loc" else BYTES_RELATIVE
        return [Column(one.name, plain + text, one.offset, 4, False, f"{one.name}:{int(text)}")]
    if tail:
        table = f"{one.name}:{int(text)}"
        return [Column(one.name, BYTES_TAIL + text, one.offset, 0, False, table)]
    if one.size == 0:
        # An empty struct: nothing to show.
        return []
    if one.array or one.size not in {1, 2, 4, 8}:
        return _array(one, text)
    return [_integer(one.name, one.offset, one.size, one.signed)]


def _array(one: _Field, text: bool) -> list[Column]:
    dimension = re.fullmatch(r"\[(\d{1,6})\]", one.array)
    count = int(dimension[1]) if dimension else 0
    element = one.size // count if count and one.size % count == 0 else 0
    if not text and element in {2, 4, 8} and count <= _MAX_ELEMENTS:
        return [
            _integer(f"{one.name}[{i}]", one.offset + i * element, element, one.signed)
            for i in range(count)
        ]
    # Texts of one declared length (all task names) share their categories, so that they compare.
    return [
        Column(one.name, BYTES + text, one.offset, one.size, False, f"[{one.size}]:{int(text)}")
    ]


def _integer(name: str, offset: int, size: int, signed: bool) -> Column:
    # Records are aligned to four bytes only, which is enough for a pair of four-byte reads.
    aligned = offset % min(size, 4) == 0
    return Column(name, INTEGER if aligned else INTEGER_UNALIGNED, offset, size, signed)
