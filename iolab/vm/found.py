# SPDX-License-Identifier: MIT
"""Find the one kernel in a folder: its image, its modules, its configuration.

A folder is what packages of a distribution unpack to, or where somebody built a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iolab.errors import UserError
from iolab.vm.bzimage import release_of

__all__ = ["Found", "in_folder", "in_packages"]

# Where distributions put modules, and newer ones everything else of a kernel, too.
_BASES: Final = ("lib/modules", "usr/lib/modules")
# The kernel's own lists of modules: they mark the top of a build.
_LISTS: Final = ("modules.order", "modules.builtin")


@dataclass(frozen=True)
class Found:
    """A kernel's files.

    Parameters
    ----------
    vmlinuz : Path
        The image.
    modules : Path or None
        A folder that has its modules somewhere below; None if all is built in.
    config : Path or None
        Its configuration.
    """

    vmlinuz: Path
    modules: Path | None
    config: Path | None


def in_packages(root: Path) -> Found:
    """Find the kernel in the unpacked packages of a distribution.

    Debian, Ubuntu, Fedora, openSUSE and Arch differ in whether files lie in boot/ or beside the
    modules, and some link the one to the other.

    Parameters
    ----------
    root : Path
        The folder that the packages take for ``/``.

    Raises
    ------
    UserError
        If they do not hold exactly one kernel with its modules.
    """
    image = _only(
        [*root.glob("boot/vmlinuz-*"), *_beside_modules(root)], root, "the packages contain"
    )
    release = release_of(image)
    modules = next((m for b in _BASES if ((m := root / b / release) / "kernel").is_dir()), None)
    if modules is None:
        raise UserError(
            f"the packages contain no modules for {release}: give the linux-modules or "
            "kernel-modules-core package too"
        )
    return Found(image, modules, _config(root, release))


def in_folder(folder: Path) -> Found | None:
    """Find the kernel in a folder of somebody's: a build, an installation, or loose files.

    Parameters
    ----------
    folder : Path
        The top of a kernel's build, with or without ``modules_install`` to it; a root directory; or
        a folder with a bzImage or a vmlinux, alone or with ``lib/modules/RELEASE``.

    Returns
    -------
    Found or None
        None if it has no image of a kernel.

    Raises
    ------
    UserError
        If it has several kernels, or a vmlinux alone that QEMU cannot enter.
    """
    for names in (("arch/x86/boot/bzImage",), ("bzImage", "vmlinuz", "vmlinuz-*")):
        images = [path for name in names for path in folder.glob(name)]
        if images:
            break
    else:
        images = [*folder.glob("boot/vmlinuz-*"), *_beside_modules(folder)]
    if not images and (folder / "vmlinux").is_file():
        images = [folder / "vmlinux"]
    if not images:
        return None
    image = _only(images, folder, f"{folder} has")
    release = release_of(image)
    places = [folder / base / release for base in _BASES] + [folder / release]
    if folder.name == release or any((folder / name).is_file() for name in _LISTS):
        places.append(folder)
    modules = next((place for place in places if place.is_dir()), None)
    return Found(image, modules, _config(folder, release))


def _beside_modules(root: Path) -> list[Path]:
    return [path for base in _BASES for path in root.glob(f"{base}/*/vmlinuz")]


def _only(images: Iterable[Path], root: Path, where: str) -> Path:
    """Return the one image; links to it count as it, and those that lead elsewhere do not count."""
    inside = {path.resolve() for path in images}
    found = sorted(p for p in inside if p.is_file() and p.is_relative_to(root.resolve()))
    if len(found) != 1:
        number = "no kernel (vmlinuz)" if not found else f"{len(found)} kernels"
        raise UserError(f"{where} {number}: give those of exactly one")
    return found[0]


def _config(root: Path, release: str) -> Path | None:
    names = [f"boot/config-{release}"]
    # Arch has it in the package of the headers only.
    names += [f"{base}/{release}/{name}" for base in _BASES for name in ("config", "build/.config")]
    names += [".config", f"config-{release}", "config"]
    return next((path for name in names if (path := root / name).is_file()), None)
