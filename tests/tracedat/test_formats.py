# SPDX-License-Identifier: MIT
"""The kernel's descriptions of events and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trace_writer import EVENTS
from tracedat import TraceError
from tracedat._formats import (
    BYTES,
    BYTES_DYNAMIC,
    BYTES_TAIL,
    INTEGER,
    INTEGER_UNALIGNED,
    TEXT,
    TEXT_DYNAMIC,
    TEXT_RELATIVE,
    TEXT_TAIL,
    Column,
    EventFormat,
    PageLayout,
    common_type,
    parse_formats,
    parse_page_layout,
)

WAKING, SWITCH = EVENTS["sched_waking"], EVENTS["sched_switch"]
_COMMON = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
# events/header_page of Linux 6.1 on x86.
_PAGE = """\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;
"""


def _event(*fields: str, system: str = "demo", number: int = 7, printed: str = '""') -> str:
    lines = "".join(f"\tfield:{field}\n" for field in fields)
    return f"name: e{number}\nID: {number}\nformat:\n{_COMMON}{lines}\nprint fmt: {printed}\n"


def _parsed(*fields: str, system: str = "demo") -> EventFormat:
    (found,) = parse_formats(Path("t"), [(system, _event(*fields))]).values()
    return found


def _columns(field: str, *, system: str = "demo") -> list[Column]:
    """Return the columns of a field."""
    return [c for c in _parsed(field, system=system).columns if c.name != "common_type"]


@pytest.mark.parametrize(
    ("field", "column"),
    [
        (
            "pid_t pid;\toffset:8;\tsize:4;\tsigned:1;",
            Column("pid", INTEGER, 8, 4, signed=True),
        ),
        (
            "unsigned long function;\toffset:16;\tsize:8;\tsigned:0;",
            Column("function", INTEGER, 16, 8, signed=False),
        ),
        (
            "u16 x;\toffset:9;\tsize:2;\tsigned:0;",
            Column("x", INTEGER_UNALIGNED, 9, 2, signed=False),
        ),
        (
            "u64 x;\toffset:10;\tsize:8;\tsigned:0;",
            Column("x", INTEGER_UNALIGNED, 10, 8, signed=False),
        ),
        (
            "u64 x;\toffset:12;\tsize:8;\tsigned:0;",
            Column("x", INTEGER, 12, 8, signed=False),
        ),
        ("u8 x;\toffset:9;\tsize:1;\tsigned:0;", Column("x", INTEGER, 9, 1, signed=False)),
        (
            "char comm[16];\toffset:8;\tsize:16;\tsigned:0;",
            Column("comm", TEXT, 8, 16, signed=False, table="[16]:1"),
        ),
        (
            "u8 raw[6];\toffset:8;\tsize:6;\tsigned:0;",
            Column("raw", BYTES, 8, 6, signed=False, table="[6]:0"),
        ),
        (
            "u32 many[17];\toffset:8;\tsize:68;\tsigned:0;",
            Column("many", BYTES, 8, 68, signed=False, table="[68]:0"),
        ),
        (
            "struct a x;\toffset:8;\tsize:12;\tsigned:0;",
            Column("x", BYTES, 8, 12, signed=False, table="[12]:0"),
        ),
        (
            "__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;",
            Column("name", TEXT_DYNAMIC, 8, 4, signed=False, table="name:1"),
        ),
        (
            "__data_loc u8[] cmd;\toffset:8;\tsize:4;\tsigned:0;",
            Column("cmd", BYTES_DYNAMIC, 8, 4, signed=False, table="cmd:0"),
        ),
        (
            "__rel_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;",
            Column("name", TEXT_RELATIVE, 8, 4, signed=False, table="name:1"),
        ),
        (
            "char buf[];\toffset:8;\tsize:0;\tsigned:0;",
            Column("buf", TEXT_TAIL, 8, 0, signed=False, table="buf:1"),
        ),
    ],
)
def test_a_field_is_a_column(field: str, column: Column) -> None:
    assert _columns(field) == [column]


def test_the_last_array_of_an_ftrace_record_has_no_fixed_length() -> None:
    field = "unsigned long caller[8];\toffset:8;\tsize:64;\tsigned:0;"
    assert [column.name for column in _columns(field)] == [f"caller[{n}]" for n in range(8)]
    (tail,) = _columns(field, system="ftrace")
    assert (tail.name, tail.kind, tail.offset) == ("caller", BYTES_TAIL, 8)


def test_an_array_of_numbers_is_a_column_each() -> None:
    found = _columns("int x[3];\toffset:12;\tsize:12;\tsigned:1;")
    assert [(column.name, column.offset, column.dtype) for column in found] == [
        ("x[0]", 12, "i4"),
        ("x[1]", 16, "i4"),
        ("x[2]", 20, "i4"),
    ]
    assert _columns("struct {} x;\toffset:8;\tsize:0;\tsigned:0;") == []


def test_columns_of_one_name_differ() -> None:
    place = "\toffset:8;\tsize:4;\tsigned:0;"
    found = _parsed(f"int x;{place}", f"int x;{place}", f"int common_cpu;{place}")
    assert [c.name for c in found.columns] == ["common_type", "x", "x_", "common_cpu_"]


def test_the_shortest_record_holds_all_fields_but_the_tail() -> None:
    fixed = "int x;\toffset:8;\tsize:4;\tsigned:0;"
    assert _parsed(fixed, "char s[];\toffset:12;\tsize:0;\tsigned:0;").min_size == 12
    last = "u8 s[5];\toffset:12;\tsize:5;\tsigned:0;"
    assert _parsed(fixed, last, system="ftrace").min_size == 12
    assert _parsed(fixed, "char s[5];\toffset:12;\tsize:5;\tsigned:0;").min_size == 17


@pytest.mark.parametrize(
    ("fields", "noun"),
    [
        (["__data_loc char[] s;\toffset:8;\tsize:8;\tsigned:0;"], "location"),
        (["int x!;\toffset:8;\tsize:8;\tsigned:0;"], "declaration"),
        (["int x;\toffset:65535;\tsize:4;\tsigned:0;"], "size"),
        ([f"int x{n};\toffset:8;\tsize:4;\tsigned:0;" for n in range(512)], "512"),
    ],
)
def test_a_field_that_no_kernel_has_is_refused(fields: list[str], noun: str) -> None:
    with pytest.raises(TraceError, match=noun) as caught:
        parse_formats(Path("t"), [("demo", _event(*fields))])
    assert "demo:e7" in str(caught.value)


def test_an_event_may_be_described_twice() -> None:
    assert list(parse_formats(Path("t"), [("a", _event()), ("a", _event())])) == [7]


def test_the_number_of_an_event_is_in_one_place() -> None:
    events = list(parse_formats(Path("t"), [("a", WAKING.text()), ("b", _event())]).values())
    assert common_type(Path("t"), events) == 0
    moved = _event(number=8).replace("offset:0;", "offset:4;")
    (other,) = parse_formats(Path("t"), [("a", moved)]).values()
    assert common_type(Path("t"), [other]) == 4
    with pytest.raises(TraceError, match="common_type"):
        common_type(Path("t"), [*events, other])
    for place in ("offset:1;\tsize:2;", "offset:0;\tsize:4;"):
        odd = _event(number=9).replace("offset:0;\tsize:2;", place)
        with pytest.raises(TraceError, match="common_type"):
            common_type(Path("t"), parse_formats(Path("t"), [("a", odd)]).values())


def test_a_page_has_the_layout_that_the_kernel_says() -> None:
    assert parse_page_layout(Path("t"), _PAGE) == PageLayout(head=16, commit=8, size=4096)
    narrow = _PAGE.replace("size:8;\tsigned:1", "size:4;\tsigned:1").replace(
        "offset:16", "offset:12"
    )
    assert parse_page_layout(Path("t"), narrow) == PageLayout(head=12, commit=4, size=4092)
    for old, new in (("offset:16", "offset:24"), ("timestamp", "time"), ("commit", "x")):
        with pytest.raises(TraceError, match="headers"):
            parse_page_layout(Path("t"), _PAGE.replace(old, new))


def test_format_texts(tmp_path: Path) -> None:
    good = WAKING.text()
    cases = {
        "no name or no ID": good.replace("ID: 301", "ID: x"),
        "more than 16 bits": good.replace("ID: 301", "ID: 70000"),
        "not a field:": good.replace("offset:8;", "offset:x;"),
        "no fields": "name: a\nID: 1\nformat:\n",
    }
    for message, text in cases.items():
        with pytest.raises(TraceError, match=message):
            parse_formats(tmp_path, [("sched", text)])
    with pytest.raises(TraceError, match="both have the number 301"):
        parse_formats(tmp_path, [("a", good), ("b", SWITCH.text().replace("300", "301"))])
    with pytest.raises(TraceError, match="layout"):
        parse_page_layout(tmp_path, "field: u64 timestamp;\toffset:1;\tsize:8;\tsigned:0;")


def test_preempted_bit_comes_from_the_format() -> None:
    texts = {
        '"%s", REC->prev_state & (((0x0 | 0x1 | 0x2) + 1) << 1) ? "+" : ""': 8,
        '"%s", REC->prev_state & 1024 ? "+" : ""': 1024,
        '"%s", REC->prev_state & __f(3) ? "+" : ""': 0,
        '"%s"': 0,
    }
    for text, bit in texts.items():
        path = Path("x")
        source = SWITCH.text().split("print fmt:")[0] + f"print fmt: {text}\n"
        (made,) = parse_formats(path, [("sched", source)]).values()
        assert made.preempted_bit == bit
