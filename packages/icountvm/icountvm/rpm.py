# SPDX-License-Identifier: MIT
"""Read the headers of RPM packages and unpack their files, without rpm.

A package of version 3 or 4 is a lead of 96 bytes, a header of signatures, a header of tags, and a
compressed cpio archive. A header is a magic, the number of its entries and the size of its data; an
entry is a tag, a type, an offset and a count, each of 32 bits, big-endian.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO, Final

from icountvm.archives import MOST_BYTES, DamagedPackageError, package_faults, unpack_cpio
from icountvm.compressed import decompressed

_LEAD: Final = b"\xed\xab\xee\xdb"
_LEAD_BYTES: Final = 96
_HEADER: Final = b"\x8e\xad\xe8\x01"
# For a header's entries and data, as in rpm itself, and for a text that is read here.
_MOST_ENTRIES: Final = 0xFFFF
_MOST_BYTES: Final = 1 << 26
_LONGEST: Final = 64
_ARCHITECTURE, _PAYLOAD_FORMAT = 1022, 1124


def architecture(rpm: Path) -> str:
    """Return the architecture that a package is for, such as ``x86_64`` or ``noarch``."""
    with package_faults(rpm), rpm.open("rb") as stream:
        return _text(*_header_of(stream), _ARCHITECTURE)


def unpack_rpm(rpm: Path, into: Path) -> None:
    """Unpack a package's files into a folder, without running its scripts.

    Raises DamagedPackageError, also if the payload is not a cpio archive.
    """
    with package_faults(rpm), rpm.open("rb") as stream:
        kind = _text(*_header_of(stream), _PAYLOAD_FORMAT) or "cpio"
        if kind != "cpio":
            raise DamagedPackageError(f"{rpm} holds a {kind!r} payload: only cpio can be unpacked")
        # Buffered: `open` in binary mode looks ahead.
        unpack_cpio(decompressed(stream, MOST_BYTES), into)


def _header_of(stream: IO[bytes]) -> tuple[bytes, bytes]:
    """Return the index and the data of the package's header; leave the stream at its payload."""
    if stream.read(_LEAD_BYTES)[:4] != _LEAD:
        raise ValueError("it does not begin as one does")
    _, data = _header(stream)
    # The header of signatures is padded to 8 bytes.
    stream.read(-len(data) % 8)
    return _header(stream)


def _header(stream: IO[bytes]) -> tuple[bytes, bytes]:
    head = stream.read(16)
    if head[:4] != _HEADER:
        raise ValueError("it has no header")
    number, size = struct.unpack(">II", head[8:16])
    if number > _MOST_ENTRIES or size > _MOST_BYTES:
        raise ValueError("its header is larger than one can be")
    index, data = stream.read(16 * number), stream.read(size)
    if len(index) != 16 * number or len(data) != size:
        raise EOFError("it is truncated")
    return index, data


def _text(index: bytes, data: bytes, wanted: int) -> str:
    """Return the text of a tag; "" if it is missing."""
    for tag, kind, offset, _ in struct.iter_unpack(">IIII", index):
        if (tag, kind) == (wanted, 6):  # a text
            return data[offset : offset + _LONGEST].split(b"\0")[0].decode(errors="replace")
    return ""
