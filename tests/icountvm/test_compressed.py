# SPDX-License-Identifier: MIT
from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable

import pytest
import zstandard

from icountvm.compressed import DAMAGED, decompressed, read_decompressed
from tests.support.bombs import BOMB, bomb, little_memory

__all__ = ["little_memory"]

WAYS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("way", WAYS)
def test_several_streams_are_one(way: str) -> None:
    data = bytes(range(256)) * 3000
    packed = WAYS[way](data) + WAYS[way](b"end")
    assert read_decompressed(packed, len(data) + 3) == data + b"end"
    with pytest.raises(DAMAGED):
        read_decompressed(packed, len(data) + 2)
    if way != "zstd":
        with pytest.raises(DAMAGED):
            read_decompressed(packed[: len(packed) // 2], 1 << 20)


def test_what_is_behind_an_xz_stream_is_ignored_as_by_xz() -> None:
    assert read_decompressed(lzma.compress(b"x") + b"no stream", 10) == b"x"


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("way", ["gzip", "xz", "zstd"])
def test_a_bomb_is_no_larger_than_it_may_be(way: str) -> None:
    packed = bomb(way, BOMB)
    assert len(packed) < 4 << 20
    with pytest.raises(DAMAGED, match="more than"):
        read_decompressed(packed, 64 << 20)
    stream = decompressed(io.BufferedReader(io.BytesIO(packed)), 64 << 20)
    with pytest.raises(DAMAGED, match="more than"):
        stream.read()


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "packed",
    [
        # Headers that ask for a dictionary of 4 GiB, and a window of 2 GiB.
        b"\x5d\0\0" + b"\xff" * 2 + b"\xff" * 8 + b"\0" * 100,
        # One that asks for 768 MiB, which who compresses needs too.
        bytes.fromhex(
            "fd377a585a000004e6d6b4460200210123000000e7271064010000780000"
            "000045aeef83f8ee160a00011901a52c81cc1fb6f37d010000000004595a"
        ),
        b"\x28\xb5\x2f\xfd\0\xa8" + b"\1\0\0" + b"x" * 10,
    ],
    ids=["lzma", "xz", "zstd"],
)
def test_a_header_does_not_choose_the_memory(packed: bytes) -> None:
    with pytest.raises(DAMAGED):
        read_decompressed(packed, 1 << 20)
