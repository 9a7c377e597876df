# SPDX-License-Identifier: MIT
"""Read Parquet files that anybody may have written, bounded before memory is allocated.

A few bytes of Parquet can stand for any number of rows, and its footer may differ from its pages.
So the header of each page is read first: iolab writes flat tables, only with encodings whose size
the headers show.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from iolab_base.errors import UserError
from iolab_base.reading import RefusedFileError, fits_memory, read_regular

# Limit of a file; the tables of 100,000 cells take a tenth of it.
FILE_BYTES: Final = 128 << 20
# Limit of a table in memory; 100,000 cells with 60 latencies each take 260 MiB.
_MOST_BYTES: Final = 320 << 20
# The reference data have 23 KiB and 49 columns.
_MOST_FOOTER: Final = 256 << 10
_MOST_COLUMNS: Final = 256
# pyarrow begins another page, and gives up a dictionary, at 1 MiB.
_MOST_PAGE: Final = 8 << 20
_MAGIC: Final = b"PAR1"
# pyarrow checks the columns; it and pandas take much else for granted.
_UNREADABLE: Final = (
    *(OSError, pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, MemoryError),
    *(OverflowError, NotImplementedError),
)

# Bytes of a value in memory, by physical type. A text takes the index of its dictionary.
_TEXT: Final = "BYTE_ARRAY"
_WIDTHS: Final = {"BOOLEAN": 8, "INT32": 8, "INT64": 8, "FLOAT": 8, "DOUBLE": 8, _TEXT: 4}
# Bytes of a text that is not in a dictionary yet: pyarrow makes one.
_UNIQUE_WIDTH: Final = 48

# parquet.thrift of the format: PageType, Encoding, and the fields of PageHeader.
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_HEADERS: Final = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_2: (8, 4)}
_PLAIN: Final = 0
# PLAIN_DICTIONARY, RLE (of booleans), RLE_DICTIONARY
_ENCODINGS: Final = {_PLAIN, 2, 3, 8}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Report in a sentence that a file is not one that iolab writes."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; is this a folder of results?") from error
    except RefusedFileError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except PermissionError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except _UNREADABLE as error:
        raise UserError(f"{path}: not a whole Parquet file of iolab's") from error


def read_table(path: Path, *, below: Path | None = None) -> pa.Table:
    """Return the table in a Parquet file that iolab, or anybody, wrote.

    Columns are booleans, numbers and texts (as dictionaries, see `plain_texts`), without metadata,
    which may lie. `below` is as for `iolab_base.reading.open_regular`. Raises UserError if the file
    is missing, not regular, not a table of iolab's, or larger than any of them.
    """
    with _reading(path):
        # By its bytes: pyarrow rejects names that are not UTF-8.
        data = read_regular(path, FILE_BYTES, below=below)
        footer = _footer(data)
        _check_pages(data, footer)
        texts = [c.name for c in footer.schema if c.physical_type == _TEXT]
        source = pq.ParquetFile(
            pa.BufferReader(data),
            metadata=footer,
            read_dictionary=texts,
            page_checksum_verification=True,
        )
        table = source.read().replace_schema_metadata(None)
        # Texts are UTF-8, indices are within their dictionary.
        table.validate(full=True)
        return table


def read_metadata(path: Path, *, below: Path | None = None) -> dict[bytes, bytes]:
    """Return a Parquet file's metadata; arguments and errors are those of `read_table`."""
    with _reading(path):
        return dict(_footer(read_regular(path, FILE_BYTES, below=below)).metadata or {})


def plain_texts(table: pa.Table, path: Path) -> pa.Table:
    """Return a table of `read_table`, from `path`, with its texts written out.

    Raises UserError if they are larger than any table of iolab's.
    """
    texts = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    needed = table.nbytes + sum(_text_bytes(table[name]) for name in texts)
    if needed > _MOST_BYTES or not fits_memory(needed):
        raise UserError(
            f"{path}: its texts take {needed >> 20} MiB: more than any table of iolab's"
        )
    for name in texts:
        chunks = [chunk.dictionary_decode() for chunk in table[name].chunks]
        whole = pa.chunked_array(chunks, table.schema.field(name).type.value_type)
        table = table.set_column(table.schema.get_field_index(name), name, whole)
    return table


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes of a dictionary's texts in all rows, with their offsets."""
    lengths = (pc.take(pc.binary_length(one.dictionary), one.indices) for one in column.chunks)
    return 8 * len(column) + sum(pc.sum(one).as_py() or 0 for one in lengths)


def as_frame(table: pa.Table, path: Path) -> pd.DataFrame:
    """Return a table of `read_table`, from `path`, for pandas; UserError if it is too large."""
    with _reading(path):
        frame: pd.DataFrame = plain_texts(table, path).to_pandas()
        return frame


def _footer(data: bytes) -> pq.FileMetaData:
    """Return the metadata at the end of a file; ValueError unless they describe a flat table."""
    if data[-4:] != _MAGIC or int.from_bytes(data[-8:-4], "little") > _MOST_FOOTER:
        raise ValueError("a footer of an impossible size")
    footer = pq.read_metadata(pa.BufferReader(data))
    # Another program's pages may reach beyond the size in the footer (PARQUET-816).
    if not (footer.created_by or "").startswith("parquet-cpp-arrow"):
        raise ValueError("another program wrote it")
    if footer.num_columns > _MOST_COLUMNS:
        raise ValueError("too many columns")
    columns = list(footer.schema)
    # No lists, no structs, nothing twice: a row has one value of each column, or none.
    names = {column.name for column in columns if column.name == column.path}
    levels = {(c.max_repetition_level, c.max_definition_level <= 1) for c in columns}
    if len(names) != footer.num_columns or not levels <= {(0, True)}:
        raise ValueError("its columns are not flat")
    if not all(map(_is_plain, footer.schema.to_arrow_schema().types)):
        raise ValueError("a column holds neither numbers nor texts")
    return footer


def _is_plain(kind: pa.DataType) -> bool:
    known = pa.types
    if known.is_dictionary(kind):
        return kind.value_type in (pa.string(), pa.large_string())
    checks = (known.is_boolean, known.is_integer, known.is_floating, known.is_null)
    return any(check(kind) for check in (*checks, known.is_string, known.is_large_string))


def _check_pages(data: bytes, footer: pq.FileMetaData) -> None:
    """Check the size of a file's pages in memory; ValueError if it is too large or unknown."""
    needed = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        # Without rows, pyarrow reads no pages, and writes only a dictionary.
        if not group.num_rows:
            continue
        for place in range(footer.num_columns):
            column = group.column(place)
            rows = 0
            for kind, encoding, values, size in _pages(data, column):
                if kind == _DICTIONARY:
                    # An empty text takes the four bytes of its length.
                    if values * 4 > size:
                        raise ValueError("a dictionary with more values than bytes")
                    needed += 4 * size
                    continue
                rows += values
                plain_text = encoding == _PLAIN and column.physical_type == _TEXT
                width = _UNIQUE_WIDTH if plain_text else _WIDTHS[column.physical_type]
                needed += values * width + size * plain_text
                if needed > _MOST_BYTES:
                    raise ValueError("more than any table of iolab's")
            if rows != group.num_rows:
                raise ValueError("pages with another number of rows")
    if not fits_memory(needed):
        raise RefusedFileError(0, f"takes {needed >> 20} MiB, more than free memory")


def _pages(data: bytes, column: pq.ColumnChunkMetaData) -> Iterator[tuple[int, int, int, int]]:
    """Yield kind, encoding, values and unpacked size of each page of a column."""
    at = min(column.dictionary_page_offset or column.data_page_offset, column.data_page_offset)
    end = at + column.total_compressed_size
    if column.file_path or not len(_MAGIC) <= at <= end <= len(data):
        raise ValueError("pages outside the file")
    while at < end:
        header, at = _struct(data, at)
        kind, unpacked, packed = header[1], header[2], header[3]
        field, encoded = _HEADERS[kind]
        values, encoding = header[field][1], header[field][encoded]
        if encoding not in _ENCODINGS or not packed >= 0 or not 0 <= unpacked <= _MOST_PAGE:
            raise ValueError("a page that iolab does not write")
        if values < 0:
            raise ValueError("a page with a negative number of values")
        yield kind, encoding, values, unpacked
        at += packed
    if at != end:
        raise ValueError("a page beyond its column")


# The compact protocol of Thrift: types of fields.
_TRUE, _FALSE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 7, 8, 12
_INTEGERS: Final = {4, 5, 6}
# The header of a page, of its data, and their statistics.
_DEPTH: Final = 3


def _struct(data: bytes, at: int, depth: int = _DEPTH) -> tuple[dict[int, Any], int]:
    """Return the integers and structs of a Thrift struct by their fields, and where it ends.

    Raises ValueError or LookupError if it is damaged or unlike a page header; also if a field
    occurs twice, because another reader may use the other one.
    """
    found: dict[int, Any] = {}
    field = 0
    while (head := data[at]) != 0:
        kind, at = head & 15, at + 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _integer(data, at)
        if field in found or not depth:
            raise ValueError("a damaged header of a page")
        if kind in _INTEGERS:
            found[field], at = _integer(data, at)
        elif kind == _STRUCT:
            found[field], at = _struct(data, at, depth - 1)
        elif kind == _BINARY:
            size, at = _varint(data, at)
            found[field], at = None, at + size
        elif kind in (_TRUE, _FALSE):
            found[field] = None
        else:
            raise ValueError("a page without a header")
    return found, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
