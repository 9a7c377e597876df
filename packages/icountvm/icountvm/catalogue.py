# SPDX-License-Identifier: MIT
"""Catalogue of stock kernels, and the packages that make up the groups of `parts.lock`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from icountvm.mirror import Archive


@dataclass(frozen=True)
class PartSource:
    """Where to look for the packages of a group when a lock is written.

    Of several suites the first is preferred, whatever the version. A group is `packages` with all
    their dependencies, or the newest single package whose whole name matches `pattern`, plus its
    `companions`: prefixes of kernel packages that it does not depend on.
    """

    archive: Archive
    suites: tuple[str, ...]
    packages: tuple[str, ...] = ()
    pattern: str = ""
    companions: tuple[str, ...] = ()


# The patterns exclude flavours (cloud, rt, dbg, unsigned).
CATALOGUE: Mapping[str, PartSource] = {
    "5.10": PartSource("debian", ("bullseye",), pattern=r"linux-image-5\.10\.0-\d+-amd64"),
    "6.1": PartSource("debian", ("bookworm",), pattern=r"linux-image-6\.1\.0-\d+-amd64"),
    # Ubuntu's archive keeps released packages; it removes updates after some weeks.
    "6.8": PartSource(
        "ubuntu",
        ("noble",),
        pattern=r"linux-image-unsigned-6\.8\.0-\d+-generic",
        companions=("linux-modules-", "linux-modules-extra-"),
    ),
    "6.12": PartSource(
        "debian",
        ("bookworm-backports",),
        pattern=r"linux-image-6\.12\.\d+\+deb\d+(\.\d+)?-amd64",
    ),
    "7.2": PartSource(
        "debian", ("trixie-backports",), pattern=r"linux-image-7\.2\.\d+\+deb\d+(\.\d+)?-amd64"
    ),
}


def kernel_group(name: str) -> str:
    """Return the group of a kernel of the catalogue."""
    return f"kernel-{name}"


_USERLAND = (
    *("btrfs-progs", "busybox-static", "coreutils", "dmsetup", "e2fsprogs", "f2fs-tools", "fio"),
    *("kmod", "libpython3-stdlib", "python3-minimal", "trace-cmd", "xfsprogs"),
)

SOURCES: Mapping[str, PartSource] = {
    # bookworm's own QEMU is too old.
    "toolbox": PartSource(
        "debian", ("bookworm-backports", "bookworm"), ("kmod", "qemu-system-x86")
    ),
    "image": PartSource("debian", ("bookworm",), _USERLAND),
    # Beside that of the image: what changed since, such as RWF_DONTCACHE, needs it.
    "fio": PartSource("debian", ("forky",), ("fio",)),
    "tcc": PartSource("debian", ("bookworm",), pattern="tcc"),
    **{kernel_group(name): source for name, source in CATALOGUE.items()},
}
