# SPDX-License-Identifier: MIT
"""Small trace.dat files that unpack to, or claim, far more than a trace holds."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import zstandard

from tests.support.trace_writer import MAGIC, _formats, _headers, _option, event

_PAGE: Final = 4096
_MIB: Final = 1 << 20
_HEADERS, _FORMATS, _KALLSYMS, _CMDLINES = 16, 18, 19, 21
_COUNTERS, _BUFFER, _CLOCK, _OFFSET = 2, 3, 4, 7
_TINY: Final = event("demo", "tiny", 7)
_COMMON: Final = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"

# What a chunk or section claims to hold, and its compressed bytes.
_Packed = tuple[int, bytes]
_Pack = Callable[..., _Packed]


def _zstd(piece: bytes, times: int = 1) -> _Packed:
    """Compress a piece that is repeated so often."""
    size = len(piece) * times
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=size)
    return size, b"".join([*(compressor.compress(piece) for _ in range(times)), compressor.flush()])


def _zlib(piece: bytes, times: int = 1) -> _Packed:
    compressor = zlib.compressobj(1)
    data = b"".join([*(compressor.compress(piece) for _ in range(times)), compressor.flush()])
    return len(piece) * times, data


def _packed(one: _Packed) -> bytes:
    return struct.pack("<II", len(one[1]), one[0]) + one[1]


def _section(number: int, one: _Packed) -> bytes:
    body = _packed(one)
    return struct.pack("<HHIQ", number, 1, 0, len(body)) + body


def _v7(
    chunks: Sequence[_Packed] = (),
    sections: Mapping[int, _Packed] | None = None,
    options: bytes = b"",
    *,
    more_options: Iterable[bytes] = (),
    pack: _Pack = _zstd,
    page: int = _PAGE,
    count: int | None = None,
    cpus: int = 1,
    buffers: int = 1,
) -> bytes:
    """Return a file whose CPUs all have the same chunks, of which it claims `count`."""
    known = {
        _HEADERS: pack(_headers(page)),
        _FORMATS: pack(_formats([_TINY])),
        _KALLSYMS: pack(bytes(4)),
        _CMDLINES: pack(bytes(8)),
    }
    file = bytearray(MAGIC + b"7\0" + struct.pack("<BBI", 0, 8, page))
    file += pack.__name__[1:].encode() + b"\0001\0"
    first = len(file)
    file += bytes(8)
    for number, one in {**known, **(sections or {})}.items():
        options += _option(number, struct.pack("<Q", len(file)))
        file += _section(number, one)
    data = b"".join(map(_packed, chunks))
    start = len(file)
    file += struct.pack("<HHIQ", 3, 1, 0, len(data) + 4)
    file += struct.pack("<I", len(chunks) if count is None else count) + data
    table = b"".join(struct.pack("<IQQ", cpu, start + 16, len(data)) for cpu in range(cpus))
    for number in range(buffers):
        named = struct.pack("<Q", start) + str(number).encode() + b"\0mono\0"
        options += _option(_BUFFER, named + struct.pack("<II", page, cpus) + table)
    following = 0
    for listed in (options, *more_options):
        place = len(file)
        file += _section(0, pack(listed + _option(0, struct.pack("<Q", following))))
        following = place
    struct.pack_into("<Q", file, first, following)
    return bytes(file)


def _v6(path: Path, cpus: int, pages: int, kallsyms: int = 0) -> None:
    """Write a file whose CPUs all have the same pages; these and the symbols are holes in it."""
    head = MAGIC + b"6\0" + struct.pack("<BBI", 0, 8, _PAGE) + _headers(_PAGE)
    head += struct.pack("<I", 0) + _formats([_TINY])
    with path.open("wb") as stream:
        stream.write(head + struct.pack("<I", kallsyms))
        stream.seek(kallsyms, 1)
        stream.write(struct.pack("<IQI", 0, 0, cpus) + b"options  \0\0\0flyrecord\0")
        start = -(-(stream.tell() + 16 * cpus) // _PAGE) * _PAGE
        stream.write(struct.pack("<QQ", start, pages * _PAGE) * cpus)
        stream.truncate(start + pages * _PAGE)


def _systems_v6(path: Path) -> None:
    """Write a file of version 6 with more systems of events than it has room for."""
    head = MAGIC + b"6\0" + struct.pack("<BBI", 0, 8, _PAGE) + _headers(_PAGE) + bytes(4)
    with path.open("wb") as stream:
        stream.write(head + struct.pack("<I", 0xFFFF))
        stream.truncate(7 << 29)


def _hole_in_chunk(path: Path) -> None:
    """Write a file with one page in a chunk of 3.5 GB, a hole in the file."""
    data = _v7([(_PAGE, b"")])
    at = data.index(struct.pack("<III", 1, 0, _PAGE)) + 4
    # What follows moves behind the hole: only the place of the options has to be right.
    path.write_bytes(data[:at] + struct.pack("<I", 7 << 29) + data[at + 4 :])
    with path.open("r+b") as stream:
        stream.truncate(1 << 32)


def _page(records: bytes = b"", *, time: int = 1000, size: int = _PAGE) -> bytes:
    return (struct.pack("<QQ", time, len(records)) + records).ljust(size, b"\0")


def full_pages(plain: int, *, steps: int = 1) -> bytes:
    """Return a trace with `plain` bytes of pages that are full of the shortest events.

    They are of as many times, each 1000 ns behind the one before.
    """
    record = struct.pack("<IHBBi", 2, _TINY.number, 0, 0, 1)
    chunks = []
    for step in range(steps):
        page = _page(record * (4080 // len(record)), time=1000 * (step + 1))
        chunks += [_zstd(page, 8 * _MIB // _PAGE)] * (plain // steps // (8 * _MIB))
    return _v7(chunks)


def _format(number: int, fields: Iterable[str] = ()) -> bytes:
    lines = "".join(f"\tfield:{field}\n" for field in fields)
    return f'name: e{number}\nID: {number}\nformat:\n{_COMMON}{lines}\nprint fmt: ""\n'.encode()


def _formats_of(*texts: bytes) -> _Packed:
    data = struct.pack("<I", 1) + b"demo\0" + struct.pack("<I", len(texts))
    return _zstd(data + b"".join(struct.pack("<Q", len(text)) + text for text in texts))


def _of_format(*fields: str, chunks: Sequence[_Packed] = (), page: int = _PAGE) -> bytes:
    return _v7(chunks, {_FORMATS: _formats_of(_format(7, fields))}, page=page)


def _same_place() -> bytes:
    """Return a trace whose event has 400 fields in one place."""
    record = struct.pack("<IHBBi", 2, 7, 0, 0, 1)
    chunk = _zstd(_page(record * (4080 // len(record))), 1024)
    fields = [f"int x{n};\toffset:4;\tsize:4;\tsigned:1;" for n in range(400)]
    return _of_format(*fields, chunks=[chunk] * 16)


def _same_text() -> bytes:
    """Return a trace whose records have a long text each, and 400 fields that are all of it."""
    chunks = []
    for number in range(400):
        text = b"%08d" % number + b"x" * 60_000
        data = struct.pack("<HBBI", 7, 0, 0, 8 | len(text) << 16) + text
        record = struct.pack("<II", 0, len(data) + 4) + data
        chunks.append(_zstd(_page(record, time=1000 + number, size=1 << 16)))
    fields = [f"__data_loc char[] s{n};\toffset:4;\tsize:4;\tsigned:0;" for n in range(400)]
    return _of_format(*fields, chunks=chunks, page=1 << 16)


def _many_fields() -> bytes:
    fields = [f"int x{n}[16];\toffset:8;\tsize:64;\tsigned:1;" for n in range(31)]
    texts = [_format(number, fields) for number in range(4000)]
    return _v7(sections={_FORMATS: _formats_of(*texts)})


_LINE: Final = b"%016x t name\n"
_HALF_A_MIB: Final = b"".join(_LINE % n for n in range(1 << 15))

# By name. None of them is honest: reading must end in an error.
BOMBS: Final[dict[str, Callable[[], bytes] | Callable[[Path], None]]] = {
    "chunks of 512 MiB": lambda: _v7([_zstd(_page(), 1 << 17)] * 40),
    "chunks of 16 MiB": lambda: _v7([_zstd(_page(), 4096)] * 1280 * 4),
    "full pages": lambda: full_pages(64 << 30),
    "one chunk for all CPUs": lambda: _v7([_zstd(_page(), 4096)], cpus=32768),
    "more chunks than bytes": lambda: _v7([_zstd(_page())], count=0xFFFFFFFF),
    "chunk of 4 GiB": lambda: _v7([(0xFFFFF000, _zstd(_page())[1])]),
    "zlib": lambda: _v7([_zlib(_page(), 1 << 13)] * 1000, pack=_zlib),
    "zlib symbols": lambda: _v7(sections={_KALLSYMS: _zlib(bytes(_MIB), 128)}, pack=_zlib),
    "symbols of 4 GiB": lambda: _v7(sections={_KALLSYMS: (0xFFFFFFFF, b"")}),
    "symbols": lambda: _v7(sections={_KALLSYMS: _zstd(_HALF_A_MIB, 256)}),
    "formats of 64 MiB": lambda: _v7(sections={_FORMATS: _zstd(bytes(_MIB), 64)}),
    "many formats": lambda: _v7(
        sections={_FORMATS: _formats_of(*(_format(n % 65536) for n in range(100_000)))}
    ),
    "empty formats": lambda: _v7(
        sections={_FORMATS: _zstd(struct.pack("<II", 1, 0x100) + bytes(8 * _MIB - 8))}
    ),
    "format of 8 MiB": lambda: _of_format(f"{'x' * (8 * _MIB)};\toffset:8;\tsize:4;\tsigned:0;"),
    "long declaration": lambda: _of_format(f"{'x' * 60_000}!;\toffset:8;\tsize:4;\tsigned:0;"),
    "many fields": _many_fields,
    "fields in one place": _same_place,
    "texts in one place": _same_text,
    "command lines": lambda: _v7(
        sections={_CMDLINES: _zstd(struct.pack("<Q", 16 << 20) + bytes(_MIB - 8), 16)}
    ),
    "options": lambda: _v7(options=_option(99, bytes(8 * _MIB))),
    "sections of options": lambda: _v7(more_options=[_option(99, bytes(2 * _MIB))] * 2000),
    "brackets in a clock": lambda: _v7(
        [(0xFFFFF000, b"")], options=_option(_CLOCK, b"[" * (2 * _MIB))
    ),
    "buffers": lambda: _v7(buffers=4000),
    "CPUs of buffers": lambda: _v7(cpus=8000, buffers=20),
    "offset": lambda: _v7(options=_option(_OFFSET, b"0x" + b"f" * 1000)),
    "holes for CPUs": lambda path: _v6(path, 32768, 1 << 18),
    "hole for symbols": lambda path: _v6(path, 1, 1, 7 << 29),
    "hole for systems": _systems_v6,
    "hole in a chunk": _hole_in_chunk,
}


def make_bomb(name: str, path: Path) -> None:
    """Write a bomb."""
    make = BOMBS[name]
    if make.__code__.co_argcount:
        make(path)  # type: ignore[call-arg]
    else:
        path.write_bytes(make())  # type: ignore[call-arg,arg-type]
