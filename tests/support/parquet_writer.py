# SPDX-License-Identifier: MIT
"""Parquet files that pyarrow would not write: footers and pages that lie, written by hand."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet as pq

__all__ = [
    "BYTE_ARRAY",
    "DATA",
    "DATA_2",
    "DICTIONARY",
    "FIXED",
    "INT64",
    "LIST",
    "Struct",
    "encoded",
    "lying",
    "page",
    "repeated",
    "varint",
]

INT64, DOUBLE, BYTE_ARRAY, FIXED = 2, 5, 6, 7
DATA, DICTIONARY, DATA_2 = 0, 2, 3
LIST: Final = 3
_CREATED: Final = "parquet-cpp-arrow version 26.0.1"

# The fields of a struct by their numbers: int is an i32, a tuple of one int an i64.
Struct = Mapping[int, Any]


def varint(number: int) -> bytes:
    """Return a number as the compact protocol of Thrift, and pages, have it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _value(value: Any) -> tuple[int, bytes]:
    """Return a value's type and bytes."""
    if isinstance(value, int):
        return 5, varint(value * 2 if value >= 0 else -value * 2 - 1)
    if isinstance(value, tuple):
        return 6, _value(value[0])[1]
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        return 8, varint(len(data)) + data
    if isinstance(value, list):
        parts = [_value(one) for one in value]
        return 9, bytes([0xF0 | (parts[0][0] if parts else 5)]) + varint(len(parts)) + b"".join(
            data for _, data in parts
        )
    return 12, encoded(value)


def encoded(fields: Struct) -> bytes:
    """Return a struct in Thrift's compact protocol."""
    out = b""
    for number, one in fields.items():
        kind, data = _value(one)
        # Each with its number, so that one may come twice.
        out += bytes([kind]) + varint(number * 2) + data
    return out + b"\0"


def page(kind: int, body: bytes, values: int, encoding: int = 0, unpacked: int = -1) -> bytes:
    """Return a page with its header; `unpacked` is the size that it claims, else the true one."""
    head: dict[int, Any] = {1: kind, 2: len(body) if unpacked < 0 else unpacked, 3: len(body)}
    own: dict[int, Any] = {1: values, 2: encoding, 3: 3, 4: 3}
    if kind == DICTIONARY:
        own = {1: values, 2: encoding}
    elif kind == DATA_2:
        own = {1: values, 2: 0, 3: values, 4: encoding, 5: 0, 6: 0}
    return encoded({**head, {DATA: 5, DICTIONARY: 7, DATA_2: 8}[kind]: own}) + body


def lying(
    pages: Sequence[bytes],
    *,
    kind: int = INT64,
    rows: int = 5,
    codec: int = 0,
    schema: Sequence[Struct] | None = None,
    column: Struct | None = None,
    footer: Struct | None = None,
    groups: int = 1,
) -> bytes:
    """Return a file of one column "cell", or of a schema whose first leaf has that name.

    Parameters
    ----------
    pages : sequence of bytes
        The pages of each row group; the first is the dictionary if there are several.
    kind, codec : int
        Physical type and compression.
    rows, groups : int
        Rows of each row group, and how many of these have the same pages.
    schema, column, footer : optional
        More elements of the schema, fields of the column's metadata and of the footer.
    """
    body = b"".join(pages)
    at, data = 4, 4 + (len(pages[0]) if len(pages) > 1 else 0)
    path = ["cell"]
    about: dict[int, Any] = {1: kind, 2: [0, 3, 8], 3: path, 4: codec, 5: (rows,)}
    about |= {6: (len(body),), 7: (len(body),), 9: (data,)}
    about |= {11: (at,)} if len(pages) > 1 else {}
    one = {2: (at,), 3: {**about, **(column or {})}}
    columns = list(schema) if schema else [{4: "schema", 5: 1}, {1: kind, 3: 0, 4: "cell"}]
    leaves = sum(1 in element for element in columns)
    group = {1: [one] * leaves, 2: (len(body),), 3: (rows,)}
    whole: dict[int, Any] = {1: 2, 2: columns, 3: (rows * groups,), 4: [group] * groups}
    return _closed(body, {**whole, **(footer or {})})


def repeated(table: pa.Table, times: int) -> bytes:
    """Return a file whose row groups all have the pages of a table of texts, doubles and int64."""
    stream = io.BytesIO()
    pq.write_table(table, stream)
    whole = pq.read_metadata(stream)
    kinds = {"BYTE_ARRAY": BYTE_ARRAY, "DOUBLE": DOUBLE, "INT64": INT64}
    schema: list[Struct] = [{4: "schema", 5: whole.num_columns}]
    columns = []
    for number in range(whole.num_columns):
        one, name = whole.row_group(0).column(number), whole.schema.column(number).name
        kind = kinds[one.physical_type]
        schema.append({1: kind, 3: 1, 4: name, **({6: 0} if kind == BYTE_ARRAY else {})})
        about = {1: kind, 2: [0, 3, 8], 3: [name], 4: 1, 5: (one.num_values,)}
        about |= {6: (one.total_uncompressed_size,), 7: (one.total_compressed_size,)}
        about |= {9: (one.data_page_offset,), 11: (one.dictionary_page_offset,)}
        columns.append({2: (4,), 3: about})
    group = {1: columns, 2: (100,), 3: (len(table),)}
    body = stream.getvalue()[4 : -8 - whole.serialized_size]
    return _closed(body, {1: 2, 2: schema, 3: (len(table) * times,), 4: [group] * times})


def _closed(body: bytes, footer: Struct) -> bytes:
    foot = encoded({**footer, 6: _CREATED})
    return b"PAR1" + body + foot + struct.pack("<I", len(foot)) + b"PAR1"
