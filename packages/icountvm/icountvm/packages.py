# SPDX-License-Identifier: MIT
"""Packages of distributions as files: .deb, .rpm and pacman's, unpacked without their tools.

Signatures are not checked: the user vouches for the files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from icountvm.archives import MOST_BYTES, DamagedPackageError, package_faults, unpack_tar
from icountvm.compressed import decompressed
from icountvm.deb import control_fields, unpack
from icountvm.rpm import architecture, unpack_rpm
from iolab_base.errors import UserError
from iolab_base.reading import read_regular

# The packages' names of the machine's architecture, and of none in particular.
_FITS: Final = frozenset({"amd64", "all", "x86_64", "noarch", "any"})
_PACMAN: Final = re.compile(r".+\.pkg\.tar(\.\w+)?")


def is_package(path: Path) -> bool:
    """Return whether a file's name is that of a package."""
    return path.suffix in {".deb", ".rpm"} or _PACMAN.fullmatch(path.name) is not None


def unpack_package(package: Path, root: Path) -> None:
    """Unpack a package's files into `root`, without running its scripts.

    Raises UserError for a damaged package, or one for another architecture.
    """
    try:
        if package.suffix == ".deb":
            _check(package, control_fields(package).get("Architecture", ""))
            unpack(package, root)
        elif package.suffix == ".rpm":
            _check(package, architecture(package))
            unpack_rpm(package, root)
        else:
            _unpack_pacman(package, root)
    except DamagedPackageError as error:
        raise UserError(str(error)) from error


def _check(package: Path, architecture: str) -> None:
    if architecture not in _FITS:
        raise UserError(f"{package} is for {architecture[:40]}: the virtual machines are amd64")


def _unpack_pacman(package: Path, root: Path) -> None:
    """Unpack a package of Arch: a tar archive with a description in .PKGINFO."""
    about = root / ".PKGINFO"
    with package_faults(package), package.open("rb") as stream:
        about.unlink(missing_ok=True)
        unpack_tar(decompressed(stream, MOST_BYTES), root)
        text = read_regular(about, below=root).decode(errors="replace") if about.exists() else ""
    found = re.search(r"^arch *= *(\S+)", text, re.MULTILINE)
    if found is None:
        raise UserError(f"{package} is not a package of pacman's: it has no .PKGINFO")
    _check(package, found[1])
