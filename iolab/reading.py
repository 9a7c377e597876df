# SPDX-License-Identifier: MIT
"""Read what somebody else may have written: regular files, bounded before memory is allocated.

A store, a table, a trace or an archive of another user or machine may hold links, devices, fifos
and files that unpack without bound. Everything that reads one opens it here.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Final, Protocol

__all__ = [
    "CONSOLE_BYTES",
    "DOCUMENT_BYTES",
    "Readable",
    "RefusedFileError",
    "digest_regular",
    "entries",
    "exactly",
    "fits_memory",
    "free_bytes",
    "in_root",
    "lines_of_gzip",
    "open_regular",
    "part",
    "read_gzip",
    "read_regular",
]

# Of a JSON document that iolab writes: the largest, a block's plan with 500 cells, has 2 MiB.
# Python needs up to 90 bytes for each of its characters.
DOCUMENT_BYTES: Final = 8 << 20
# Of what a machine says while a block is measured.
CONSOLE_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 20
# What a line takes, however short.
_LINE: Final = 1 << 10
_CGROUPS: Final = Path("/sys/fs/cgroup")
_NO_LIMIT: Final = 1 << 62
# As the kernel's own (path_resolution(7)).
_MOST_LINKS: Final = 40


class RefusedFileError(OSError):
    """A file that is there and is not read: a link, no regular file, or one that is too large.

    It is an `OSError`, so that what reports unreadable files reports it, too.
    """


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        ...


def open_regular(path: Path, *, below: Path | None = None) -> io.BufferedReader:
    """Open a regular file for reading, without touching anything that is none.

    Parameters
    ----------
    path : Path
        The file.
    below : Path, optional
        A folder above the file. Below it no part of the path may be a link. Without it the user
        named the file, and links are followed.

    Returns
    -------
    binary file
        The file; it does not close `below`.

    Raises
    ------
    RefusedFileError
        If it is a link, a folder, a device, a fifo or a socket.
    OSError
        If it is missing or may not be read.
    """
    # O_PATH opens the name only: a device or a fifo notices nothing.
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC) if below is None else _beneath(path, below)
    try:
        _refuse_irregular(os.fstat(handle).st_mode, path)
        return os.fdopen(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC), "rb")
    finally:
        os.close(handle)


def _beneath(path: Path, below: Path) -> int:
    """Return a descriptor of a path's name, with no link between a folder and it."""
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

    Parameters
    ----------
    root : Path
        The folder, such as one with unpacked packages. No part of its own path is a link.
    name : PurePath
        A path below it; nothing has to be there.

    Returns
    -------
    Path
        A path below `root`, with no link in it: `open_regular` takes it with `below`.

    Raises
    ------
    RefusedFileError
        If a link leads to itself.
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
        raise _refused(errno.EINVAL, "is no regular file", path)


def _refused(number: int, words: str, path: Path) -> RefusedFileError:
    return RefusedFileError(number, words, str(path))


def read_regular(path: Path, most: int = DOCUMENT_BYTES, *, below: Path | None = None) -> bytes:
    """Return the content of a regular file.

    Parameters
    ----------
    path, below : Path
        As for `open_regular`.
    most : int, optional
        The most bytes that such a file has.

    Returns
    -------
    bytes
        The content.

    Raises
    ------
    RefusedFileError
        As `open_regular`, or if it is larger than `most` or than free memory.
    OSError
        If it is missing or may not be read.
    """
    with _open_bounded(path, most, below) as (stream, size):
        if not fits_memory(size):
            raise _refused(errno.ENOMEM, f"has {size} bytes, more than free memory", path)
        # It may grow while it is read; Python allocates first what it is asked for.
        return stream.read(min(most, max(size, _CHUNK)))


@contextmanager
def _open_bounded(
    path: Path, most: int, below: Path | None
) -> Iterator[tuple[io.BufferedReader, int]]:
    """Open a regular file of at most so many bytes, and give its size with it."""
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
    """Return what is packed in a regular file, at most `most` bytes.

    Raises
    ------
    RefusedFileError
        As `read_regular`; packed and unpacked it may be as large.
    OSError, EOFError, zlib.error
        If it is missing, may not be read, or is damaged.
    """
    with _open_bounded(path, most, below) as (stream, _), gzip.open(stream) as unpacked:
        data = unpacked.read(most + 1)
    if len(data) > most:
        raise _refused(errno.EFBIG, f"unpacks to more than {most} bytes", path)
    return data


def lines_of_gzip(
    path: Path, most: int, longest: int = DOCUMENT_BYTES, *, below: Path | None = None
) -> Iterator[bytes]:
    """Yield the lines packed in a regular file, each with its end.

    Parameters
    ----------
    path, below : Path
        As for `open_regular`.
    most : int
        The most bytes of all lines; a shorter one counts as 1 KiB.
    longest : int, optional
        The most bytes of a line.

    Raises
    ------
    RefusedFileError, OSError, EOFError, zlib.error
        As `read_gzip`.
    """
    with _open_bounded(path, most, below) as (stream, _), gzip.open(stream) as unpacked:
        while line := unpacked.readline(longest + 1):
            most -= max(len(line), _LINE)
            if len(line) > longest or most < 0:
                raise _refused(errno.EFBIG, "unpacks to more than such a file has", path)
            yield line


def entries(folder: Path, most: int, *, below: Path) -> dict[str, os.stat_result]:
    """Return what each name in a folder stands for.

    Parameters
    ----------
    folder : Path
        The folder.
    most : int
        The most names that such a folder has.
    below : Path
        As for `open_regular`.

    Returns
    -------
    dict of str to os.stat_result
        In the order of the names; a link stands for itself.

    Raises
    ------
    RefusedFileError
        If it is no folder, is reached through a link, or has more names.
    OSError
        If it is missing or may not be read.
    """
    place = _beneath(folder, below)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            raise _refused(errno.ENOTDIR, "is no folder", folder)
        found: dict[str, os.stat_result] = {}
        # What O_PATH opened cannot be listed.
        with os.scandir(f"/proc/self/fd/{place}") as names:
            for entry in names:
                if len(found) == most:
                    raise _refused(errno.E2BIG, f"holds more than {most} files", folder)
                found[entry.name] = entry.stat(follow_symlinks=False)
    finally:
        os.close(place)
    return dict(sorted(found.items()))


def fits_memory(size: int) -> bool:
    """Return whether `size` bytes more leave this process's machine half of its free memory."""
    return size <= _CHUNK or size <= free_bytes() // 2


def free_bytes() -> int:
    """Return how many bytes of memory are free, for the machine and for each cgroup around us.

    The page cache counts as free. A machine that does not say has room.
    """
    free = [_field(Path("/proc/meminfo"), "MemAvailable:") * 1024]
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" or controllers == "memory":
                root = _CGROUPS / controllers
                group = root / path.lstrip("/")
                inside = [one for one in (group, *group.parents) if one.is_relative_to(root)]
                free += [_free_in(one) for one in inside]
    return min(free)


def _free_in(group: Path) -> int:
    # Of version 2, then of version 1 of cgroups.
    for limit, usage in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
        # No limit is the word "max", or a number beyond all memory.
        with suppress(OSError, ValueError):
            most, used = (int((group / f"memory.{n}").read_text()) for n in (limit, usage))
            cache = sum(_field(group / "memory.stat", f"{x}active_file") for x in ("in", ""))
            return max(0, most - used + cache)
    return _NO_LIMIT


def _field(table: Path, name: str) -> int:
    with suppress(OSError):
        lines = (line.split() for line in table.read_text().splitlines())
        return next((int(words[1]) for words in lines if words[0] == name), 0)
    return _NO_LIMIT


def exactly(stream: Readable, size: int) -> bytes:
    """Return the next `size` bytes of a stream.

    Raises
    ------
    EOFError
        If it ends before.
    """
    return b"".join(part(stream, size))


def part(stream: Readable, size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes of a stream in pieces.

    Raises
    ------
    EOFError
        If it ends before.
    """
    while size:
        data = stream.read(min(size, _CHUNK))
        if not data:
            raise EOFError("it ends before it should")
        yield data
        size -= len(data)
