# SPDX-License-Identifier: MIT
"""Catalogue of stock kernels, and the packages that carry them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from iolab.errors import CannotRunError, IolabError
from iolab.files import cache_dir
from iolab.vm.cached import make_folder
from iolab.vm.deb import unpack
from iolab.vm.index import Package
from iolab.vm.mirror import Archive, mirror_of
from iolab.vm.suites import Suite, Suites

__all__ = ["CATALOGUE", "Source", "download_kernel", "find_kernel"]


@dataclass(frozen=True)
class Source:
    """The packages of a kernel.

    Parameters
    ----------
    archive : str
        ``debian`` or ``ubuntu``.
    suites : tuple of str
        Suites; the first one with a matching package provides the kernel.
    pattern : str
        Regular expression for the whole name of the kernel's package.
    companions : tuple of str
        Prefixes of further packages of the kernel, on which its package does not depend.
    """

    archive: Archive
    suites: tuple[str, ...]
    pattern: str
    companions: tuple[str, ...] = ()


# The patterns exclude flavours (cloud, rt, dbg, unsigned).
CATALOGUE: Mapping[str, Source] = {
    "5.10": Source("debian", ("bullseye",), r"linux-image-5\.10\.0-\d+-amd64"),
    "6.1": Source("debian", ("bookworm",), r"linux-image-6\.1\.0-\d+-amd64"),
    "6.8": Source(
        "ubuntu",
        ("noble-updates", "noble"),
        r"linux-image-unsigned-6\.8\.0-\d+-generic",
        ("linux-modules-", "linux-modules-extra-"),
    ),
    "6.12": Source(
        "debian",
        ("bookworm-backports", "trixie"),
        r"linux-image-6\.12\.\d+\+deb\d+(\.\d+)?-amd64",
    ),
    "7.2": Source("debian", ("trixie-backports",), r"linux-image-7\.2\.\d+\+deb\d+(\.\d+)?-amd64"),
}

# Debian's newer packaging splits a kernel: its package depends on the parts in its own version.
_PART = re.compile(r"(linux-(?:base|binary|modules)-[^ ,]+) \(= [^)]*\)")


def _ubuntu_keyring() -> Path:
    """Return the keys that sign Ubuntu's archive, from Debian's package of them."""

    def make(folder: Path) -> None:
        (deb,) = Suites([Suite("debian", "trixie")]).download(["ubuntu-keyring"], folder)
        unpack(deb, folder)
        deb.unlink()

    folder = make_folder(cache_dir("archives", "ubuntu-keyring"), make)
    return folder / "usr" / "share" / "keyrings" / "ubuntu-archive-keyring.gpg"


def find_kernel(
    name: str, progress: Callable[[str], None] = lambda _: None
) -> tuple[Suites, Package]:
    """Find the newest package of a catalogued kernel.

    Parameters
    ----------
    name : str
        A key of `CATALOGUE`.
    progress : callable
        Gets a line before each download.

    Returns
    -------
    Suites
        What downloads it.
    Package
        The package.

    Raises
    ------
    CannotRunError
        If no suite that carries it can be reached.
    """
    source = CATALOGUE[name]
    problem: IolabError | None = None
    try:
        mirror_of(source.archive)
        keyring = _ubuntu_keyring() if source.archive == "ubuntu" else None
        for suite in source.suites:
            suites = Suites([Suite(source.archive, suite)], keyring=keyring)
            try:
                suites.refresh(progress)
            except CannotRunError as error:
                problem = problem or error
                continue
            if package := suites.newest(source.pattern):
                return suites, package
            problem = problem or CannotRunError(f"{suites.suites[0]} carries no such kernel")
    except IolabError as error:
        problem = error
    raise CannotRunError(
        f"{name} cannot be fetched here: {problem}, or give the packages with "
        f"`iolab kernels add {name} FILE.deb ...`"
    ) from problem


def download_kernel(name: str, suites: Suites, package: Package, into: Path) -> list[Path]:
    """Download a kernel's package and those of its modules and configuration.

    Parameters
    ----------
    name : str
        A key of `CATALOGUE`.
    suites, package
        As `find_kernel` returns them.
    into : Path
        The folder for the files.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    IolabError
        If a package cannot be fetched or arrives damaged.
    """
    parts = _PART.findall(package.depends)
    release = re.sub(r"^linux-image-(unsigned-)?", "", package.name)
    parts += [prefix + release for prefix in CATALOGUE[name].companions]
    names = [f"{part}={package.version}" for part in (package.name, *parts)]
    return suites.download(names, into)
