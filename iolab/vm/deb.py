# SPDX-License-Identifier: MIT
"""Read the control fields of Debian packages and unpack their files."""

from __future__ import annotations

from pathlib import Path

from iolab.errors import IolabError
from iolab.process import CommandError, run

__all__ = ["DamagedPackageError", "control_fields", "unpack"]


class DamagedPackageError(IolabError):
    """A file is truncated or no Debian package."""

    def __init__(self, deb: Path) -> None:
        super().__init__(
            f"{deb} is not a whole Debian package: it is truncated, or another kind of file"
        )


def control_fields(deb: Path) -> dict[str, str]:
    """Return a package's control fields, such as ``Package``, ``Version`` and ``Architecture``.

    Raises
    ------
    DamagedPackageError
        If the file is not a whole package.
    """
    try:
        text = run(["dpkg-deb", "--field", deb], timeout_s=60).stdout
    except CommandError as error:
        raise DamagedPackageError(deb) from error
    # Lines that begin with a space continue a field.
    pairs = (line.split(":", 1) for line in text.splitlines() if line[:1].strip() and ":" in line)
    return {key: value.strip() for key, value in pairs}


def unpack(deb: Path, into: Path) -> None:
    """Unpack a package's files into a folder, without running its scripts.

    Raises
    ------
    DamagedPackageError
        If the file is not a whole package.
    IolabError
        If the disk is full.
    """
    try:
        run(["dpkg-deb", "--extract", deb, into], timeout_s=600)
    except CommandError as error:
        if "No space left" in error.output:
            raise IolabError(f"cannot unpack {deb.name}: no space left in {into}") from error
        raise DamagedPackageError(deb) from error
