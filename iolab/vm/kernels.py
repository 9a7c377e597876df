# SPDX-License-Identifier: MIT
"""Kernels in the cache: fetched from the archive that carries them, or added by the user.

The cache keeps a kernel's image, configuration and wanted modules. It never replaces a kernel by
another one unless the user adds one of the same name.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from iolab.errors import IolabError, UserError
from iolab.files import (
    atomic_write,
    cache_dir,
    canonical_json,
    digest_file,
    digest_of,
    scratch_dir,
)
from iolab.names import nearest
from iolab.vm.cached import make_folder
from iolab.vm.catalogue import CATALOGUE, download_kernel, find_kernel
from iolab.vm.deb import DamagedPackageError, control_fields, unpack
from iolab.vm.modules import install_modules
from iolab.vm.toolbox import Toolbox, ensure_toolbox

__all__ = [
    "Kernel",
    "KernelStatus",
    "add_kernel",
    "cached_kernel",
    "check_name",
    "get_kernel",
    "known_kernels",
    "list_kernels",
    "remember_kernel_facts",
]

# Recorded as the source of a kernel that the user added.
_BY_USER = "given by the user"
_ARCHITECTURE = "amd64"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_KEPT = ("vmlinuz", "config", "lib")


@dataclass(frozen=True)
class Kernel:
    """A kernel in the cache.

    Parameters
    ----------
    name : str
        The user's name for it, such as ``6.12``.
    release : str
        As ``uname -r`` prints it.
    vmlinuz : Path
        The image.
    config : Path or None
        The configuration, if known.
    modules : Path
        Its ``lib/modules/RELEASE`` with the wanted modules.
    identity : str
        SHA-256 over image, configuration and modules.
    source : str
        Package and version, or "given by the user".
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
    """The state of one kernel.

    Parameters
    ----------
    name : str
        The kernel.
    state : str
        ``cached``, ``fetchable`` or ``unreachable``.
    reason : str
        Why it is unreachable.
    source, release : str
        As for `Kernel`, if known.
    facts : mapping, optional
        What it reported when it was booted.
    """

    name: str
    state: Literal["cached", "fetchable", "unreachable"]
    reason: str = ""
    source: str = ""
    release: str = ""
    facts: Mapping[str, Any] | None = None


def _folder(name: str) -> Path:
    return cache_dir() / "kernels" / name


def known_kernels() -> list[str]:
    """Return the names of the kernels of the catalogue, then of those that the user added."""
    cached = (path.parent.name for path in cache_dir().glob("kernels/*/kernel.json"))
    return [*CATALOGUE, *sorted(set(cached) - set(CATALOGUE))]


def _contents(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).parts[0] in _KEPT:
            yield path


def cached_kernel(name: str) -> Kernel | None:
    """Return a kernel of the cache if its files are still what was put there, else None."""
    folder = _folder(name)
    try:
        recorded = json.loads((folder / "kernel.json").read_text())
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in _contents(folder)}
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
    except (OSError, ValueError, KeyError):
        return None


def _release_of(vmlinuz: Path) -> str:
    """Return the release in a kernel image's boot header.

    The header has "HdrS" at 0x202 and the offset of the version string, less 0x200, at 0x20e
    (Documentation/arch/x86/boot.rst). Raises UserError for any other file.
    """
    with vmlinuz.open("rb") as stream:
        head = stream.read(0x10000)
    at = int.from_bytes(head[0x20E:0x210], "little") + 0x200
    release = head[at : head.find(b"\0", at)].split(b" ")[0].decode(errors="replace")
    if head[0x202:0x206] != b"HdrS" or not _NAME.fullmatch(release):
        raise UserError(f"{vmlinuz.name} is not a Linux kernel for x86: it has no boot header")
    return release


def _install(
    folder: Path,
    vmlinuz: Path,
    modules: Path,
    *,
    config: Path | None,
    source: str,
    toolbox: Toolbox,
) -> None:
    """Copy a kernel's image, configuration and wanted modules to `folder`, with their digests."""
    release = _release_of(vmlinuz)
    shutil.copyfile(vmlinuz, folder / "vmlinuz")
    if config is not None:
        shutil.copyfile(config, folder / "config")
    install_modules(modules, folder / "lib" / "modules" / release, toolbox)
    digests = {str(path.relative_to(folder)): digest_file(path) for path in _contents(folder)}
    recorded = {
        "release": release,
        "source": source,
        "identity": digest_of(digests),
        "vmlinuz": digests["vmlinuz"],
        "sizes": {name: (folder / name).stat().st_size for name in digests},
    }
    atomic_write(folder / "kernel.json", canonical_json(recorded))


def _install_unpacked(folder: Path, root: Path, source: str, toolbox: Toolbox) -> None:
    """Install the kernel in unpacked packages, of Debian's older or newer packaging."""
    bases = [root / "lib" / "modules", root / "usr" / "lib" / "modules"]
    images = sorted(root.glob("boot/vmlinuz-*"))
    images += [path for base in bases for path in sorted(base.glob("*/vmlinuz"))]
    if len(images) != 1:
        number = "no kernel (vmlinuz)" if not images else f"{len(images)} kernels"
        raise UserError(f"the packages contain {number}: give those of exactly one")
    release = _release_of(images[0])
    for base in bases:
        if (base / release / "kernel").is_dir():
            modules = base / release
            break
    else:
        raise UserError(
            f"the packages contain no modules for {release}: give the linux-modules package too"
        )
    configs = [root / "boot" / f"config-{release}", *(base / release / "config" for base in bases)]
    config = next((path for path in configs if path.is_file()), None)
    _install(folder, images[0], modules, config=config, source=source, toolbox=toolbox)


def check_name(name: str) -> None:
    """Check that a kernel has this name, without fetching it.

    Raises
    ------
    UserError
        If none has; it lists the known kernels and suggests the nearest.
    """
    if _NAME.fullmatch(name) is None or name not in known_kernels():
        raise UserError(
            f"unknown kernel {name!r}: known are {', '.join(known_kernels())}"
            f"{nearest(name, known_kernels(), cutoff=0.5)} "
            "(`iolab kernels add NAME FILE...` adds one)"
        )


def get_kernel(name: str, progress: Callable[[str], None] = lambda _: None) -> Kernel:
    """Return a kernel; fetch it if the cache lacks it.

    Parameters
    ----------
    name : str
        A kernel of the catalogue, or one that the user added.
    progress : callable
        Gets a line before each slow step.

    Raises
    ------
    UserError
        If the name is unknown, or an added kernel is damaged.
    CannotRunError
        If the kernel's archive cannot be reached.
    """
    check_name(name)
    if (kernel := cached_kernel(name)) is not None:
        return kernel
    if name not in CATALOGUE:
        raise UserError(f"kernel {name} is damaged in the cache: add it again")

    def make(folder: Path) -> None:
        apt, package = find_kernel(name, progress)
        toolbox = ensure_toolbox(progress)
        with scratch_dir(folder.parent) as work:
            progress(f"downloading {package.name} {package.version}")
            debs = download_kernel(name, apt, package, work)
            progress(f"unpacking {package.name}")
            for deb in debs:
                unpack(deb, work / "root")
                deb.unlink()
            source = f"{package.name} {package.version}"
            _install_unpacked(folder, work / "root", source, toolbox)

    make_folder(_folder(name), make, good=lambda _: cached_kernel(name) is not None)
    kernel = cached_kernel(name)
    if kernel is None:
        raise IolabError(f"kernel {name} disappeared from the cache: try again")
    return kernel


def _unpack_users(debs: Sequence[Path], root: Path) -> None:
    for deb in debs:
        try:
            architecture = control_fields(deb).get("Architecture", "")
            if architecture not in {_ARCHITECTURE, "all"}:
                raise UserError(
                    f"{deb} is for {architecture}: the virtual machines are {_ARCHITECTURE}"
                )
            unpack(deb, root)
        except DamagedPackageError as error:
            raise UserError(str(error)) from error


def add_kernel(
    name: str, files: Sequence[Path], progress: Callable[[str], None] = lambda _: None
) -> Kernel:
    """Add a kernel of the user's to the cache; it replaces one of the same name.

    Parameters
    ----------
    name : str
        The name to use for it.
    files : sequence of Path
        Its ``.deb`` packages, or one kernel image and its ``lib/modules/RELEASE``.
    progress : callable
        Gets a line before each slow step.

    Raises
    ------
    UserError
        If the files are damaged, not for x86-64, or not exactly one kernel.
    """
    if _NAME.fullmatch(name) is None:
        raise UserError(f"invalid kernel name {name!r}: use letters, digits and . _ + -")
    for path in files:
        if not path.exists():
            raise UserError(f"no such file: {path}")
    debs = [path for path in files if path.suffix == ".deb"]
    images = [path for path in files if path.is_file() and path.suffix != ".deb"]
    folders = [path.resolve() for path in files if path.is_dir()]
    unpacked = (len(debs), len(images), len(folders)) == (0, 1, 1)
    if not unpacked and (not debs or images or folders):
        raise UserError("give the kernel's .deb files, or one vmlinuz and one modules directory")
    if unpacked and _release_of(images[0]) != folders[0].name:
        raise UserError(
            f"{images[0]} is {_release_of(images[0])}, but the modules are for {folders[0].name}: "
            "give the directory lib/modules/RELEASE of the same kernel"
        )

    def make(folder: Path) -> None:
        toolbox = ensure_toolbox(progress)
        if unpacked:
            path = images[0].parent / f"config-{folders[0].name}"
            config = path if path.is_file() else None
            _install(folder, images[0], folders[0], config=config, source=_BY_USER, toolbox=toolbox)
            return
        with scratch_dir(folder.parent) as work:
            _unpack_users(debs, work)
            _install_unpacked(folder, work, _BY_USER, toolbox)

    make_folder(_folder(name), make, good=lambda _: False)
    kernel = cached_kernel(name)
    if kernel is None:
        raise IolabError(f"kernel {name} disappeared from the cache: try again")
    return kernel


def list_kernels(progress: Callable[[str], None] = lambda _: None) -> list[KernelStatus]:
    """Return the state of each kernel; ask the archives only for those that the cache lacks.

    Parameters
    ----------
    progress : callable
        Gets a line before each slow step.
    """
    return [_status(name, progress) for name in known_kernels()]


def _status(name: str, progress: Callable[[str], None]) -> KernelStatus:
    if (kernel := cached_kernel(name)) is not None:
        return KernelStatus(
            name, "cached", source=kernel.source, release=kernel.release, facts=_facts(kernel)
        )
    if name not in CATALOGUE:
        return KernelStatus(name, "unreachable", "damaged in the cache: add it again")
    try:
        _, package = find_kernel(name, progress)
    except IolabError as error:
        return KernelStatus(name, "unreachable", str(error))
    release = re.sub(r"^linux-image-(unsigned-)?", "", package.name)
    return KernelStatus(
        name, "fetchable", source=f"{package.name} {package.version}", release=release
    )


def _facts(kernel: Kernel) -> Mapping[str, Any] | None:
    try:
        recorded = json.loads((_folder(kernel.name) / "facts.json").read_text())
        return recorded["facts"] if recorded["identity"] == kernel.identity else None
    except (OSError, ValueError, KeyError):
        return None


def remember_kernel_facts(kernel: Kernel, facts: Mapping[str, Any]) -> None:
    """Store what a booted kernel reported, for `list_kernels`.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    facts : mapping
        What it reported; JSON.
    """
    recorded = {"identity": kernel.identity, "facts": dict(facts)}
    atomic_write(_folder(kernel.name) / "facts.json", canonical_json(recorded))
