# SPDX-License-Identifier: MIT
"""Debian packages as files: what they say of themselves, and what is in them."""

from __future__ import annotations

from pathlib import Path

from iolab.errors import IolabError
from iolab.process import CommandError, run

__all__ = ["DamagedPackageError", "fields_of", "unpack"]


class DamagedPackageError(IolabError):
    """A file that should be a Debian package is truncated or something else."""

    def __init__(self, deb: Path) -> None:
        super().__init__(f"{deb} is not a whole Debian package")


def fields_of(deb: Path) -> dict[str, str]:
    """Return a package's control fields, e.g. ``Package``, ``Version``, ``Architecture``.

    Errors: DamagedPackageError.
    """
    try:
        told = run(["dpkg-deb", "--field", deb], timeout_s=60).stdout
    except CommandError as error:
        raise DamagedPackageError(deb) from error
    pairs = (line.split(":", 1) for line in told.splitlines() if line[:1].strip() and ":" in line)
    return {key: value.strip() for key, value in pairs}


def unpack(deb: Path, into: Path) -> None:
    """Unpack a package's files below `into`; nothing of it is run.

    Errors: DamagedPackageError.
    """
    try:
        run(["dpkg-deb", "--extract", deb, into], timeout_s=600)
    except CommandError as error:
        if "No space left" in error.output:
            raise IolabError(f"cannot unpack {deb.name}: no space left in {into}") from error
        raise DamagedPackageError(deb) from error
