# SPDX-License-Identifier: MIT
"""Decompress what packages and kernel images hold, whatever compressed it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from typing import IO, Final, cast

import zstandard

__all__ = ["DAMAGED", "decompressed"]

# What reading a damaged stream raises.
DAMAGED: Final = (
    *(EOFError, ValueError, zlib.error, gzip.BadGzipFile, lzma.LZMAError),
    zstandard.ZstdError,
)
# `zstd --ultra --long` of distributions needs up to this much memory.
_WINDOW: Final = 1 << 31


def decompressed(stream: io.BufferedReader) -> IO[bytes]:
    """Return what a stream holds, decompressed if its first bytes say how.

    Parameters
    ----------
    stream : BufferedReader
        What ``open(..., "rb")`` returns: gzip, bzip2, xz, lzma, zstd or plain.

    Returns
    -------
    IO
        A stream; reading it raises one of `DAMAGED` where it is damaged.
    """
    head = stream.peek(6)[:6]
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if head.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(stream))
    if head.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
        return cast("IO[bytes]", lzma.LZMAFile(stream))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        # Several programs write one frame for each thread.
        return cast("IO[bytes]", reader.stream_reader(stream, read_across_frames=True))
    return stream
