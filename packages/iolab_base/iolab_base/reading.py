# SPDX-License-Identifier: MIT
"""Read files that somebody else may have written: regular ones, bounded before allocating memory.

A store, a table, a trace or an archive of another user or machine may contain links, devices, fifos
and files that unpack without bound. Every such file is opened here.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Final, Protocol

from tracedat import free_bytes

# Limit of a JSON document: the largest that iolab writes, a plan with 500 cells, has 2 MiB.
# Python needs up to 90 bytes for each of its characters.
DOCUMENT_BYTES: Final = 8 << 20
# Limit of a machine's output while a block is measured.
CONSOLE_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 20
# The memory that any line takes, however short.
_LINE: Final = 1 << 10
# The kernel's own limit (path_resolution(7)).
_MOST_LINKS: Final = 40


class RefusedFileError(OSError):
    """A file that exists but is not read: a link, not a regular file, or too large.

    It is an `OSError`, so that code that reports unreadable files reports it, too.
    """


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        ...


def open_regular(path: Path, *, below: Path | None = None) -> io.BufferedReader:
    """Open a regular file for reading, without touching a device, fifo or socket.

    No part of the path beneath `below`, a folder above the file, may be a link. Without it the user
    named the file, and links are followed. Raises RefusedFileError for anything but a regular file.
    """
    # O_PATH opens the name only: a device or a fifo notices nothing.
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC) if below is None else _beneath(path, below)
    try:
        _refuse_irregular(os.fstat(handle).st_mode, path)
        return os.fdopen(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC), "rb")
    finally:
        os.close(handle)


def _beneath(path: Path, below: Path) -> int:
    """Return a descriptor of a path's name, without following links beneath a folder."""
    handle = os.open(below, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.relative_to(below).parts:
        try:
            inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
        if stat.S_ISLNK(os.fstat(handle).st_mode) or name == "..":
            os.close(handle)
            raise _refused(errno.ELOOP, "is reached through a link", path)
    return handle


def in_root(root: Path, name: PurePath) -> Path:
    """Return where a path leads to in a folder that its links take for ``/``, as in a chroot.

    Nothing has to exist there. No part of `root`'s own path is a link, nor of the result: pass it
    to `open_regular` with `below`. Raises RefusedFileError if a link leads to itself.
    """
    real, links = root, 0
    todo = list(reversed(name.parts))
    while todo:
        step = todo.pop()
        if step.startswith("/"):
            real = root
        elif step == "..":
            real = real if real == root else real.parent
        elif not (real / step).is_symlink():
            real /= step
        elif (links := links + 1) > _MOST_LINKS:
            raise _refused(errno.ELOOP, "is a link to itself", root / name)
        else:
            todo += reversed((real / step).readlink().parts)
    return real


def _refuse_irregular(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        raise _refused(errno.EINVAL, "is not a regular file", path)


def _refused(number: int, words: str, path: Path) -> RefusedFileError:
    return RefusedFileError(number, words, str(path))


def read_regular(path: Path, most: int = DOCUMENT_BYTES, *, below: Path | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes; `below` as `open_regular`.

    Raises RefusedFileError as `open_regular`, or if it is larger than `most` or free memory.
    """
    with _open_bounded(path, most, below) as (stream, size):
        if not fits_memory(size):
            raise _refused(errno.ENOMEM, f"has {size} bytes, more than free memory", path)
        # It may grow while it is read; Python first allocates the requested size.
        return stream.read(min(most, max(size, _CHUNK)))


@contextmanager
def _open_bounded(
    path: Path, most: int, below: Path | None
) -> Iterator[tuple[io.BufferedReader, int]]:
    """Open a regular file of at most `most` bytes, and yield it with its size."""
    with open_regular(path, below=below) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise _refused(errno.EFBIG, f"has {size} bytes, more than {most}", path)
        yield stream, size


def digest_regular(path: Path, most: int, *, below: Path | None = None) -> str:
    """Return the SHA-256 (hex) of a regular file; arguments and errors are `read_regular`'s."""
    with _open_bounded(path, most, below) as (stream, size):
        digest = hashlib.sha256()
        try:
            for piece in part(stream, size):
                digest.update(piece)
        except EOFError as error:
            raise _refused(errno.EIO, "was cut while it was read", path) from error
        return digest.hexdigest()


def read_gzip(path: Path, most: int, *, below: Path | None = None) -> bytes:
    """Return the unpacked content of a regular file; both sizes are limited to `most` bytes.

    Raises RefusedFileError as `read_regular`; OSError, EOFError or zlib.error if it is missing or
    damaged.
    """
    with _open_bounded(path, most, below) as (stream, _), gzip.open(stream) as unpacked:
        data = unpacked.read(most + 1)
    if len(data) > most:
        raise _refused(errno.EFBIG, f"unpacks to more than {most} bytes", path)
    return data


def lines_of_gzip(
    path: Path, most: int, longest: int = DOCUMENT_BYTES, *, below: Path | None = None
) -> Iterator[bytes]:
    """Yield the lines packed in a regular file, each with its end; errors as `read_gzip`.

    `most` bytes limit all lines, where a shorter one counts as 1 KiB, `longest` a single one.
    """
    with _open_bounded(path, most, below) as (stream, _), gzip.open(stream) as unpacked:
        while line := unpacked.readline(longest + 1):
            most -= max(len(line), _LINE)
            if len(line) > longest or most < 0:
                raise _refused(errno.EFBIG, "unpacks to more than such a file has", path)
            yield line


def entries(folder: Path, most: int, *, below: Path) -> dict[str, os.stat_result]:
    """Return the status of each name in a folder, sorted by name; a link stands for itself.

    Raises RefusedFileError if it is not a folder, is reached through a link, or has more than
    `most` names.
    """
    place = _beneath(folder, below)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            raise _refused(errno.ENOTDIR, "is not a folder", folder)
        found: dict[str, os.stat_result] = {}
        # A folder opened with O_PATH cannot be listed.
        with os.scandir(f"/proc/self/fd/{place}") as names:
            for entry in names:
                if len(found) == most:
                    raise _refused(errno.E2BIG, f"holds more than {most} files", folder)
                found[entry.name] = entry.stat(follow_symlinks=False)
    finally:
        os.close(place)
    return dict(sorted(found.items()))


def fits_memory(size: int) -> bool:
    """Return whether half of this machine's free memory remains after `size` more bytes."""
    return size <= _CHUNK or size <= free_bytes() // 2


def exactly(stream: Readable, size: int) -> bytes:
    """Return the next `size` bytes of a stream; EOFError if it ends before."""
    return b"".join(part(stream, size))


def part(stream: Readable, size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes of a stream in pieces; EOFError if it ends before."""
    while size:
        data = stream.read(min(size, _CHUNK))
        if not data:
            raise EOFError("it ends too early")
        yield data
        size -= len(data)
