# SPDX-License-Identifier: MIT
"""Find the one kernel in a folder: its image, its modules, its configuration.

A folder holds the unpacked packages of a distribution, or a kernel that somebody built. It is ``/``
for the links in it: none leads out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from icountvm.bzimage import read_image, release_of
from iolab_base.errors import UserError
from iolab_base.reading import RefusedFileError, in_root

# Where distributions put modules; newer ones put the whole kernel there.
_BASES: Final = ("lib/modules", "usr/lib/modules")
# The kernel's own lists of modules: they mark the top of a build.
_LISTS: Final = ("modules.order", "modules.builtin")


@dataclass(frozen=True)
class Found:
    """A kernel's files.

    The modules and their links lie below `root`, and ``modules`` is a folder with them somewhere
    below, or None if everything is built in. The paths contain no link.
    """

    root: Path
    image: bytes
    release: str
    modules: Path | None
    config: Path | None


def inside(root: Path, name: str | PurePath) -> Path:
    """Return the target of a path below a kernel's folder; UserError for a circular link."""
    try:
        return in_root(root, PurePath(name))
    except RefusedFileError as error:
        raise UserError(f"cannot read {name}: {error.strerror}") from error


def in_packages(root: Path) -> Found:
    """Find the one kernel, with its modules, in unpacked packages of a distribution.

    Debian, Ubuntu, Fedora, openSUSE and Arch put files in boot/ or beside the modules, and some
    link one to the other.
    """
    root = root.resolve()
    images = [*_matching(root, "boot", "vmlinuz-*"), *_beside_modules(root)]
    image, release = _only(images, root, "the packages contain")
    modules = next((m for b in _BASES if _is_modules(m := inside(root, f"{b}/{release}"))), None)
    if modules is None:
        raise UserError(
            f"the packages contain no modules for {release}: give the linux-modules or "
            "kernel-modules-core package too"
        )
    return Found(root, image, release, modules, _config(root, release))


def _is_modules(folder: Path) -> bool:
    return (folder / "kernel").is_dir()


def in_folder(folder: Path) -> Found | None:
    """Find the one kernel in a build, an installation, or a folder of loose files; else None.

    A build may lack ``modules_install``. Loose files are a bzImage or a vmlinux, alone or with
    ``lib/modules/RELEASE``. No part of the folder's path may be a link. Raises UserError for
    several kernels, or for a lone vmlinux that QEMU cannot enter.
    """
    images = (
        _matching(folder, "arch/x86/boot", "bzImage")
        or [x for name in ("bzImage", "vmlinuz", "vmlinuz-*") for x in _matching(folder, ".", name)]
        or [*_matching(folder, "boot", "vmlinuz-*"), *_beside_modules(folder)]
        or _matching(folder, ".", "vmlinux")
    )
    if not images:
        return None
    image, release = _only(images, folder, f"{folder} has")
    places = [inside(folder, f"{base}/{release}") for base in _BASES]
    places.append(inside(folder, release))
    if folder.name == release or any((folder / name).is_file() for name in _LISTS):
        places.append(folder)
    modules = next((place for place in places if place.is_dir()), None)
    return Found(folder, image, release, modules, _config(folder, release))


def _matching(root: Path, folder: str, pattern: str) -> list[Path]:
    """Return the targets of the names in a folder that match a pattern."""
    return [inside(root, path.relative_to(root)) for path in inside(root, folder).glob(pattern)]


def _beside_modules(root: Path) -> list[Path]:
    found = (path for base in _BASES for path in _matching(root, base, "*"))
    return [inside(root, path.relative_to(root) / "vmlinuz") for path in found]


def _only(images: Iterable[Path], root: Path, where: str) -> tuple[bytes, str]:
    """Return the one image and its release; links to it do not count as others."""
    found = sorted({path for path in images if path.is_file()})
    if len(found) != 1:
        number = "no kernel (vmlinuz)" if not found else f"{len(found)} kernels"
        raise UserError(f"{where} {number}: give those of exactly one")
    image = read_image(found[0], below=root)
    return image, release_of(image, found[0].name)


def _config(root: Path, release: str) -> Path | None:
    names = [f"boot/config-{release}"]
    # Arch ships it only in the package of the headers.
    names += [f"{base}/{release}/{name}" for base in _BASES for name in ("config", "build/.config")]
    names += [".config", f"config-{release}", "config"]
    return next((path for name in names if (path := inside(root, name)).is_file()), None)
