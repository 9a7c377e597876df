# SPDX-License-Identifier: MIT
"""Parquet files that anybody may have written; `tests/support/hostile.py` has more of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iolab.paths import REFERENCE
from iolab_base.errors import UserError
from iolab_base.parquet import as_frame, read_metadata, read_table
from tests.support.parquet_writer import DATA, DICTIONARY, encoded, lying, page, repeated, varint

_FIVE = (5).to_bytes(8, "little")
_NEGATIVE = encoded({1: 0, 2: -56, 3: 56, 5: {1: 7, 2: 0, 3: 3, 4: 3}})
_FIVES = b"\x01" + varint(7 << 1) + b"\0"


def _read(data: bytes, folder: Path) -> pa.Table:
    path = folder / "table.parquet"
    path.write_bytes(data)
    return read_table(path, below=folder)


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_pandas_wrote_is_read(tmp_path: Path, compression: str, version: str) -> None:
    path, rows = tmp_path / "a.parquet", 50_000
    texts = pd.Series([f"text {n % 40_000}" for n in range(rows)]).mask(lambda s: s.index % 7 == 0)
    numbers = pd.Series(np.arange(rows), dtype="Int64").mask(lambda s: s.index % 5 == 0)
    table = pd.DataFrame({"text": texts, "number": numbers, "real": 1 / np.arange(1, rows + 1)})
    table["flag"] = table.index % 3 == 0
    written = pa.Table.from_pandas(table, preserve_index=False)
    options = {"row_group_size": 9_000, "data_page_version": version}
    pq.write_table(written, path, compression=compression, **options)
    found = as_frame(read_table(path), path)
    pd.testing.assert_frame_equal(found.astype({"number": "Int64"}), table)


def test_the_reference_data_are_read_as_pandas_reads_them() -> None:
    for path in sorted(REFERENCE.glob("*/*.parquet")):
        frame, expected = as_frame(read_table(path), path), pd.read_parquet(path)
        pd.testing.assert_frame_equal(frame.astype(expected.dtypes), expected)


def test_pages_by_hand_are_read(tmp_path: Path) -> None:
    pages = [page(DICTIONARY, _FIVE, 1), page(DATA, _FIVES, 7, 8)]
    table = _read(lying(pages, rows=7, groups=3), tmp_path)
    assert table["cell"].to_pylist() == [5] * 21
    row = pa.table({"cell": ["c"], "bin_ns": [1.0], "count": [2]})
    assert _read(repeated(row, 3), tmp_path).to_pylist() == row.to_pylist() * 3


@pytest.mark.parametrize(
    "pages",
    {
        "fewer rows": [page(DICTIONARY, _FIVE, 1), page(DATA, _FIVES, 6, 8)],
        "more rows": [page(DICTIONARY, _FIVE, 1), page(DATA, _FIVES, 8, 8)],
        "a larger dictionary": [page(DICTIONARY, _FIVE, 3), page(DATA, _FIVES, 7, 8)],
        "another encoding": [page(DICTIONARY, _FIVE, 1), page(DATA, _FIVES, 7, 5)],
        "a page of 9 MiB": [page(DATA, bytes(9 << 20), 7)],
        "a page of a negative size": [_NEGATIVE + bytes(56)],
        "an index page": [encoded({1: 1, 2: 0, 3: 0})],
        "half a header": [page(DATA, bytes(56), 7)[:5]],
        "a list in the header": [
            encoded({1: 0, 2: 56, 3: 56, 5: {1: 7, 2: 0, 9: [1]}}) + bytes(56)
        ],
        "a deep header": [encoded({1: 0, 2: 0, 3: 0, 9: {1: {1: {1: {1: {}}}}}})],
    }.items(),
    ids=lambda case: case[0],
)
def test_pages_that_lie_are_refused(pages: tuple[str, list[bytes]], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"table\.parquet"):
        _read(lying(pages[1], rows=7), tmp_path)


@pytest.mark.parametrize(
    "column",
    [
        [[1]],
        [{"a": 1}],
        [b"bytes"],
        pd.to_datetime(["2020-01-01"]),
        pa.array([1], pa.decimal128(5)),
        pa.array(["x"], pa.large_string()).cast(pa.large_binary()),
    ],
    ids=["list", "struct", "bytes", "time", "decimal", "large bytes"],
)
def test_other_columns_are_refused(column: object, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": column}), path)
    with pytest.raises(UserError, match="not a whole Parquet file of iolab's"):
        read_table(path)


def test_texts_are_counted_before_they_are_written_out(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500, "int32")), ["x" * (1 << 20)])
    pq.write_table(pa.table({"x": long}), path)
    table = read_table(path)
    assert table.nbytes < 2 << 20
    with pytest.raises(UserError, match=r"its texts take 50[01] MiB"):
        as_frame(table, path)


def test_a_file_says_what_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    about = {b"iolab": json.dumps({"a": 1}).encode()}
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata(about), path)
    assert read_metadata(path)[b"iolab"] == about[b"iolab"]
    assert read_table(path).schema.metadata is None
    with pytest.raises(UserError, match="no such file"):
        read_metadata(tmp_path / "b.parquet")
