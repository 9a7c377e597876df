# SPDX-License-Identifier: MIT
"""Kernels in the cache: fetched from the archive that carries them, or added by the user.

The cache keeps a kernel's image, configuration and wanted modules. A kernel that the user added
takes precedence over one of the catalogue with the same name; the kernels of two locks lie side by
side.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from icountvm.bzimage import KERNEL_NAME, read_image, release_of
from icountvm.catalogue import CATALOGUE, kernel_group
from icountvm.deb import unpack
from icountvm.found import Found, in_folder, in_packages, inside
from icountvm.install import contents, install
from icountvm.modules import WANTED
from icountvm.packages import is_package, unpack_package
from icountvm.parts import (
    LockedPart,
    check_offered,
    fetch_parts,
    locked_parts,
    parts_digest,
    read_lock,
)
from icountvm.toolbox import ensure_toolbox
from iolab_base.cached import DAMAGED, make_folder
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import (
    atomic_write,
    cache_dir,
    canonical_json,
    digest_file,
    digest_of,
    scratch_dir,
)
from iolab_base.names import nearest

_log = logging.getLogger(__name__)

# Recorded as the source of a kernel that the user added.
_BY_USER = "given by the user"


@dataclass(frozen=True)
class Kernel:
    """A kernel in the cache.

    The name is the user's, such as ``6.12``; the release is that of ``uname -r``. ``modules`` is
    its ``lib/modules/RELEASE`` with the wanted modules. The identity is a SHA-256 over image,
    configuration and modules. The source is package and version, or "given by the user".
    """

    name: str
    release: str
    vmlinuz: Path
    config: Path | None
    modules: Path
    identity: str
    source: str


@dataclass(frozen=True)
class KernelStatus:
    """The state of one kernel, why it is unreachable, and the facts from its last boot."""

    name: str
    state: Literal["cached", "fetchable", "unreachable"]
    reason: str = ""
    source: str = ""
    release: str = ""
    facts: Mapping[str, Any] | None = None


def _locked_folder(name: str) -> Path:
    # Another iolab wants other modules: its kernels lie beside ours.
    parts, wanted = read_lock().get(kernel_group(name), []), digest_of(WANTED)[:8]
    return cache_dir("locked-kernels", f"{name}-{parts_digest(parts)}-{wanted}")


def known_kernels() -> list[str]:
    """Return the names of the kernels of the catalogue, then of those that the user added."""
    cached = (path.parent.name for path in cache_dir().glob("kernels/*/kernel.json"))
    return [*CATALOGUE, *sorted(set(cached) - set(CATALOGUE))]


def cached_kernel(name: str) -> Kernel | None:
    """Return a kernel of the cache if its files are unchanged, else None."""
    kernel = _kept(name, cache_dir("kernels", name))
    if kernel is None and name in CATALOGUE:
        kernel = _kept(name, _locked_folder(name))
    return kernel


def _kept(name: str, folder: Path) -> Kernel | None:
    try:
        recorded = json.loads((folder / "kernel.json").read_text())
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in contents(folder)}
        if sizes != recorded["sizes"] or digest_file(folder / "vmlinuz") != recorded["vmlinuz"]:
            return None
        config = folder / "config"
        return Kernel(
            name=name,
            release=recorded["release"],
            vmlinuz=folder / "vmlinuz",
            config=config if config.exists() else None,
            modules=folder / "lib" / "modules" / recorded["release"],
            identity=recorded["identity"],
            source=recorded["source"],
        )
    except DAMAGED:
        return None


def check_name(name: str) -> None:
    """Raise UserError, which names the known kernels, unless a kernel of this name is known."""
    if KERNEL_NAME.fullmatch(name) is None or name not in known_kernels():
        raise UserError(
            f"unknown kernel {name!r}: known are {', '.join(known_kernels())}"
            f"{nearest(name, known_kernels(), cutoff=0.5)} "
            "(`iolab kernels add NAME FILE...` adds one)"
        )


def get_kernel(name: str) -> Kernel:
    """Return a kernel; fetch it if it is one of the catalogue and the cache lacks it."""
    check_name(name)
    if (kernel := cached_kernel(name)) is not None:
        return kernel
    if name not in CATALOGUE:
        raise UserError(f"kernel {name} is damaged in the cache: add it again")

    def make(folder: Path) -> None:
        parts = _fetchable(name)
        toolbox = ensure_toolbox()
        with scratch_dir(folder.parent) as work:
            _log.info("downloading %s", _source(parts))
            debs = fetch_parts(parts, work, f"kernel {name}")
            _log.info("unpacking %s", parts[0].name)
            for deb in debs:
                unpack(deb, work / "root")
                deb.unlink()
            found = in_packages(work / "root")
            install(folder, found, source=_source(parts), toolbox=toolbox)

    return _made(name, _locked_folder(name), make, lambda _: cached_kernel(name) is not None)


def _fetchable(name: str) -> list[LockedPart]:
    """Return the locked packages of a kernel if they can be fetched here."""
    try:
        parts = locked_parts(kernel_group(name))
        check_offered(parts[0])
    except CannotRunError as error:
        raise CannotRunError(
            f"{name} cannot be fetched here: {error}, or give the packages with "
            f"`iolab kernels add {name} FILE.deb ...`"
        ) from error
    return parts


def _source(parts: Sequence[LockedPart]) -> str:
    """Return the kernel's own package, which is the first one."""
    return f"{parts[0].name} {parts[0].version}"


def check_new_name(name: str) -> None:
    """Raise UserError if no kernel may have this name."""
    if KERNEL_NAME.fullmatch(name) is None:
        raise UserError(f"invalid kernel name {name!r}: use letters, digits and . _ + -")


def add_kernel(name: str, files: Sequence[Path]) -> Kernel:
    """Add a kernel of the user's to the cache; it replaces one of the same name.

    The files are its packages (.deb, .rpm, .pkg.tar.*), one image and its ``lib/modules/RELEASE``,
    or a folder with both (`icountvm.found.in_folder`). Raises UserError unless they are exactly one
    whole kernel for x86-64.
    """
    check_new_name(name)
    for path in files:
        if not path.exists():
            raise UserError(f"no such file: {path}")
    packages = [path for path in files if path.is_file() and is_package(path)]
    found = None if packages else _given(files)
    if (found is None) != (0 < len(packages) == len(files)):
        raise UserError(
            "give the kernel's packages (.deb, .rpm or .pkg.tar.*), or one vmlinuz and one modules "
            "directory, or the directory of a build"
        )

    def make(folder: Path) -> None:
        toolbox = ensure_toolbox()
        if found is not None:
            install(folder, found, source=_BY_USER, toolbox=toolbox)
            return
        with scratch_dir(folder.parent) as work:
            for package in packages:
                _log.info("unpacking %s", package.name)
                unpack_package(package, work)
            install(folder, in_packages(work), source=_BY_USER, toolbox=toolbox)

    return _made(name, cache_dir("kernels", name), make)


def _given(files: Sequence[Path]) -> Found | None:
    """Return the kernel in files that are not packages, or None."""
    images = [path for path in files if path.is_file()]
    folders = [path.resolve() for path in files if path.is_dir()]
    if (len(images), len(folders)) == (0, 1):
        return in_folder(folders[0])
    if (len(images), len(folders)) != (1, 1):
        return None
    image = read_image(images[0])
    release = release_of(image, images[0].name)
    if release != folders[0].name:
        raise UserError(
            f"{images[0]} is {release}, but the modules are for {folders[0].name}: "
            "give the directory lib/modules/RELEASE of the same kernel"
        )
    config = inside(images[0].resolve().parent, f"config-{release}")
    return Found(folders[0], image, release, folders[0], config if config.is_file() else None)


def add_built_kernel(name: str, found: Found, *, source: str, built: Mapping[str, Any]) -> Kernel:
    """Add a kernel that iolab built to the cache; it replaces one of the same name.

    `source` describes its origin; `built` is JSON that is kept beside the kernel.
    """
    check_new_name(name)

    def make(folder: Path) -> None:
        install(folder, found, source=source, toolbox=ensure_toolbox(), built=built)

    return _made(name, cache_dir("kernels", name), make)


def _made(
    name: str,
    folder: Path,
    make: Callable[[Path], None],
    good: Callable[[Path], bool] = lambda _: False,
) -> Kernel:
    make_folder(folder, make, good=good)
    kernel = cached_kernel(name)
    if kernel is None:
        raise IolabError(f"kernel {name} disappeared from the cache: try again")
    return kernel


def list_kernels() -> list[KernelStatus]:
    """Return the state of each kernel; query the archives for those that the cache lacks."""
    return [_status(name) for name in known_kernels()]


def _status(name: str) -> KernelStatus:
    if (kernel := cached_kernel(name)) is not None:
        return KernelStatus(
            name, "cached", source=kernel.source, release=kernel.release, facts=_facts(kernel)
        )
    if name not in CATALOGUE:
        return KernelStatus(name, "unreachable", "damaged in the cache: add it again")
    try:
        parts = _fetchable(name)
    except CannotRunError as error:
        return KernelStatus(name, "unreachable", str(error))
    release = re.sub(r"^linux-image-(unsigned-)?", "", parts[0].name)
    return KernelStatus(name, "fetchable", source=_source(parts), release=release)


def kernel_facts(name: str) -> Mapping[str, Any]:
    """Return what a kernel of the cache reported at its last boot; {} if unknown."""
    kernel = cached_kernel(name)
    return (_facts(kernel) if kernel else None) or {}


def _facts(kernel: Kernel) -> Mapping[str, Any] | None:
    try:
        recorded = json.loads((kernel.vmlinuz.parent / "facts.json").read_text())
        return recorded["facts"] if recorded["identity"] == kernel.identity else None
    except DAMAGED:
        return None


def remember_kernel_facts(kernel: Kernel, facts: Mapping[str, Any]) -> None:
    """Store what a booted kernel reported, for `list_kernels`."""
    recorded = {"identity": kernel.identity, "facts": dict(facts)}
    atomic_write(kernel.vmlinuz.parent / "facts.json", canonical_json(recorded))
