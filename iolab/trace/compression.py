# SPDX-License-Identifier: MIT
"""Unpacking what trace-cmd packed with zstd or zlib; nothing is taken on trust."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path

import zstandard

from iolab.trace.cursor import TraceError

__all__ = ["decompress"]

# A zstd context is dear to make and serves one thread.
_local = threading.local()


def decompress(path: Path, how: str, data: bytes, size: int, *, offset: int, what: str) -> bytes:
    """Return the `size` bytes that `data`, which stands at `offset` of the file, holds packed.

    ``what`` says in messages what it is.

    Errors: TraceError naming the offset if it does not unpack to exactly `size` bytes.
    """
    try:
        plain = _zstd(data, size) if how == "zstd" else _zlib(data, size)
    except (zstandard.ZstdError, zlib.error, MemoryError) as error:
        raise TraceError(path, f"{what} is damaged: {how} says {error}", offset) from error
    if plain is None or len(plain) != size:
        raise TraceError(path, f"{what} is damaged: it does not hold {size} bytes", offset)
    return plain


def _zstd(data: bytes, size: int) -> bytes | None:
    # The frame's own size, where it has one, is what gets allocated.
    if zstandard.frame_content_size(data) not in {-1, size}:
        return None
    context: zstandard.ZstdDecompressor | None = getattr(_local, "context", None)
    if context is None:
        context = _local.context = zstandard.ZstdDecompressor()
    return context.decompress(data, max_output_size=size, allow_extra_data=False)


def _zlib(data: bytes, size: int) -> bytes | None:
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(data, size + 1)
    return plain if unpacker.eof else None
