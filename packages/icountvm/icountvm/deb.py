# SPDX-License-Identifier: MIT
"""Read the control fields of Debian packages and unpack their files, without dpkg.

A package is an archive of ar(5) with the members debian-binary, control.tar and data.tar, the
latter two compressed (deb(5)).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Final

from icountvm.archives import MOST_BYTES, package_faults, tar_members, unpack_tar
from icountvm.compressed import decompressed
from iolab_base.reading import Readable

_AR: Final = b"!<arch>\n"
_MEMBER: Final = 60
# A package has three.
_MOST_MEMBERS: Final = 16
# More than a control file, and everything beside it: scripts, digests, translations.
_CONTROL_BYTES: Final = 1 << 20
_CONTROL_ARCHIVE: Final = 64 << 20


def control_fields(deb: Path) -> dict[str, str]:
    """Return a package's control fields, such as ``Package``, ``Version`` and ``Architecture``."""
    with package_faults(deb), deb.open("rb") as stream:
        text = _control(decompressed(_member(stream, "control.tar"), _CONTROL_ARCHIVE))
    # Lines that begin with a space continue a field.
    pairs = (line.split(":", 1) for line in text.splitlines() if line[:1].strip() and ":" in line)
    return {key: value.strip() for key, value in pairs}


def unpack(deb: Path, into: Path) -> None:
    """Unpack a package's files into a folder, without running its scripts."""
    with package_faults(deb), deb.open("rb") as stream:
        unpack_tar(decompressed(_member(stream, "data.tar"), MOST_BYTES), into)


def _member(stream: IO[bytes], name: str) -> io.BufferedReader:
    """Return the member of an ar archive whose name begins with `name`."""
    size_of_all = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if stream.read(len(_AR)) != _AR:
        raise ValueError("it is no ar archive")
    for _ in range(_MOST_MEMBERS):
        if len(header := stream.read(_MEMBER)) < _MEMBER:
            break
        size = int(header[48:58])
        at = stream.tell()
        if header[58:] != b"`\n" or not 0 <= size <= size_of_all - at:
            raise ValueError("a member of it is damaged")
        if header[:16].decode(errors="replace").startswith(name):
            return io.BufferedReader(_Member(stream, size), 1 << 16)
        stream.seek(at + size + size % 2)
    raise ValueError(f"it has no {name}")


class _Member(io.RawIOBase):
    """One member of an archive, read through the archive's stream."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def _control(stream: Readable) -> str:
    for member, data in tar_members(stream):
        if member.name.removeprefix(b"./") == b"control" and member.size <= _CONTROL_BYTES:
            return b"".join(data).decode(errors="replace")
    raise ValueError("it has no control file")
