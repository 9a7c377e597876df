# SPDX-License-Identifier: MIT
"""Unpack archives of packages (tar, cpio) into a folder, and nowhere else.

An archive is somebody's: no name and no link in it leads outside of the folder. Owners, devices
and the bits that give privileges are not kept.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Final, Protocol, cast

__all__ = ["Unpacker", "unpack_cpio", "unpack_tar"]

_TRAILER: Final = "TRAILER!!!"
# Of tar; an archive ends in blocks of zeros.
_BLOCK: Final = 512
# The magics of newc without and with a checksum, and the length of their header.
_NEWC: Final = (b"070701", b"070702")
_HEADER: Final = 110
_LONGEST_NAME: Final = 4096


class Readable(Protocol):
    """What has bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        ...


class Unpacker:
    """Writes the members of an archive below a folder.

    Parameters
    ----------
    root : Path
        The folder; it is made if it is missing.

    Raises
    ------
    ValueError
        By every method, if a name leads outside of the folder.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()

    def directory(self, name: str, mode: int) -> None:
        """Make a directory; one that is there stays, and so does a link to one."""
        path = self._place(name)
        if not path.is_dir():
            path.mkdir()
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(mode) & 0o777 | 0o700)

    def file(self, name: str, mode: int, data: Readable) -> None:
        """Write a file from a stream of its data."""
        path = self._free(name)
        with path.open("wb") as stream:
            shutil.copyfileobj(data, stream)
        path.chmod(stat.S_IMODE(mode) & 0o777)

    def symlink(self, name: str, target: str) -> None:
        """Make a symbolic link. It may lead anywhere; nothing is written through it."""
        self._free(name).symlink_to(target)

    def link(self, name: str, target: str) -> None:
        """Make another name for a file that is there."""
        other = self._place(target)
        if other.is_symlink() or not other.is_file():
            raise ValueError(f"{name} is a link to {target}, which is no file of the archive")
        os.link(other, self._free(name))

    def _free(self, name: str) -> Path:
        path = self._place(name)
        if path.is_symlink() or path.is_file():
            path.unlink()
        return path

    def _place(self, name: str) -> Path:
        parts = [part for part in PurePosixPath(name).parts if part not in ("/", ".")]
        if ".." in parts or "\0" in name:
            raise ValueError(f"{name!r} leads out of the folder")
        path = self._root.joinpath(*parts)
        folder = path.parent if parts else path
        # A link to a directory may be a part of the way: it has to stay inside.
        if not folder.resolve().is_relative_to(self._root):
            raise ValueError(f"{name!r} leads out of the folder")
        folder.mkdir(parents=True, exist_ok=True)
        return path


def unpack_tar(stream: IO[bytes], root: Path) -> None:
    """Unpack a tar archive.

    Parameters
    ----------
    stream : IO
        The archive, not compressed; it is read once.
    root : Path
        The folder.

    Raises
    ------
    ValueError, tarfile.TarError
        If it is damaged, or a name leads outside of the folder.
    """
    out, whole = Unpacker(root), _Tail(stream)
    with tarfile.open(fileobj=cast("IO[bytes]", whole), mode="r|") as archive:
        for member in archive:
            if member.isdir():
                out.directory(member.name, member.mode)
            elif member.issym():
                out.symlink(member.name, member.linkname)
            elif member.islnk():
                out.link(member.name, member.linkname)
            elif member.isreg():
                data = archive.extractfile(member)
                if data is not None:
                    out.file(member.name, member.mode, data)
    _drain(whole)
    # tarfile takes the middle of a header for the end.
    if len(whole.tail) < _BLOCK or any(whole.tail):
        raise EOFError("it ends in the middle of its archive")


def unpack_cpio(stream: IO[bytes], root: Path) -> None:
    """Unpack a cpio archive of the format "newc", as RPM packages hold it.

    Parameters
    ----------
    stream : IO
        The archive, not compressed; it is read once.
    root : Path
        The folder.

    Raises
    ------
    ValueError
        If it is damaged, or a name leads outside of the folder.
    """
    out = Unpacker(root)
    # Of a file with several names, the last one has the data; the key is its inode.
    waiting: dict[str, list[str]] = {}
    while True:
        header = _exactly(stream, _HEADER)
        if header[:6] not in _NEWC:
            raise ValueError("it holds no cpio archive of the format newc")
        numbers = [int(header[at : at + 8], 16) for at in range(6, _HEADER, 8)]
        inode, mode, links, size, length = (numbers[n] for n in (0, 1, 4, 6, 11))
        if not 0 < length <= _LONGEST_NAME:
            raise ValueError("a name in it has no length that can be")
        name = os.fsdecode(_exactly(stream, length)[:-1])
        _exactly(stream, -(_HEADER + length) % 4)
        if name == _TRAILER:
            _drain(stream)
            return
        data = _Part(stream, size)
        if stat.S_ISDIR(mode):
            out.directory(name, mode)
        elif stat.S_ISLNK(mode):
            out.symlink(name, os.fsdecode(_exactly(data, min(size, _LONGEST_NAME))))
        elif stat.S_ISREG(mode):
            names = waiting.setdefault(f"{inode}", []) if links > 1 else []
            if links > 1 and not size:
                names.append(name)
            else:
                out.file(name, mode, data)
                for other in names:
                    out.link(other, name)
                names.clear()
        _drain(data)
        _exactly(stream, -size % 4)


class _Tail:
    """A stream whose last block is remembered."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.tail = b""

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self.tail = (self.tail + data)[-_BLOCK:]
        return data


class _Part:
    """The next bytes of a stream."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int = -1, /) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        data = self._stream.read(size) if size else b""
        if size and not data:
            raise EOFError("it ends in the middle of a file")
        self._left -= len(data)
        return data


def _drain(stream: Readable) -> None:
    """Read to the end: only there a compressed stream has its checksum."""
    while stream.read(1 << 20):
        pass


def _exactly(stream: Readable, size: int) -> bytes:
    parts = []
    while size:
        data = stream.read(size)
        if not data:
            raise EOFError("it ends in the middle of its archive")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
