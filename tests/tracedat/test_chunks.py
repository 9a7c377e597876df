# SPDX-License-Identifier: MIT
"""The pages of each CPU in chunks: where they are, which hold a time, which one is damaged."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.trace_writer import EVENTS, Page, encode, trace_v7
from tracedat import TooLargeError, TraceError, read
from tracedat._chunks import Chunk, Index, PageSource, chunks_of, groups_of, read_chunks, sources_of
from tracedat._container import read_container
from tracedat._file import TraceFile
from tracedat._formats import parse_page_layout
from tracedat._memory import MemoryRoom

WORK = EVENTS["workqueue_queue_work"]
# The first bytes of a zstd frame (RFC 8878).
MAGIC = struct.pack("<I", 0xFD2FB528)


def chunked() -> bytes:
    """Return a file with four chunks of two pages, and with a kernel function."""
    values: dict[str, int | str | bytes] = {field: 1 for field, _, _ in WORK.fields}
    values["workqueue"] = "events"
    data = encode(WORK, 7, values)
    pages = [Page(1000 * i).event(5, data) for i in range(8)]
    return trace_v7([WORK], [pages], compression="zstd", kallsyms=b"0000000000000f00 t here\n" * 2)


def frame_places(data: bytes) -> list[int]:
    return [at for at in range(len(data)) if data.startswith(MAGIC, at)]


def test_the_damaged_chunk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = chunked()
    at = frame_places(data)[-2]
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    with pytest.raises(TraceError, match=f"offset {at:#x}: a chunk of CPU 0 is damaged"):
        read(path)


MIB = 1 << 20


def _source(path: Path, data: bytes, *, name: str | None = None) -> tuple[TraceFile, PageSource]:
    path.write_bytes(data)
    file = TraceFile(path)
    container = read_container(file)
    layout = parse_page_layout(path, container.header_page)
    (source, *_) = sources_of(container, layout, name)
    return file, source


def _numbers(compression: str, **more: int) -> bytes:
    """Return a file with five pages of 1 KiB on one CPU, two in a chunk."""
    pages = [[Page(n, size=1024) for n in range(5)]]
    return trace_v7([WORK], pages, compression=compression, page_size=1024, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", ["zstd", "zlib"])
def test_chunks_follow_each_other(compression: str, tmp_path: Path) -> None:
    file, source = _source(tmp_path / "t.dat", _numbers(compression))
    with file:
        chunks = list(chunks_of(file, source, MemoryRoom(file.path)))
        assert [chunk.plain for chunk in chunks] == [2048, 2048, 1024]
        # A chunk begins behind its two sizes.
        starts = [chunk.offset for chunk in chunks[1:]]
        assert starts == [chunk.offset + chunk.packed + 8 for chunk in chunks[:-1]]
        pages = b"".join(map(bytes, read_chunks(file, compression, source, chunks)))
    assert [pages[at] for at in range(0, 5120, 1024)] == [0, 1, 2, 3, 4]
    assert str(source) == "CPU 0"


def test_pages_without_compression_are_one_run(tmp_path: Path) -> None:
    file, source = _source(tmp_path / "t.dat", _numbers("none"))
    with file:
        (chunk,) = chunks_of(file, source, MemoryRoom(file.path))
    assert chunk == Chunk(source.data.offset, 5120, 5120)


@pytest.mark.parametrize(
    ("packed", "plain", "kind", "noun"),
    [
        (None, 2049, TraceError, "whole pages"),
        (None, 0, TraceError, "whole pages"),
        (None, 32 * MIB, TooLargeError, "claims"),
        (1 << 30, 2048, TraceError, "beyond"),
        (0, 2048, TraceError, "chunks"),
    ],
)
def test_a_chunk_that_cannot_be_is_named(
    packed: int | None, plain: int, kind: type[TraceError], noun: str, tmp_path: Path
) -> None:
    data = bytearray(_numbers("zstd"))
    file, source = _source(tmp_path / "t.dat", bytes(data))
    file.close()
    # The last of three: its sizes stand before its frame.
    at = frame_places(bytes(data))[-1] - 8
    old, _ = struct.unpack_from("<II", data, at)
    struct.pack_into("<II", data, at, old if packed is None else packed, plain)
    file, source = _source(tmp_path / "t.dat", bytes(data))
    with file, pytest.raises(kind, match=noun):
        list(chunks_of(file, source, MemoryRoom(file.path)))


@pytest.mark.parametrize("count", [2, 0])
def test_chunks_that_do_not_fill_their_cpu_are_an_error(count: int, tmp_path: Path) -> None:
    data = bytearray(_numbers("zstd"))
    file, source = _source(tmp_path / "t.dat", bytes(data))
    file.close()
    struct.pack_into("<I", data, source.data.offset, count)
    (tmp_path / "t.dat").write_bytes(data)
    with pytest.raises(TraceError, match=f"{count} chunks"):
        read(tmp_path / "t.dat")


@pytest.mark.parametrize("size", [512, 1028, 2 * MIB])
def test_pages_of_an_impossible_size_are_refused(size: int, tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_bytes(trace_v7([WORK], [[]], page_size=size))
    with pytest.raises(TraceError, match=str(size)):
        read(path)


def test_a_buffer_is_chosen_by_its_name(tmp_path: Path) -> None:
    data = trace_v7([WORK], {"": [[Page(1)]], "b": [[], [Page(2)]]})
    file, source = _source(tmp_path / "t.dat", data, name="b")
    file.close()
    assert (str(source), source.number) == ("CPU 1 of buffer 'b'", 1)


def test_chunks_are_grouped_by_their_size() -> None:
    chunks = [Chunk(n, 1, size) for n, size in enumerate((3, 4, 9, 1, 1))]
    groups = [[chunk.plain for chunk in group] for group in groups_of(chunks, 5)]
    assert groups == [[3, 4], [9], [1, 1]]
    assert list(groups_of([], 5)) == []


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """Two CPUs with a page of a MiB at each of some times: each is a step."""
    record = encode(WORK, 7, {"workqueue": ""})
    pages = [
        [Page(time, size=MIB).event(0, record) for time in times]
        for times in ((100, 200, 300), (250,))
    ]
    path = tmp_path / "t.dat"
    path.write_bytes(trace_v7([WORK], pages, page_size=MIB, compression="zstd", chunk_pages=1))
    with TraceFile(path) as file:
        container = read_container(file)
        layout = parse_page_layout(path, container.header_page)
        yield Index(file, container, sources_of(container, layout, None))


@pytest.mark.parametrize(
    ("begin", "end", "counts"),
    [
        (0, 1000, [3, 1]),
        (0, 100, [0, 0]),
        (0, 101, [1, 0]),
        # The page before may reach into the span.
        (200, 201, [2, 0]),
        (201, 202, [1, 0]),
        (260, 270, [1, 1]),
        (900, 901, [1, 1]),
    ],
)
def test_a_span_of_time_is_in_some_chunks(
    begin: int, end: int, counts: list[int], index: Index, tmp_path: Path
) -> None:
    found = index.parts(begin, end, MemoryRoom(tmp_path))
    assert [len(chunks) for _, chunks in found] == counts


def test_the_next_page_of_any_cpu_is_known(index: Index) -> None:
    assert index.first == 100
    assert [index.following(time) for time in (0, 101, 201, 251, 301)] == [100, 200, 250, 300, None]


def test_pages_of_a_span_that_do_not_fit_are_refused(index: Index, tmp_path: Path) -> None:
    with pytest.raises(TooLargeError):
        index.parts(0, 1000, MemoryRoom(tmp_path, 3 * MIB))
