# SPDX-License-Identifier: MIT
"""Strings of records as codes of categories."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.support.trace_writer import EVENTS, Event, Page, encode, event, trace_v7
from tracedat import TraceError, read
from tracedat._strings import FULL, StringTable, gather, intern, new_table, values

WAKING = EVENTS["sched_waking"]


def _codes(table: StringTable, number: int, *texts: bytes) -> list[int]:
    """Return the codes of some values, as compiled code finds them."""
    found = []
    for text in texts:
        raw = np.frombuffer(text + b"\0", np.uint8)
        *words, length = gather(raw, 0, len(text), False)
        low, high = map(np.uint64, words)
        found.append(int(intern(table, raw, 0, low, high, length, number)))
    return found


def test_each_new_value_has_the_next_code_of_its_table() -> None:
    table = new_table(2, 16, 100)
    assert _codes(table, 0, b"a", b"b", b"a", b"", b"b") == [0, 1, 0, 2, 1]
    assert _codes(table, 1, b"b", b"a") == [0, 1]
    assert values(table, 0, text=True) == ["a", "b", ""]
    assert values(table, 1, text=False) == [b"b", b"a"]


def test_values_that_two_tables_share_have_codes_in_each() -> None:
    texts = [b"%d" % number for number in range(200)]
    table = new_table(2, 400, 0)
    assert _codes(table, 0, *texts) == [*range(200)]
    assert _codes(table, 1, *reversed(texts)) == [*range(200)]
    assert values(table, 1, text=False) == texts[::-1]


def test_values_of_any_length_are_kept_apart() -> None:
    texts = [b"x" * length for length in (1, 7, 8, 9, 15, 16, 17, 18, 40)]
    texts += [b"x" * 16 + b"y", b"x" * 39 + b"y", b"y" + b"x" * 39]
    table = new_table(1, 16, 400)
    assert _codes(table, 0, *texts, *texts) == [*range(12), *range(12)]
    assert values(table, 0, text=False) == texts


@pytest.mark.parametrize(("entries", "pool", "most"), [(2, 100, 2), (16, 50, 2), (16, 60, 3)])
def test_a_full_table_grows_and_keeps_its_codes(entries: int, pool: int, most: int) -> None:
    texts = [bytes([65 + n]) * 20 for n in range(6)]
    table = new_table(1, entries, pool)
    codes = _codes(table, 0, *texts)
    assert codes == [*range(most), *[FULL] * (6 - most)]
    grown = new_table(1, 64, 400, table)
    assert _codes(grown, 0, *reversed(texts[:most])) == [*reversed(range(most))]
    assert _codes(grown, 0, *texts) == [*range(6)]
    assert values(grown, 0, text=False) == texts


def test_a_byte_that_is_no_text_is_shown() -> None:
    table = new_table(1, 4, 0)
    _codes(table, 0, b"\xffa")
    assert values(table, 0, text=True) == ["\\xffa"]


@pytest.mark.parametrize("text", ["", "a", "a text of more than sixteen bytes", "\u00e4" * 5])
def test_a_text_behind_its_record_is_found_by_its_place(text: str, tmp_path: Path) -> None:
    named = event("demo", "named", 7, "int x", "loc name")
    page = Page(1).event(1, encode(named, 1, {"name": "first"}))
    page.event(1, encode(named, 1, {"name": text})).event(1, encode(named, 1, {"name": "first"}))
    (tmp_path / "t.dat").write_bytes(trace_v7([named], [[page]]))
    found = read(tmp_path / "t.dat").frame("named")["name"].tolist()
    assert found == ["first", text, "first"]


@pytest.mark.parametrize(
    ("place", "outside"),
    [(12 | 4 << 16, False), (16 | 0 << 16, False), (12 | 5 << 16, True), (17, True)],
)
def test_a_text_outside_of_its_record_is_refused(place: int, outside: bool, tmp_path: Path) -> None:
    named: Event = event("demo", "named", 7, "loc name")
    data = struct.pack("<HBBiI4s", 7, 0, 0, 1, place, b"abcd")
    path = tmp_path / "t.dat"
    path.write_bytes(trace_v7([named], [[Page(1).event(1, data)]]))
    if outside:
        with pytest.raises(TraceError, match="outside its record"):
            read(path)
    else:
        assert read(path).frame("named")["name"].tolist() == ["abcd"[: place >> 16]]


def test_text_ends_at_its_nul(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    page = Page(7)
    for garbage in (
        b"io\0ABCDEFGHIJKLM",
        b"io\0\0\0\0\0\0\0\0\0\0\0\0\0x",
        b"\xff\xfe\0ABCDEFGHIJKLM",
    ):
        page.event(1, encode(WAKING, 3, {"comm": garbage}))
    path.write_bytes(trace_v7([WAKING], [[page]]))
    assert read(path).frame("sched_waking")["comm"].tolist() == ["io", "io", "\\xff\\xfe"]
