# SPDX-License-Identifier: MIT
"""Unpack archives of packages (tar, cpio) into a folder, and nowhere else.

An archive may come from anybody: nothing is written outside of the folder, through a name or a
link, and sizes are checked before anything is written. Owners, devices and privilege bits are
dropped.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from icountvm.compressed import DAMAGED
from iolab_base.errors import IolabError
from iolab_base.reading import Readable, RefusedFileError, exactly, part
from iolab_base.tars import BLOCK, Header, TarError, header_of

# For a package. The largest kernel packages, with debug information, unpack to less.
MOST_BYTES: Final = 8 << 30
_MOST_MEMBERS: Final = 200_000
_DEEPEST: Final = 64
_LONGEST_NAME: Final = 1024
# Left free on the disk, for everything else on the machine.
_KEPT_FREE: Final = 1 << 30
# For a long name or an extended header in a tar, and for all of them.
_MOST_HEADER: Final = 1 << 16
_MOST_HEADERS: Final = 256 << 20
_TRAILER: Final = "TRAILER!!!"
# The header of newc without and with a checksum: a magic and 13 numbers.
_NEWC: Final = re.compile(rb"07070[12][0-9A-Fa-f]{104}")
_HEADER: Final = 110


class DamagedPackageError(IolabError):
    """A package is truncated, of another kind, or larger than one can be."""


@contextmanager
def package_faults(package: Path) -> Iterator[None]:
    """Raise DamagedPackageError for faults while a package is read; IolabError for a full disk."""
    try:
        yield
    except TarError as error:
        raise _damaged(package, f"it {error.problem}") from error
    except (*DAMAGED, struct.error) as error:
        raise _damaged(package, error) from error
    except RefusedFileError as error:
        name = Path(error.filename).name
        raise _damaged(package, f"its {name} {error.strerror}") from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise IolabError(f"cannot unpack {package.name}: no space left") from error
        raise _damaged(package, error.strerror or error) from error


def _damaged(package: Path, reason: object) -> DamagedPackageError:
    return DamagedPackageError(f"{package} is not a whole package: {reason}")


class Room:
    """The number of bytes and files that may be written below a folder; it never fills the disk."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = self._left = most
        self._members = _MOST_MEMBERS

    def take(self, size: int) -> None:
        """Reserve the space of one more file, before it is written.

        Raises ValueError beyond a limit, and OSError (ENOSPC) if the disk lacks the space.
        """
        self._left -= size
        self._members -= 1
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {self._most} bytes")
        if self._members < 0:
            raise ValueError(f"it unpacks to more than {_MOST_MEMBERS} files")
        if shutil.disk_usage(self._folder).free - size < _KEPT_FREE:
            raise OSError(errno.ENOSPC, "no space left", str(self._folder))


class Unpacker:
    """Write the members of an archive below a folder, which is made if it is missing.

    Every method raises ValueError if a name leads out of the folder.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        self.room = Room(self._root, MOST_BYTES)

    def directory(self, name: str, mode: int) -> None:
        """Make a directory; keep an existing one, and a link to one."""
        path = self._place(name)
        if not path.is_dir():
            path.mkdir()
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(mode) & 0o777 | 0o700)

    def file(self, name: str, mode: int, data: Iterable[bytes]) -> None:
        """Write a file from the pieces of its data."""
        path = self._free(name)
        with path.open("xb") as stream:
            for piece in data:
                stream.write(piece)
        path.chmod(stat.S_IMODE(mode) & 0o777)

    def symlink(self, name: str, target: str) -> None:
        """Make a symbolic link. It may lead anywhere; nothing is written through it."""
        self._free(name).symlink_to(target)

    def link(self, name: str, target: str) -> None:
        """Make another name for an existing file."""
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
        # The path may go through a link to a directory, which has to stay inside. `Path.resolve`
        # raises its own error for a circular link; realpath leaves that to the kernel.
        folder = Path(os.path.realpath(path.parent if parts else path))
        if not folder.is_relative_to(self._root):
            raise ValueError(f"{name!r} leads out of the folder")
        if len(folder.parts) - len(self._root.parts) >= _DEEPEST or len(name) > _LONGEST_NAME:
            raise ValueError("a name in it is longer or deeper than one can be")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / path.name if parts else path


def unpack_tar(stream: Readable, root: Path) -> None:
    """Unpack a tar archive that is not compressed; it is read once."""
    out = Unpacker(root)
    for member, data in tar_members(stream):
        out.room.take(member.size)
        name, target = os.fsdecode(member.name), os.fsdecode(member.target)
        if member.kind == b"5":
            out.directory(name, member.mode)
        elif member.kind == b"2":
            out.symlink(name, target)
        elif member.kind == b"1":
            out.link(name, target)
        elif member.kind == b"0":
            out.file(name, member.mode, data)
    _drain(stream)


def tar_members(stream: Readable) -> Iterator[tuple[Header, Iterator[bytes]]]:
    """Yield the members of a tar, with their data in pieces; unread data are skipped.

    Names and sizes from extended headers (POSIX.1-2001) and GNU's long names are resolved. A plain
    file has the kind ``0``. Raises ValueError, EOFError or TarError for a damaged archive, or for
    members that packages do not have, such as sparse files.
    """
    extended: dict[bytes, bytes] = {}
    headers = 0
    while any(block := exactly(stream, BLOCK)):
        member = header_of(block)
        if member.kind in b"LKxg":
            headers += BLOCK + member.size
            if member.size > _MOST_HEADER or headers > _MOST_HEADERS:
                raise ValueError("its headers are larger than they can be")
            extended |= _extended(member.kind, exactly(stream, member.size))
            exactly(stream, -member.size % BLOCK)
            continue
        member = _whole(member, extended)
        data = part(stream, member.size)
        yield member, data
        for _ in data:
            pass
        exactly(stream, -member.size % BLOCK)
        extended.clear()


def _whole(member: Header, extended: dict[bytes, bytes]) -> Header:
    """Return a member with the values of its extended headers."""
    name, target = extended.get(b"path", member.name), extended.get(b"linkpath", member.target)
    size, kind = int(extended.get(b"size", b"%d" % member.size)), member.kind
    if kind in b"\0007":
        # In the oldest format a trailing slash marks a directory.
        kind = b"5" if kind == b"\0" and name.endswith(b"/") else b"0"
    if kind not in b"0123456" or size < 0 or any(key.startswith(b"GNU.sparse") for key in extended):
        raise ValueError(f"{os.fsdecode(name[:100])!r} is no file that a package has")
    return Header(name, kind, size if kind == b"0" else 0, member.mode, target)


def _extended(kind: bytes, data: bytes) -> dict[bytes, bytes]:
    """Return the fields of an extended header, or the long name as one."""
    if kind in b"LK":
        return {b"path" if kind == b"L" else b"linkpath": data.split(b"\0")[0]}
    found, at = {}, 0
    while at < len(data):
        length = data[at : at + 8].split(b" ")[0]
        end = at + int(length)
        field, equals, value = data[at + len(length) + 1 : end - 1].partition(b"=")
        if not length.isdigit() or not equals or data[end - 1 : end] != b"\n":
            raise ValueError("an extended header in it is damaged")
        found[field], at = value, end
    # A global header has fields that all files share; none is needed.
    return found if kind == b"x" else {}


def unpack_cpio(stream: Readable, root: Path) -> None:
    """Unpack an RPM's cpio archive ("newc") that is not compressed; it is read once."""
    out = Unpacker(root)
    # If a file has several names, the last one carries the data; the key is its inode.
    waiting: dict[int, list[str]] = {}
    while True:
        header = exactly(stream, _HEADER)
        if not _NEWC.fullmatch(header):
            raise ValueError("it holds no cpio archive of the format newc")
        numbers = [int(header[at : at + 8], 16) for at in range(6, _HEADER, 8)]
        inode, mode, links, size, length = (numbers[n] for n in (0, 1, 4, 6, 11))
        if not 0 < length <= _LONGEST_NAME:
            raise ValueError("a name in it has no length that can be")
        name = os.fsdecode(exactly(stream, length)[:-1])
        exactly(stream, -(_HEADER + length) % 4)
        if name == _TRAILER:
            _drain(stream)
            return
        out.room.take(size)
        data = part(stream, size)
        if stat.S_ISDIR(mode):
            out.directory(name, mode)
        elif stat.S_ISLNK(mode):
            if size > _LONGEST_NAME:
                raise ValueError("a link in it is longer than one can be")
            out.symlink(name, os.fsdecode(b"".join(data)))
        elif stat.S_ISREG(mode):
            names = waiting.setdefault(inode, []) if links > 1 else []
            if links > 1 and not size:
                names.append(name)
            else:
                out.file(name, mode, data)
                for other in names:
                    out.link(other, name)
                names.clear()
        for _ in data:
            pass
        exactly(stream, -size % 4)


def _drain(stream: Readable) -> None:
    """Read to the end: a compressed stream's checksum is there."""
    while stream.read(1 << 20):
        pass
