# SPDX-License-Identifier: MIT
"""Read tar archives of iolab's own making from a machine that may lie.

Such an archive holds plain files under short names. Its headers are read here, and not by tarfile:
that obeys extended headers (sizes, sparse maps, names) before the caller sees a member, and what it
refuses differs between versions of Python. POSIX.1-1988 (ustar) describes the header.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from iolab.errors import IolabError
from iolab.reading import Readable, exactly, part

__all__ = ["BLOCK", "Header", "TarError", "header_of", "members", "tar_bytes", "unpack"]

BLOCK: Final = 512
_ZEROS: Final = bytes(BLOCK)
# Bytes of the extended headers of a whole archive, which say nothing that is needed: a tar may
# write times with fractions into them.
_MOST_EXTENDED: Final = 1 << 20
# Of the zeros at the end: tar fills up a record.
_MOST_END: Final = 1 << 20


class TarError(IolabError):
    """An archive that holds anything but the plain files that were asked for, or is damaged.

    Parameters
    ----------
    problem : str
        What it holds.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the archive {problem}")


def members(stream: Readable) -> Iterator[tuple[str, int]]:
    """Yield name and size in bytes of each file of a tar; read its data before the next one.

    Folders and extended headers are skipped.

    Raises
    ------
    TarError
        If a member is neither file nor folder, or the archive is damaged.
    """
    extended = 0
    try:
        while (header := exactly(stream, BLOCK)) != _ZEROS:
            raw, kind, size, _, _ = header_of(header)
            name = raw.decode(errors="backslashreplace")
            if kind == b"5" and not size:
                continue
            if kind in (b"x", b"g"):
                extended += size
                if extended > _MOST_EXTENDED:
                    raise TarError("holds headers without end")
                exactly(stream, size)
            elif kind in (b"0", b"\0"):
                yield name, size
            else:
                raise TarError(f"holds {name[:100]!r}, which is no plain file")
            exactly(stream, -size % BLOCK)
    except EOFError as error:
        raise TarError("is cut short") from error


class Header(NamedTuple):
    """What the header of a member says.

    Parameters
    ----------
    name : bytes
        The member's path.
    kind : bytes
        One byte: ``0`` or a zero is a plain file.
    size : int
        Bytes of data behind the header.
    mode : int
        Permission bits.
    target : bytes
        Where a link leads to.
    """

    name: bytes
    kind: bytes
    size: int
    mode: int
    target: bytes


def header_of(block: bytes) -> Header:
    """Return what a block of `BLOCK` bytes says.

    Raises
    ------
    TarError
        If it is no header, or is damaged.
    """
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    if _octal(block[148:156]) != total:
        raise TarError("is no tar, or is damaged")
    name = block[:100].split(b"\0")[0]
    if block[257:263] == b"ustar\0" and (prefix := block[345:500].split(b"\0")[0]):
        name = prefix + b"/" + name
    size, mode = _octal(block[124:136]), _octal(block[100:108])
    return Header(name, block[156:157], size, mode, block[157:257].split(b"\0")[0])


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    # Also refuses the sizes beyond 8 GiB, and negative ones, that GNU tar writes in base 256.
    if not digits or digits.strip(b"01234567"):
        raise TarError("is no tar, or is damaged")
    return int(digits, 8)


def tar_bytes(most: Mapping[str, int]) -> int:
    """Return the most bytes of a tar of files that each have at most so many bytes."""
    # A header, an extended one with a header of its own, and zeros up to whole blocks.
    return _MOST_EXTENDED + _MOST_END + sum(size + 4 * BLOCK for size in most.values())


def unpack(stream: Readable, most: Mapping[str, int], into: Path) -> None:
    """Unpack a tar of plain files, each with a name that is known, into a folder.

    Modes, owners and times of the archive are ignored.

    Parameters
    ----------
    stream : readable
        The archive, not compressed.
    most : mapping of str to int
        The most bytes of each file, by the name that it may have.
    into : Path
        The folder; none of the files may be there.

    Raises
    ------
    TarError
        If a member is no plain file, is unknown or duplicated, or is larger than it may be; nothing
        of that member is written.
    OSError
        If a file cannot be written.
    """
    seen = set()
    for name, size in members(stream):
        if name not in most or name in seen:
            raise TarError(f"holds {name[:100]!r}, which is refused")
        if size > most[name]:
            raise TarError(f"holds {name!r} of {size} bytes, more than {most[name]}")
        seen.add(name)
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # "x": never through a link that stands there.
        with path.open("xb") as file:
            try:
                for data in part(stream, size):
                    file.write(data)
            except EOFError as error:
                raise TarError("is cut short") from error
