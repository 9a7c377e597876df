# SPDX-License-Identifier: MIT
"""Bytes, numbers and compressed parts of a file that may be damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard

import tracedat
from tracedat import TooLargeError, TraceError, read
from tracedat._file import Cursor, TraceFile, decompress, decompress_frames

# "abc" as Perl's IO::Compress::Deflate compresses it.
_ZLIB = bytes.fromhex("789c4b4c4a0600024d0127")
# A frame with one raw block, by hand (RFC 8878): the magic number, one segment with its size, a
# last block of 3 bytes. The other one does not declare its size.
_ZSTD = bytes.fromhex("28b52ffd2003190000") + b"abc"
_UNDECLARED = bytes.fromhex("28b52ffd0000190000") + b"abc"


def frames(*contents: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """Return zstd frames behind each other, and the place of each."""
    data, places = b"", []
    for one in contents:
        frame = zstandard.ZstdCompressor(write_checksum=True).compress(one)
        places.append((len(data), len(frame)))
        data += frame
    return data, places


def test_frames_come_in_order() -> None:
    data, places = frames(b"a" * 9000, b"bc")
    found = decompress_frames(data, places, [9000, 2])
    assert found is not None
    assert [bytes(one) for one in found] == [b"a" * 9000, b"bc"]


@pytest.mark.parametrize("sizes", [[9000, 1], [9000, 3], [8999, 2]])
def test_a_frame_of_another_size_is_refused(sizes: list[int]) -> None:
    assert decompress_frames(*frames(b"a" * 9000, b"bc"), sizes) is None


def test_a_damaged_frame_is_refused() -> None:
    data, places = frames(b"a" * 9000, b"bc")
    assert decompress_frames(data[:-1] + b"?", places, [9000, 2]) is None


def _plain(algorithm: str, data: bytes, size: int) -> bytes:
    return decompress(Path("t"), algorithm, data, size, offset=5, subject="a part")


@pytest.mark.parametrize(
    ("algorithm", "data"), [("zlib", _ZLIB), ("zstd", _ZSTD), ("zstd", _UNDECLARED)]
)
def test_a_compressed_part_has_the_size_that_it_should(algorithm: str, data: bytes) -> None:
    assert _plain(algorithm, data, 3) == b"abc"
    for size in (0, 2, 4, 1 << 40):
        with pytest.raises(TraceError, match="a part") as caught:
            _plain(algorithm, data, size)
        assert caught.value.offset == 5
    for damaged in (data[:-1], data[:5], b"", b"?" + data[1:]):
        with pytest.raises(TraceError, match="a part"):
            _plain(algorithm, damaged, 3)


def test_what_stands_behind_a_zstd_frame_is_damage() -> None:
    with pytest.raises(TraceError, match="zstd"):
        _plain("zstd", _ZSTD + b"more", 3)


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """A file of the bytes 0 to 9."""
    path = tmp_path / "ten"
    path.write_bytes(bytes(range(10)))
    return path


def test_a_file_is_read_by_position(ten: Path) -> None:
    with TraceFile(ten) as file:
        assert file.size == 10
        assert (file.read(7, 3), file.read(0, 2), file.read(10, 0)) == (b"\7\10\11", b"\0\1", b"")
        target = bytearray(4)
        file.read_into(3, memoryview(target))
        assert target == b"\3\4\5\6"
    with pytest.raises(ValueError, match="closed"):
        file._stream.read()


@pytest.mark.parametrize(("offset", "size"), [(8, 3), (11, 0), (-1, 2), (0, -1), (0, 1 << 62)])
def test_nothing_is_read_past_the_end_of_a_file(offset: int, size: int, ten: Path) -> None:
    with TraceFile(ten) as file, pytest.raises(TraceError, match="truncated") as caught:
        file.read(offset, size)
    assert caught.value.offset == offset


def test_a_file_that_becomes_shorter_is_an_error(ten: Path) -> None:
    with TraceFile(ten) as file:
        os.truncate(ten, 4)
        with pytest.raises(TraceError, match="shorter"):
            file.read(2, 6)
        with pytest.raises(TraceError, match="shorter"):
            file.read_into(2, memoryview(bytearray(6)))


def test_numbers_are_little_endian() -> None:
    cursor = Cursor.of_bytes(Path("t"), bytes(range(1, 16)), "one")
    assert [cursor.u8(), cursor.u16(), cursor.u32(), cursor.u64()] == [
        0x01,
        0x0302,
        0x07060504,
        0x0F0E0D0C0B0A0908,
    ]
    assert cursor.left == 0


def test_a_string_ends_with_nul() -> None:
    cursor = Cursor.of_bytes(Path("t"), b"ab\0\0\xffc\0rest", "one")
    assert [cursor.string(), cursor.string(), cursor.string()] == ["ab", "", "\\xffc"]
    with pytest.raises(TraceError, match="NUL"):
        cursor.string()
    with pytest.raises(TraceError, match="NUL"):
        Cursor.of_bytes(Path("t"), b"a" * 5000 + b"\0", "one").string()


def test_a_cursor_stays_in_its_range(ten: Path) -> None:
    with TraceFile(ten) as file:
        cursor = Cursor.of_file(file, 4)
        assert (cursor.peek(2), cursor.take(2), cursor.left) == (b"\4\5", b"\4\5", 4)
        cursor.skip(1)
        for read_more in (cursor.u32, cursor.u64, lambda: cursor.skip(4), lambda: cursor.skip(-1)):
            with pytest.raises(TraceError, match="truncated") as caught:
                read_more()
            assert caught.value.offset == 7
        cursor.expect(b"\7\10")
        with pytest.raises(TraceError, match="abc"):
            Cursor.of_bytes(Path("t"), b"abd", "one").expect(b"abc\0"[:3])
        assert cursor.take(1) == b"\11"


def test_a_section_claims_no_more_than_a_trace_has() -> None:
    cursor = Cursor.of_bytes(Path("t"), b"abcd", "heads")
    assert cursor.take(2, 2) == b"ab"
    with pytest.raises(TooLargeError, match="'heads'"):
        cursor.take(2, 1)
    with pytest.raises(TooLargeError):
        cursor.take((64 << 20) + 1)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read(tmp_path / "absent.dat")
    with pytest.raises(TraceError, match="regular file"):
        read(tmp_path)


def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "text")
    with pytest.raises(TraceError, match="regular file"):
        tracedat.read(tmp_path / "text")
