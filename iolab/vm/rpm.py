# SPDX-License-Identifier: MIT
"""Read what RPM packages say of themselves and unpack their files, without rpm.

A package of version 3 or 4 is a lead of 96 bytes, a header of signatures, a header of tags, and a
compressed cpio archive. A header is a magic, the number of its entries and the size of its data;
an entry is a tag, a type, an offset and a count, each of 32 bits, big-endian.
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import IO, Final

from iolab.errors import IolabError, UserError
from iolab.vm.compressed import DAMAGED, decompressed
from iolab.vm.unpacking import unpack_cpio

__all__ = ["architecture", "unpack_rpm"]

_LEAD: Final = b"\xed\xab\xee\xdb"
_LEAD_BYTES: Final = 96
_HEADER: Final = b"\x8e\xad\xe8\x01"
_MOST: Final = 1 << 26
_ARCHITECTURE, _PAYLOAD_FORMAT = 1022, 1124


def architecture(rpm: Path) -> str:
    """Return the architecture that a package is for, such as ``x86_64`` or ``noarch``.

    Raises
    ------
    UserError
        If the file is not a whole package.
    """
    try:
        with rpm.open("rb") as stream:
            return _tags(stream).get(_ARCHITECTURE, "")
    except (*DAMAGED, OSError, struct.error) as error:
        raise _damaged(rpm, error) from error


def unpack_rpm(rpm: Path, into: Path) -> None:
    """Unpack a package's files into a folder, without running its scripts.

    Raises
    ------
    UserError
        If the file is not a whole package, or its payload is no cpio archive.
    IolabError
        If the disk is full.
    """
    try:
        with rpm.open("rb") as stream:
            kind = _tags(stream).get(_PAYLOAD_FORMAT, "cpio")
            if kind != "cpio":
                raise UserError(f"{rpm} holds a {kind!r} payload: only cpio can be unpacked")
            # Buffered: `open` in binary mode looks ahead.
            unpack_cpio(decompressed(stream), into)
    except (*DAMAGED, struct.error) as error:
        raise _damaged(rpm, error) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise IolabError(f"cannot unpack {rpm.name}: no space left in {into}") from error
        raise _damaged(rpm, error) from error


def _damaged(rpm: Path, error: BaseException) -> UserError:
    return UserError(f"{rpm} is not a whole RPM package: {error}")


def _tags(stream: IO[bytes]) -> dict[int, str]:
    """Return the texts of the package's header; the stream is at its payload then."""
    if stream.read(_LEAD_BYTES)[:4] != _LEAD:
        raise ValueError("it does not begin as one does")
    _, data = _header(stream)
    # The header of signatures is padded to 8 bytes.
    stream.read(-len(data) % 8)
    entries, data = _header(stream)
    found = {}
    for tag, kind, offset, _ in entries:
        if kind == 6:  # a text
            found[tag] = data[offset : data.find(b"\0", offset)].decode(errors="replace")
    return found


def _header(stream: IO[bytes]) -> tuple[list[tuple[int, ...]], bytes]:
    head = stream.read(16)
    if head[:4] != _HEADER:
        raise ValueError("it has no header")
    number, size = struct.unpack(">II", head[8:16])
    if number * 16 > _MOST or size > _MOST:
        raise ValueError("its header is larger than one can be")
    index, data = stream.read(16 * number), stream.read(size)
    if len(index) != 16 * number or len(data) != size:
        raise EOFError("it is truncated")
    return [struct.unpack_from(">IIII", index, 16 * n) for n in range(number)], data
