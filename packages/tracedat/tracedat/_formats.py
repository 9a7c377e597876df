# SPDX-License-Identifier: MIT
"""Parse the kernel's descriptions of event records and of ring-buffer pages.

They are the files ``events/<system>/<event>/format`` and ``events/header_page`` of tracefs
(Documentation/trace/events.rst).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tracedat._errors import TooLargeError, TraceError

# Kinds of a column: the encoding of its value in a record. In compiled loops texts are odd.
INTEGER, INTEGER_UNALIGNED = 0, 2
BYTES, TEXT = 4, 5
BYTES_DYNAMIC, TEXT_DYNAMIC = 6, 7
BYTES_RELATIVE, TEXT_RELATIVE = 8, 9
BYTES_TAIL, TEXT_TAIL = 10, 11

# An array of more elements than this becomes one column of bytes.
_MAX_ELEMENTS = 16
_MAX_RECORD = 1 << 16
# Of one event, and of all: each kernel's have fewer than 100 and 50,000.
_MAX_COLUMNS, _MAX_ALL_COLUMNS = 512, 1 << 18

_FIELD = re.compile(
    r"^\s*field:\s*(?P<declaration>[^;\s][^;]{0,999});"
    r"\s*offset:(?P<offset>\d{1,9});\s*size:(?P<size>\d{1,9});(?:\s*signed:(?P<signed>\d+);)?"
)
_DECLARATION = re.compile(r"^(?P<type>.*?)(?P<name>\w+)(?P<array>(?:\[[^]]*\])*)$", re.DOTALL)
_LOCATED = re.compile(
    r"^(?P<how>__data_loc|__rel_loc)\s+(?P<type>.+?)\s*\[[^]]*\]\s*(?P<name>\w+)$"
)
_CHARACTERS = {"char", "const char"}


@dataclass(frozen=True)
class Column:
    """One column of an event's frame.

    Parameters
    ----------
    name : str
        The field, or one element of it (``args[0]``).
    kind : int
        `INTEGER` or another constant of this module.
    offset, size : int
        Place of the value in a record, in bytes.
    signed : bool
        Whether an integer is signed.
    table : str, optional
        The set of categories; columns of one table compare. None for integers.
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
    """One event type.

    Parameters
    ----------
    system, name : str
        As in tracefs, such as ``sched`` and ``sched_switch``.
    number : int
        The value of ``common_type`` in its records.
    columns : tuple of Column
        The common ones first.
    min_size : int
        Bytes of the shortest possible record.
    print_format : str
        The format's ``print fmt``.
    """

    system: str
    name: str
    number: int
    columns: tuple[Column, ...]
    min_size: int
    print_format: str

    @property
    def preempted_bit(self) -> int:
        """The bit of sched_switch's ``prev_state`` that marks a preempted task (``R+``), or 0.

        It is ``TASK_REPORT_MAX`` of include/trace/events/sched.h, which follows the number of task
        states and so differs between kernels. The print format holds it in the expression
        ``REC->prev_state & (...) ? "+" : ""``; an event without it has 0.
        """
        text = self.print_format
        end = re.search(r'\?\s*"\+"\s*:\s*""', text)
        if end is None:
            return 0
        start = text.rfind("REC->prev_state &", 0, end.start())
        expression = text[start + len("REC->prev_state &") : end.start()].strip()
        try:
            return _constant(ast.parse(expression, mode="eval").body)
        except (SyntaxError, _FormatError, RecursionError):
            return 0


@dataclass(frozen=True)
class PageLayout:
    """The layout of a sub-buffer, in bytes."""

    head: int
    # Bytes of the commit word: 4 or 8
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
    """A format text is malformed; the message says how."""


def parse_formats(path: Path, texts: Iterable[tuple[str, str]]) -> dict[int, EventFormat]:
    """Parse event formats."""
    events: dict[int, EventFormat] = {}
    columns = 0
    for system, text in texts:
        try:
            event = _parse_event(system, text)
        except _FormatError as error:
            name = re.match(r"name: (\S+)", text)
            problem = f"malformed format of event {system}:{name[1][:80] if name else '?'}: {error}"
            raise TraceError(path, problem) from error
        columns += len(event.columns)
        if columns > _MAX_ALL_COLUMNS:
            raise TooLargeError(path, f"its events have more than {_MAX_ALL_COLUMNS} fields")
        known = events.setdefault(event.number, event)
        if known != event:
            problem = f"events {known.name} and {event.name} both have the number {event.number}"
            raise TraceError(path, problem)
    return events


def common_type(path: Path, events: Iterable[EventFormat]) -> int:
    """Return the byte offset of the event number (``common_type``) in every record."""
    places = {
        (column.offset, column.size)
        for event in events
        for column in event.columns
        if column.name == "common_type"
    }
    if len(places) != 1:
        raise TraceError(path, "the event formats disagree about the place of common_type")
    ((offset, size),) = places
    if size != 2 or offset % 2:
        problem = f"unsupported common_type: {size} bytes at offset {offset}"
        raise TraceError(path, problem)
    return offset


def parse_page_layout(path: Path, text: str) -> PageLayout:
    """Parse the text of ``events/header_page``."""
    fields = {}
    for line in text.splitlines():
        if match := _FIELD.match(line):
            name = match["declaration"].split()[-1]
            fields[name] = (int(match["offset"]), int(match["size"]))
    stamp, commit, data = (fields.get(n, (-1, -1)) for n in ("timestamp", "commit", "data"))
    if stamp != (0, 8) or commit not in {(8, 4), (8, 8)} or data[0] != 8 + commit[1] or data[1] < 0:
        raise TraceError(path, "section 'headers': unsupported layout of the page header")
    return PageLayout(data[0], commit[1], data[0] + data[1])


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
    raise _FormatError("not a constant expression")


@lru_cache(maxsize=1024)
def _parse_event(system: str, text: str) -> EventFormat:
    name = re.match(r"name: (\S+)\s*\n", text)
    number = re.search(r"^ID: (\d{1,9})\s*$", text, re.MULTILINE)
    if name is None or number is None:
        raise _FormatError("no name or no ID")
    if int(number[1]) >= 1 << 16:
        raise _FormatError(f"the ID {number[1]} has more than 16 bits")
    body, _, print_format = text.partition("print fmt:")
    lines = [line for line in body.splitlines() if line.lstrip().startswith("field:")]
    fields = [_parse_field(line) for line in lines]
    if not fields:
        raise _FormatError("no fields")
    columns: list[Column] = []
    taken = {"timestamp_ns", "common_cpu"}
    min_size = 0
    for i, field in enumerate(fields):
        # The last array of some ftrace records has fewer or more elements than its format states
        # (kernel/trace/trace_entries.h).
        last = i == len(fields) - 1
        tail = last and bool(field.array) and (system == "ftrace" or field.size == 0)
        min_size = max(min_size, field.offset + (0 if tail else field.size))
        # Column names are unique: the later of two fields of one name gets an underscore.
        more = [
            Column(c.name + "_", c.kind, c.offset, c.size, c.signed, c.table)
            if c.name in taken
            else c
            for c in _columns(field, tail)
        ]
        columns += more
        taken |= {column.name for column in more}
        if len(columns) > _MAX_COLUMNS:
            raise _FormatError(f"more than {_MAX_COLUMNS} fields")
    if min_size >= _MAX_RECORD:
        raise _FormatError(f"impossible record size: {min_size} bytes")
    return EventFormat(
        system, name[1], int(number[1]), tuple(columns), min_size, print_format.strip()
    )


def _parse_field(line: str) -> _Field:
    match = _FIELD.match(line)
    if match is None:
        raise _FormatError(f"not a field: {line.strip()[:200]!r}")
    declaration = " ".join(match["declaration"].split())
    offset, size = int(match["offset"]), int(match["size"])
    signed = match["signed"] not in {None, "0"}
    if located := _LOCATED.match(declaration):
        if size != 4:
            raise _FormatError(f"a location of {size} bytes: {line.strip()[:200]!r}")
        return _Field(located["type"], located["name"], "[]", located["how"], offset, size, signed)
    plain = _DECLARATION.match(declaration)
    if plain is None:
        raise _FormatError(f"not a declaration: {line.strip()[:200]!r}")
    return _Field(plain["type"].strip(), plain["name"], plain["array"], "", offset, size, signed)


def _columns(field: _Field, tail: bool) -> list[Column]:
    text = field.type in _CHARACTERS
    table = f"{field.name}:{int(text)}"
    if field.located:
        kind = BYTES_DYNAMIC if field.located == "__data_loc" else BYTES_RELATIVE
        return [Column(field.name, kind + text, field.offset, 4, False, table)]
    if tail:
        return [Column(field.name, BYTES_TAIL + text, field.offset, 0, False, table)]
    if field.size == 0:
        # An empty struct has no value.
        return []
    if field.array or field.size not in {1, 2, 4, 8}:
        return _array(field, text)
    return [_integer(field.name, field.offset, field.size, field.signed)]


def _array(field: _Field, text: bool) -> list[Column]:
    dimension = re.fullmatch(r"\[(\d{1,6})\]", field.array)
    count = int(dimension[1]) if dimension else 0
    element = field.size // count if count and field.size % count == 0 else 0
    if not text and element in {2, 4, 8} and count <= _MAX_ELEMENTS:
        return [
            _integer(f"{field.name}[{i}]", field.offset + i * element, element, field.signed)
            for i in range(count)
        ]
    # Strings of one declared length (all task names) share a table, so that they compare.
    table = f"[{field.size}]:{int(text)}"
    return [Column(field.name, BYTES + text, field.offset, field.size, False, table)]


def _integer(name: str, offset: int, size: int, signed: bool) -> Column:
    # Records are aligned to 4 bytes; the walk reads 8-byte integers as two words.
    aligned = offset % min(size, 4) == 0
    return Column(name, INTEGER if aligned else INTEGER_UNALIGNED, offset, size, signed)
