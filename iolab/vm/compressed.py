# SPDX-License-Identifier: MIT
"""Decompress what packages and kernel images hold, whatever compressed it, within bounds.

A kilobyte may unpack to gigabytes, and a header may ask for gigabytes of memory.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import zlib
from typing import IO, Final, cast

import zstandard

from iolab.reading import Readable, free_bytes

__all__ = ["DAMAGED", "decompressed", "read_decompressed"]

# What reading a damaged stream raises, or one that is larger than it may be.
DAMAGED: Final = (
    *(EOFError, ValueError, zlib.error, gzip.BadGzipFile, lzma.LZMAError),
    zstandard.ZstdError,
)
# Of a decompressor. The build of a kernel asks for up to 128 MiB (scripts/xz_wrap.sh; zstd -22).
_MOST_MEMORY: Final = 256 << 20
_CHUNK: Final = 1 << 16


def decompressed(stream: io.BufferedReader, most: int) -> Readable:
    """Return what a stream holds, decompressed if its first bytes say how.

    Parameters
    ----------
    stream : BufferedReader
        What ``open(..., "rb")`` returns: gzip, bzip2, xz, lzma, zstd or plain.
    most : int
        The most bytes that it holds, decompressed.

    Returns
    -------
    readable
        A stream; reading it raises one of `DAMAGED` where it is damaged or holds more. One of zstd
        just ends where it is cut short: what is in it says that it is not whole.
    """
    return _Bounded(_opened(stream), most)


def read_decompressed(data: bytes, most: int) -> bytes:
    """Return what is in `data`, decompressed if its first bytes say how.

    Parameters
    ----------
    data : bytes
        As of `decompressed`.
    most : int
        The most bytes that it holds; no more than half of the free memory.

    Raises
    ------
    one of DAMAGED
        If it is damaged or holds more.
    """
    # A BytesIO cannot peek.
    stream, out = cast("io.BufferedReader", io.BufferedReader(io.BytesIO(data))), io.BytesIO()
    shutil.copyfileobj(decompressed(stream, min(most, free_bytes() // 2)), out, 1 << 20)
    return out.getvalue()


def _opened(stream: io.BufferedReader) -> IO[bytes]:
    head = stream.peek(6)[:6]
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if head.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(stream))
    if head.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
        return io.BufferedReader(_Lzma(stream), _CHUNK)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        reader = zstandard.ZstdDecompressor(max_window_size=_MOST_MEMORY)
        # Several programs write one frame for each thread.
        return cast("IO[bytes]", reader.stream_reader(stream, read_across_frames=True))
    return stream


class _Bounded:
    """A stream that holds no more than so many bytes."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._most = self._left = most

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {self._most} bytes")
        return data


class _Lzma(io.RawIOBase):
    """What `lzma.LZMAFile` reads, with a limit of memory: a header may ask for 4 GiB."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._decoder = lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = b""
        while not data and not self._ended:
            data = self._next(len(buffer)) if self._decoder.eof else self._more(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _more(self, size: int) -> bytes:
        fed = self._stream.read(_CHUNK) if self._decoder.needs_input else b""
        if not fed and self._decoder.needs_input:
            raise EOFError("it is cut short")
        return self._decoder.decompress(fed, size)

    def _next(self, size: int) -> bytes:
        """Begin the next stream; what is none ends them, as for xz(1)."""
        fed = self._decoder.unused_data or self._stream.read(_CHUNK)
        self._decoder = lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
        try:
            self._ended = not fed
            return self._decoder.decompress(fed, size) if fed else b""
        except lzma.LZMAError:
            self._ended = True
            return b""
