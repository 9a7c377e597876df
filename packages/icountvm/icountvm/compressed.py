# SPDX-License-Identifier: MIT
"""Decompress packages and kernel images within bounds, whatever compressed them.

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

from iolab_base.reading import Readable
from tracedat import free_bytes

# Raised by reading a stream that is damaged or too large.
DAMAGED: Final = (
    *(EOFError, ValueError, zlib.error, gzip.BadGzipFile, lzma.LZMAError),
    zstandard.ZstdError,
)
# For a decompressor. A kernel's build asks for up to 128 MiB (scripts/xz_wrap.sh; zstd -22).
_MOST_MEMORY: Final = 256 << 20
_CHUNK: Final = 1 << 16


def decompressed(stream: io.BufferedReader, most: int) -> Readable:
    """Return a stream's content, decompressed according to its first bytes, at most `most` bytes.

    Reads gzip, bzip2, xz, lzma, zstd and plain streams. Reading raises one of `DAMAGED` if the
    stream is damaged or longer. A truncated zstd stream just ends: its content must show that it is
    whole.
    """
    return _Bounded(_opened(stream), most)


def read_decompressed(data: bytes, most: int) -> bytes:
    """Return decompressed `data`: at most `most` bytes and half of the free memory.

    Raises one of `DAMAGED` if the data are damaged or longer.
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
    """A stream that fails after so many bytes."""

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
    """Like `lzma.LZMAFile`, with a memory limit: a header may ask for 4 GiB."""

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
        """Begin the next stream; anything else ends the file, as for xz(1)."""
        fed = self._decoder.unused_data or self._stream.read(_CHUNK)
        self._decoder = lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
        try:
            self._ended = not fed
            return self._decoder.decompress(fed, size) if fed else b""
        except lzma.LZMAError:
            self._ended = True
            return b""
