# SPDX-License-Identifier: MIT
"""Read bytes, numbers and strings from a file that may be damaged, never past its end.

trace-cmd compresses with zstd or zlib; see trace-cmd.dat.v7(5).
"""

from __future__ import annotations

import io
import os
import stat
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import zstandard

from tracedat._errors import TooLargeError, TraceError

_STRING_LIMIT = 4096
# Of anything that is read at once: the largest, /proc/kallsyms, has less than 20 MiB.
_TAKEN_LIMIT = 64 << 20


def _open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file; a device or a fifo notices nothing."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise TraceError(path, "is not a regular file")
        return os.fdopen(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC), "rb")
    finally:
        os.close(handle)


class TraceFile:
    """An open file, read by position so that threads can share it; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._stream = _open_regular(path)
        except OSError as error:
            raise TraceError(path, error.strerror or "cannot be opened") from error
        self._fd = self._stream.fileno()
        self.size = os.fstat(self._fd).st_size

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; reading it afterwards fails."""
        self._stream.close()

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset`."""
        self._check(offset, size)
        data = os.pread(self._fd, size, offset)
        # read(2) transfers at most 0x7ffff000 bytes a call.
        while len(data) < size:
            following = os.pread(self._fd, size - len(data), offset + len(data))
            if not following:
                raise TraceError(self.path, "the file became shorter while it was read", offset)
            data += following
        return data

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the bytes from `offset`."""
        self._check(offset, len(target))
        filled = 0
        while filled < len(target):
            count = os.preadv(self._fd, [target[filled:]], offset + filled)
            if count == 0:
                raise TraceError(self.path, "the file became shorter while it was read", offset)
            filled += count

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            problem = f"truncated: expected {size} bytes, but the file ends at {self.size:#x}"
            raise TraceError(self.path, problem, offset)


class Cursor:
    """A read position in a range of bytes; numbers are little endian.

    Every method that reads raises `TraceError` at the end of the range.
    """

    def __init__(
        self,
        path: Path,
        fetch: Callable[[int, int], bytes],
        start: int,
        end: int,
        section: str | None = None,
    ) -> None:
        self.path = path
        self.position = start
        self.end = end
        self._fetch = fetch
        self._section = section

    @classmethod
    def of_file(cls, file: TraceFile, start: int = 0) -> Cursor:
        """Return a cursor over a file, from offset `start` to its end."""
        return cls(file.path, file.read, start, file.size)

    @classmethod
    def of_bytes(cls, path: Path, data: bytes, section: str) -> Cursor:
        """Return a cursor over the bytes of a section."""
        return cls(path, lambda o, n: data[o : o + n], 0, len(data), section)

    def error(
        self, problem: str, offset: int | None = None, kind: type[TraceError] = TraceError
    ) -> TraceError:
        """Return an error that names this cursor's position, or `offset`."""
        at = self.position if offset is None else offset
        if self._section is None:
            return kind(self.path, problem, at)
        return kind(self.path, f"section {self._section!r}, byte {at}: {problem}")

    @property
    def left(self) -> int:
        """Number of bytes left."""
        return self.end - self.position

    def take(self, size: int, most: int = _TAKEN_LIMIT) -> bytes:
        """Return the next `size` bytes."""
        self.bound(size, most, "bytes")
        data = self.peek(size)
        self.position += size
        return data

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes without moving."""
        self._need(size)
        return self._fetch(self.position, size)

    def bound(self, number: int, most: int, what: str) -> None:
        """Raise `TooLargeError` if the file claims more of something than a trace has."""
        if number > most:
            problem = f"claims {number} {what}, a trace has at most {most}"
            raise self.error(problem, kind=TooLargeError)

    def skip(self, size: int) -> None:
        """Skip `size` bytes."""
        self._need(size)
        self.position += size

    def u8(self) -> int:
        """Read one byte as a number."""
        return self.take(1)[0]

    def u16(self) -> int:
        """Read two bytes as a number."""
        return int(struct.unpack("<H", self.take(2))[0])

    def u32(self) -> int:
        """Read four bytes as a number."""
        return int(struct.unpack("<I", self.take(4))[0])

    def u64(self) -> int:
        """Read eight bytes as a number."""
        return int(struct.unpack("<Q", self.take(8))[0])

    def string(self) -> str:
        """Read a string that ends with NUL."""
        data = self.peek(min(self.left, _STRING_LIMIT))
        end = data.find(b"\0")
        if end < 0:
            raise self.error("a string without its final NUL")
        self.position += end + 1
        return data[:end].decode(errors="backslashreplace")

    def expect(self, marker: bytes) -> None:
        """Skip a fixed marker."""
        at = self.position
        if self.take(len(marker)) != marker:
            raise self.error(f"{marker.rstrip(bytes(1)).decode()!r} is missing", at)

    def _need(self, size: int) -> None:
        if size < 0 or size > self.left:
            raise self.error(f"truncated: expected {size} bytes, but only {self.left} are left")


# Decompressed bytes.
Plain = bytes | memoryview

# A zstd context is expensive to create and must not be shared between threads.
_local = threading.local()


def decompress(
    path: Path, algorithm: str, data: bytes, size: int, *, offset: int, subject: str
) -> bytes:
    """Decompress `data` and check its size."""
    try:
        plain = _zstd(data, size) if algorithm == "zstd" else _zlib(data, size)
    except (zstandard.ZstdError, zlib.error, MemoryError) as error:
        raise TraceError(path, f"{subject} is damaged: {algorithm} says {error}", offset) from error
    if plain is None or len(plain) != size:
        raise TraceError(path, f"{subject} is damaged: it does not hold {size} bytes", offset)
    return plain


def decompress_frames(
    data: bytes, places: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> Sequence[Plain] | None:
    """Decompress zstd frames in one call, so that threads do not wait for the GIL at each frame."""
    try:
        frames = zstandard.BufferWithSegments(data, np.array(places, np.uint64).tobytes())
        found: Any = _context().multi_decompress_to_buffer(
            frames, decompressed_sizes=np.array(sizes, np.uint64).tobytes(), threads=1
        )
    except (zstandard.ZstdError, ValueError, MemoryError):
        return None
    return [memoryview(contents) for contents in found]


def _zstd(data: bytes, size: int) -> bytes | None:
    # zstandard allocates the size that the frame declares: check it first. -1 means undeclared.
    if zstandard.frame_content_size(data) not in {-1, size}:
        return None
    return _context().decompress(data, max_output_size=size, allow_extra_data=False)


def _context() -> zstandard.ZstdDecompressor:
    """Return this thread's context."""
    context: zstandard.ZstdDecompressor | None = getattr(_local, "context", None)
    if context is None:
        context = _local.context = zstandard.ZstdDecompressor()
    return context


def _zlib(data: bytes, size: int) -> bytes | None:
    unpacker = zlib.decompressobj()
    plain = unpacker.decompress(data, size + 1)
    return plain if unpacker.eof else None
