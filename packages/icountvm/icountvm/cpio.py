# SPDX-License-Identifier: MIT
"""Write and read initramfs archives, in the cpio format "newc" that the kernel unpacks at boot.

The bytes depend on the entries only: no times, no owners, inodes counted from 1. The kernel unpacks
several archives in a row (Documentation/driver-api/early-userspace/buffer-format.rst), so a boot's
archive is their concatenation.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from iolab_base.errors import IolabError
from iolab_base.files import scratch_dir

_BLOCK = 512
_TRAILER = "TRAILER!!!"
_MAGIC = b"070701"
# The magic and 13 numbers of 8 hexadecimal digits.
_HEADER = 110


@dataclass(frozen=True)
class CpioEntry:
    """One entry of an archive; make it with the class methods.

    The name is relative to the guest's ``/``; the mode has the file type, as ``st_mode``. The data
    are the contents, a file to read them from, or a link's target. A device is (major, minor).
    """

    name: str
    mode: int
    data: bytes | Path = b""
    device: tuple[int, int] = (0, 0)

    @classmethod
    def file(cls, name: str, data: bytes | Path, *, executable: bool = False) -> CpioEntry:
        """Return a regular file; a path as `data` is read when the archive is written."""
        return cls(name, stat.S_IFREG | (0o755 if executable else 0o644), data)

    @classmethod
    def directory(cls, name: str, mode: int = 0o755) -> CpioEntry:
        """Return a directory."""
        return cls(name, stat.S_IFDIR | mode)

    @classmethod
    def symlink(cls, name: str, target: str) -> CpioEntry:
        """Return a symbolic link to `target`."""
        return cls(name, stat.S_IFLNK | 0o777, target.encode())

    @classmethod
    def char_device(cls, name: str, major: int, minor: int, mode: int = 0o600) -> CpioEntry:
        """Return a character device."""
        return cls(name, stat.S_IFCHR | mode, device=(major, minor))


def _complete(entries: Iterable[CpioEntry]) -> Iterator[CpioEntry]:
    """Yield the entries in order of their names, each after the directories above it."""
    by_name: dict[str, CpioEntry] = {}
    for entry in entries:
        if by_name.setdefault(entry.name, entry) != entry:
            raise ValueError(f"two different entries for {entry.name}")
    for name in list(by_name):
        for parent in PurePosixPath(name).parents:
            if parent != PurePosixPath("."):
                by_name.setdefault(str(parent), CpioEntry.directory(str(parent)))
    # Sort by path component, so that a directory comes before its contents.
    yield from (by_name[name] for name in sorted(by_name, key=lambda name: name.split("/")))


def _put(stream: IO[bytes], inode: int, entry: CpioEntry) -> None:
    data = entry.data.read_bytes() if isinstance(entry.data, Path) else entry.data
    name = entry.name.encode() + b"\0"
    numbers = (
        inode,
        entry.mode,
        0,  # owner
        0,  # group
        1,  # links
        0,  # modification time
        len(data),
        0,
        0,
        *entry.device,
        len(name),
        0,  # checksum, unused in this format
    )
    header = _MAGIC + b"".join(b"%08X" % number for number in numbers) + name
    stream.write(header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4))


def write_cpio(path: Path, entries: Iterable[CpioEntry]) -> None:
    """Write an archive atomically, with missing directories; ValueError if two entries conflict."""
    with scratch_dir(path.parent) as work:
        made = work / "archive"
        try:
            with made.open("wb") as stream:
                for inode, entry in enumerate(_complete(entries), 1):
                    _put(stream, inode, entry)
                _put(stream, 0, CpioEntry(_TRAILER, 0))
                stream.write(b"\0" * (-stream.tell() % _BLOCK))
                stream.flush()
                os.fsync(stream.fileno())
            made.chmod(0o644)
            made.rename(path)
        except OSError as error:
            raise IolabError(f"cannot write {path}: {error.strerror}") from error


def read_cpio(path: Path) -> Iterator[CpioEntry]:
    """Yield the entries of an archive written by `write_cpio`, in its order."""
    try:
        with path.open("rb") as stream:
            while True:
                header = stream.read(_HEADER)
                if len(header) != _HEADER or header[:6] != _MAGIC:
                    raise IolabError(f"{path} is damaged: remove its folder")
                numbers = [int(header[at : at + 8], 16) for at in range(6, _HEADER, 8)]
                mode, size, device, length = numbers[1], numbers[6], numbers[9:11], numbers[11]
                name = stream.read(length)[:-1].decode()
                stream.seek(-stream.tell() % 4, os.SEEK_CUR)
                if name == _TRAILER:
                    return
                data = stream.read(size)
                stream.seek(-stream.tell() % 4, os.SEEK_CUR)
                yield CpioEntry(name, mode, data, (device[0], device[1]))
    except (OSError, ValueError) as error:
        raise IolabError(f"cannot read {path}: {error}") from error
