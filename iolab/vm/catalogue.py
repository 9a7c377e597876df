# SPDX-License-Identifier: MIT
"""The stock kernels that iolab knows, and the packages in which an archive carries each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from iolab.errors import CannotRunError, IolabError
from iolab.files import cache_dir
from iolab.vm.apt import Package, PrivateApt, Suite
from iolab.vm.cached import make_folder
from iolab.vm.deb import unpack
from iolab.vm.mirror import Archive, mirror_of

__all__ = ["CATALOGUE", "Source", "download_kernel", "find_kernel"]


@dataclass(frozen=True)
class Source:
    """Where a kernel comes from: the first of `suites` that has a package named `pattern`.

    `companions` are prefixes of packages with the rest of a kernel that its package does not name.
    """

    archive: Archive
    suites: tuple[str, ...]
    pattern: str
    companions: tuple[str, ...] = ()


# The patterns end where the name of a flavour (cloud, rt, dbg, unsigned) would begin.
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

# Parts of the newer packaging, which the kernel's package asks for in its own version.
_PART = re.compile(r"(linux-(?:base|binary|modules)-[^ ,]+) \(= [^)]*\)")


def _ubuntu_keyring() -> Path:
    """Return the keys that sign Ubuntu's archive, from Debian's package of them."""

    def make(folder: Path) -> None:
        (deb,) = PrivateApt([Suite("debian", "trixie")]).download(["ubuntu-keyring"], folder)
        unpack(deb, folder)
        deb.unlink()

    made = make_folder(cache_dir() / "apt" / "ubuntu-keyring", make)
    return made / "usr" / "share" / "keyrings" / "ubuntu-archive-keyring.gpg"


def find_kernel(
    name: str, progress: Callable[[str], None] = lambda _: None
) -> tuple[PrivateApt, Package]:
    """Return the newest package of a catalogued kernel, and the apt that downloads it.

    Errors: CannotRunError if no suite that should carry it can be reached.
    """
    source = CATALOGUE[name]
    problem: IolabError | None = None
    try:
        mirror_of(source.archive)
        keyring = _ubuntu_keyring() if source.archive == "ubuntu" else None
        for suite in source.suites:
            apt = PrivateApt([Suite(source.archive, suite)], keyring=keyring)
            try:
                apt.refresh(progress)
            except CannotRunError as error:
                problem = problem or error
                continue
            if package := apt.newest(source.pattern):
                return apt, package
            problem = problem or CannotRunError(f"{apt.suites[0]} carries no such kernel")
    except IolabError as error:
        problem = error
    raise CannotRunError(
        f"{name} cannot be fetched here: {problem}, or give the packages with "
        f"`iolab kernels add {name} FILE.deb ...`"
    ) from problem


def download_kernel(name: str, apt: PrivateApt, package: Package, into: Path) -> list[Path]:
    """Download a kernel's package with the others that hold its modules and configuration.

    Errors: IolabError if one cannot be fetched or is damaged.
    """
    parts = _PART.findall(package.depends)
    release = re.sub(r"^linux-image-(unsigned-)?", "", package.name)
    parts += [prefix + release for prefix in CATALOGUE[name].companions]
    names = [f"{part}={package.version}" for part in (package.name, *parts)]
    return apt.download(names, into)
