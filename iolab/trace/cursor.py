# SPDX-License-Identifier: MIT
"""Reading numbers and strings from a file that may be damaged, never past its end."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from iolab.errors import UserError

__all__ = ["Cursor", "TraceError", "TraceFile"]

_STRING_LIMIT = 4096


class TraceError(UserError):
    """A trace file is not what it claims to be; names the file and the offset or section."""

    def __init__(self, path: Path, what: str, offset: int | None = None) -> None:
        self.path = path
        self.offset = offset
        place = "" if offset is None else f" at offset {offset:#x}"
        super().__init__(f"{path}{place}: {what}")


class TraceFile:
    """A file read by position, so that threads share it; a context manager.

    Errors: TraceError if it cannot be opened or is not a regular file, and for every read beyond
    its end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise TraceError(path, error.strerror or "cannot be opened") from error
        if not path.is_file():
            self.close()
            raise TraceError(path, "is not a regular file")
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
        """Close the file; reading it afterwards is an error."""
        os.close(self._fd)

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset`."""
        self._check(offset, size)
        data = os.pread(self._fd, size, offset)
        # One call returns at most 2 GiB.
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                raise TraceError(self.path, "the file became shorter while it was read", offset)
            data += more
        return data

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the bytes from `offset`."""
        self._check(offset, len(target))
        done = 0
        while done < len(target):
            got = os.preadv(self._fd, [target[done:]], offset + done)
            if got == 0:
                raise TraceError(self.path, "the file became shorter while it was read", offset)
            done += got

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            what = f"truncated: {size} bytes are expected, the file ends at {self.size:#x}"
            raise TraceError(self.path, what, offset)


class Cursor:
    """A position in a stretch of bytes, little endian.

    Parameters
    ----------
    path
        The file, for messages.
    fetch
        Returns `size` bytes from `offset`; both are inside the stretch.
    start, end
        The stretch.
    where
        What the stretch is called in messages; None means offsets are offsets of the file.
    """

    def __init__(
        self,
        path: Path,
        fetch: Callable[[int, int], bytes],
        start: int,
        end: int,
        where: str | None = None,
    ) -> None:
        self.path = path
        self.position = start
        self.end = end
        self._fetch = fetch
        self._where = where

    @classmethod
    def of_file(cls, file: TraceFile, start: int = 0) -> Cursor:
        """Return a cursor over a whole file."""
        return cls(file.path, file.read, start, file.size)

    @classmethod
    def of_bytes(cls, path: Path, data: bytes, where: str) -> Cursor:
        """Return a cursor over bytes that came out of a section."""
        return cls(path, lambda o, n: data[o : o + n], 0, len(data), where)

    def error(self, what: str, offset: int | None = None) -> TraceError:
        """Return an error that names this cursor's position (or another one)."""
        at = self.position if offset is None else offset
        if self._where is None:
            return TraceError(self.path, what, at)
        return TraceError(self.path, f"section {self._where!r}, byte {at}: {what}")

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self.end - self.position

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        data = self.peek(size)
        self.position += size
        return data

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes and stay."""
        self._need(size)
        return self._fetch(self.position, size)

    def skip(self, size: int) -> None:
        """Pass over `size` bytes."""
        self._need(size)
        self.position += size

    def u8(self) -> int:
        """Return one byte."""
        return self.take(1)[0]

    def u16(self) -> int:
        """Return two bytes as a number."""
        return int(struct.unpack("<H", self.take(2))[0])

    def u32(self) -> int:
        """Return four bytes as a number."""
        return int(struct.unpack("<I", self.take(4))[0])

    def u64(self) -> int:
        """Return eight bytes as a number."""
        return int(struct.unpack("<Q", self.take(8))[0])

    def string(self) -> str:
        """Return the text before the next NUL, and pass it.

        Errors: TraceError without a NUL in reach.
        """
        data = self.peek(min(self.left, _STRING_LIMIT))
        end = data.find(b"\0")
        if end < 0:
            raise self.error("a text without an end")
        self.position += end + 1
        return data[:end].decode(errors="backslashreplace")

    def expect(self, marker: bytes) -> None:
        """Pass over a fixed marker.

        Errors: TraceError if something else stands there.
        """
        at = self.position
        if self.take(len(marker)) != marker:
            raise self.error(f"{marker.rstrip(bytes(1)).decode()!r} is missing", at)

    def _need(self, size: int) -> None:
        if size < 0 or size > self.left:
            raise self.error(f"truncated: {size} bytes are expected, {self.left} are left")
