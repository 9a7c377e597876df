# SPDX-License-Identifier: MIT
"""Read tar archives of iolab's own making from a machine that may lie.

Such an archive contains plain files under short names. Its headers are read here, not by tarfile,
which obeys extended headers (sizes, sparse maps, names) before the caller sees a member, and whose
refusals differ between versions of Python. POSIX.1-1988 (ustar) describes the header.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from iolab_base.errors import IolabError
from iolab_base.reading import Readable, exactly, part

BLOCK: Final = 512
_ZEROS: Final = bytes(BLOCK)
# Bytes of the extended headers of a whole archive, which contain nothing needed: tar may write
# fractional times into them.
_MOST_EXTENDED: Final = 1 << 20
# Limit of the zeros at the end: tar fills up a record.
_MOST_END: Final = 1 << 20


class TarError(IolabError):
    """An archive that is damaged, or contains anything but the requested plain files."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the archive {problem}")


def members(stream: Readable) -> Iterator[tuple[str, int]]:
    """Yield name and size of each file of a tar; read its data before the next one.

    Folders and extended headers are skipped. Raises TarError for any other member, or a damaged
    archive.
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
                raise TarError(f"holds {name[:100]!r}, which is not a plain file")
            exactly(stream, -size % BLOCK)
    except EOFError as error:
        raise TarError("is cut short") from error


class Header(NamedTuple):
    """The header of a member.

    ``kind`` is one byte, ``0`` or a zero for a plain file; ``size`` is the data's, in bytes;
    ``mode`` are the permission bits; ``target`` is where a link leads to.
    """

    name: bytes
    kind: bytes
    size: int
    mode: int
    target: bytes


def header_of(block: bytes) -> Header:
    """Parse a block of `BLOCK` bytes; TarError if it is not a header, or damaged."""
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    if _octal(block[148:156]) != total:
        raise TarError("is not a tar archive, or is damaged")
    name = block[:100].split(b"\0")[0]
    if block[257:263] == b"ustar\0" and (prefix := block[345:500].split(b"\0")[0]):
        name = prefix + b"/" + name
    size, mode = _octal(block[124:136]), _octal(block[100:108])
    return Header(name, block[156:157], size, mode, block[157:257].split(b"\0")[0])


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    # Also refuses the sizes beyond 8 GiB, and negative ones, that GNU tar writes in base 256.
    if not digits or digits.strip(b"01234567"):
        raise TarError("is not a tar archive, or is damaged")
    return int(digits, 8)


def tar_bytes(most: Mapping[str, int]) -> int:
    """Return the most bytes of a tar of files that each have at most so many bytes."""
    # A header, an extended one with a header of its own, and zeros up to whole blocks.
    return _MOST_EXTENDED + _MOST_END + sum(size + 4 * BLOCK for size in most.values())


def unpack(stream: Readable, most: Mapping[str, int], into: Path) -> None:
    """Unpack an uncompressed tar of plain files into a folder that contains none of them.

    `most` is the most bytes of each file, by its name. Modes, owners and times are ignored. Raises
    TarError if a member is not a plain file, is unknown or duplicated, or is too large; nothing of
    that member is written.
    """
    seen = set()
    for name, size in members(stream):
        if name not in most or name in seen:
            raise TarError(f"holds {name[:100]!r}, which iolab does not accept")
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
