# SPDX-License-Identifier: MIT
"""Fields of records as columns: each width, sign and place."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.trace_writer import Event, Page, encode, trace_v7
from tracedat import TraceError, read

# Type, name, array, offset and size: wide ones at offsets that no compiler chooses, too.
_LAYOUT = [
    ("u8", "a", "", 8, 1),
    ("short", "b", "", 10, 2),
    ("int", "c", "", 12, 4),
    ("long", "d", "", 16, 8),
    ("u64", "e", "", 28, 8),
    ("short", "f", "", 37, 2),
    ("int", "g", "", 39, 4),
    ("u64", "h", "", 43, 8),
    ("short", "i", "[3]", 52, 6),
]
_ODD = Event("demo", "odd", 7, tuple(field[:3] for field in _LAYOUT), '""', _LAYOUT, 60)


def _file(path: Path, *records: Mapping[str, int | bytes]) -> Path:
    page = Page(100)
    for number, record in enumerate(records):
        page.event(1, encode(_ODD, -number, {"i": bytes(6), **record}))
    path.write_bytes(trace_v7([_ODD], [[], [], [page]]))
    return path


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        ("a", "uint8", [255, 0]),
        ("b", "int16", [-2, 32767]),
        ("c", "int32", [-3, 2147483647]),
        ("d", "int64", [-4, (1 << 63) - 1]),
        ("e", "uint64", [(1 << 64) - 5, 1 << 32]),
        ("f", "int16", [-6, 258]),
        ("g", "int32", [-7, 0x01020304]),
        ("h", "uint64", [(1 << 64) - 8, 0x0102030405060708]),
    ],
)
def test_a_number_of_any_width_and_place_is_exact(
    column: str, kind: str, values: list[int], tmp_path: Path
) -> None:
    frame = read(_file(tmp_path / "t.dat", *({column: one} for one in values))).frame("odd")
    assert frame[column].tolist() == values
    assert frame[column].dtype == kind
    # What lies beside it has none of it.
    others = [name for _, name, array, _, _ in _LAYOUT if name != column and not array]
    assert frame[others].to_numpy().sum() == 0


def test_an_array_of_numbers_is_a_column_each(tmp_path: Path) -> None:
    data = struct.pack("<3h", 1, -2, 3)
    frame = read(_file(tmp_path / "t.dat", {"i": data}, {"i": bytes(6)})).frame("odd")
    found = [frame[f"i[{place}]"].tolist() for place in range(3)]
    assert found == [[1, 0], [-2, 0], [3, 0]]


def test_the_time_and_the_cpu_are_columns(tmp_path: Path) -> None:
    frame = read(_file(tmp_path / "t.dat", {}, {}, {})).frame("odd")
    assert frame["timestamp_ns"].tolist() == [101, 102, 103]
    assert frame["common_cpu"].tolist() == [2, 2, 2]
    assert frame["common_pid"].tolist() == [0, -1, -2]


def test_a_record_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    page = Page(100).event(1, encode(_ODD, 1, {"i": bytes(6)})[:56])
    (tmp_path / "t.dat").write_bytes(trace_v7([_ODD], [[page]]))
    with pytest.raises(TraceError, match="shorter"):
        read(tmp_path / "t.dat")
