# SPDX-License-Identifier: MIT
"""Packages of distributions as files: .deb, .rpm and those of pacman, unpacked without their tools.

Nobody checks their signatures here: whoever gives the files vouches for them.
"""

from __future__ import annotations

import errno
import re
import tarfile
from pathlib import Path
from typing import Final

from iolab.errors import IolabError, UserError
from iolab.vm import rpm
from iolab.vm.compressed import DAMAGED, decompressed
from iolab.vm.deb import DamagedPackageError, control_fields, unpack
from iolab.vm.unpacking import unpack_tar

__all__ = ["is_package", "unpack_package"]

# What packages call the machine's architecture, and none in particular.
_FITS: Final = frozenset({"amd64", "all", "x86_64", "noarch", "any"})
_PACMAN: Final = re.compile(r".+\.pkg\.tar(\.\w+)?")


def is_package(path: Path) -> bool:
    """Return whether a file's name is that of a package."""
    return path.suffix in {".deb", ".rpm"} or _PACMAN.fullmatch(path.name) is not None


def unpack_package(package: Path, root: Path) -> None:
    """Unpack a package's files into a folder, without running its scripts.

    Parameters
    ----------
    package : Path
        The package; `is_package`.
    root : Path
        The folder that it takes for ``/``.

    Raises
    ------
    UserError
        If it is damaged, or for another architecture.
    IolabError
        If the disk is full.
    """
    if package.suffix == ".deb":
        try:
            _check(package, control_fields(package).get("Architecture", ""))
            unpack(package, root)
        except DamagedPackageError as error:
            raise UserError(str(error)) from error
    elif package.suffix == ".rpm":
        _check(package, rpm.architecture(package))
        rpm.unpack_rpm(package, root)
    else:
        _unpack_pacman(package, root)


def _check(package: Path, architecture: str) -> None:
    if architecture not in _FITS:
        raise UserError(f"{package} is for {architecture}: the virtual machines are amd64")


def _unpack_pacman(package: Path, root: Path) -> None:
    """Unpack a package of Arch: a tar archive that has its description in .PKGINFO."""
    about = root / ".PKGINFO"
    about.unlink(missing_ok=True)
    try:
        with package.open("rb") as stream:
            unpack_tar(decompressed(stream), root)
    except (*DAMAGED, tarfile.TarError) as error:
        raise UserError(f"{package} is not a whole package: {error}") from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise IolabError(f"cannot unpack {package.name}: no space left in {root}") from error
        raise UserError(f"{package} is not a whole package: {error}") from error
    text = about.read_text(errors="replace") if about.is_file() else ""
    found = re.search(r"^arch *= *(\S+)", text, re.MULTILINE)
    if found is None:
        raise UserError(f"{package} is not a package of pacman's: it has no .PKGINFO")
    _check(package, found[1])
