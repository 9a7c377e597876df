# SPDX-License-Identifier: MIT
"""Small files that unpack to large ones, and a machine with little memory to read them."""

from __future__ import annotations

import functools
import lzma
import resource
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

# More than the little memory.
BOMB = 512 << 20

_CHUNK = 16 << 20
_ROOM = 384 << 20


@functools.cache
def bomb(way: str, size: int, before: bytes = b"", behind: bytes = b"") -> bytes:
    """Return zeros, compressed by gzip, xz or zstd, with other bytes around them."""
    makers: dict[str, Callable[[], Any]] = {
        "gzip": lambda: zlib.compressobj(1, wbits=31),
        "xz": lambda: lzma.LZMACompressor(preset=0),
        "zstd": lambda: zstandard.ZstdCompressor().compressobj(),
    }
    made = makers[way]()
    zeros = bytes(_CHUNK)
    parts = [made.compress(before)]
    parts += [made.compress(zeros) for _ in range(size // _CHUNK)]
    return b"".join([*parts, made.compress(behind), made.flush()])


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Let this process allocate no more than 384 MiB more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
