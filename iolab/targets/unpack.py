# SPDX-License-Identifier: MIT
"""Unpack results from a machine that is not trusted."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Set
from pathlib import Path

from iolab.errors import IolabError

__all__ = ["MOST_BYTES", "UnpackError", "unpack"]

# A block of recorded cells on many cores, and room to spare.
MOST_BYTES = 4 << 30
# Of a file that is read into memory: anything but a trace. A cell's result takes less than one.
_MOST_TEXT = 32 << 20
# Of a long name or a pax header, which tarfile reads whole.
_MOST_HEADER = 1 << 16
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)
_HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_CHUNK = 1 << 20


class UnpackError(IolabError):
    """An archive that holds anything but the results that were asked for."""


class _Member(tarfile.TarInfo):
    """A member whose headers are no larger than those of a tar."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        # tarfile's own hook for subclasses: it comes before anything of the member is read.
        if self.type in _HEADERS and self.size > _MOST_HEADER:
            raise UnpackError(f"the results hold a header of {self.size} bytes, which is refused")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise UnpackError(f"the results hold {self.name[:100]!r}, which is no plain file")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return member


def unpack(archive: Path, names: Set[str], into: Path, *, most_bytes: int = MOST_BYTES) -> None:
    """Unpack an uncompressed tar of plain files into a folder, each with one of `names`.

    Modes, owners and times of the archive are ignored.

    Raises
    ------
    UnpackError
        If a member is no plain file, is unknown or duplicated, is larger than what it stands for,
        or exceeds `most_bytes`; the message names the first one, and nothing of it is written.
    """
    room = most_bytes
    seen = set()
    try:
        with tarfile.open(archive, mode="r:", tarinfo=_Member) as tar:
            for member in tar:
                name = member.name
                if name not in names or name in seen:
                    raise UnpackError(f"the results hold {name[:100]!r}, which is refused")
                if member.type not in _PLAIN or member.issparse():
                    raise UnpackError(f"the results hold {name!r}, which is no plain file")
                room -= member.size
                if member.size < 0 or room < 0:
                    raise UnpackError(f"the results are larger than {most_bytes} bytes")
                if member.size > _MOST_TEXT and not name.endswith(".dat"):
                    raise UnpackError(f"the results hold a {name} of {member.size} bytes")
                seen.add(name)
                _write(tar, member, into / name)
    except RecursionError as error:
        # One extended header behind another.
        raise UnpackError("the results hold headers without end") from error
    except (tarfile.TarError, EOFError, ValueError, OverflowError, zlib.error) as error:
        raise UnpackError(f"the results are no whole tar file: {error}") from error


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    if source is None:
        raise UnpackError(f"the results hold {member.name!r}, which is no plain file")
    # "x": never through a link that stands there.
    with source, path.open("xb") as stream:
        left = member.size
        while left:
            data = source.read(min(left, _CHUNK))
            if not data:
                raise UnpackError("the results are cut short")
            stream.write(data)
            left -= len(data)
