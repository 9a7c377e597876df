# SPDX-License-Identifier: MIT
"""Copy what iolab needs of a kernel into a folder of the cache: image, configuration, modules."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from iolab.errors import UserError
from iolab.files import atomic_write, canonical_json, digest_file, digest_of
from iolab.vm.modules import install_modules
from iolab.vm.toolbox import Toolbox

__all__ = ["KERNEL_NAME", "contents", "install", "install_unpacked", "release_of"]

KERNEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_KEPT = ("vmlinuz", "config", "lib")


def contents(folder: Path) -> Iterator[Path]:
    """Yield the files of a kernel's folder that its identity covers, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).parts[0] in _KEPT:
            yield path


def release_of(vmlinuz: Path) -> str:
    """Return the release in a kernel image's boot header.

    The header has "HdrS" at 0x202 and the offset of the version string, less 0x200, at 0x20e
    (Documentation/arch/x86/boot.rst). Raises UserError for any other file.
    """
    with vmlinuz.open("rb") as stream:
        head = stream.read(0x10000)
    at = int.from_bytes(head[0x20E:0x210], "little") + 0x200
    release = head[at : head.find(b"\0", at)].split(b" ")[0].decode(errors="replace")
    if head[0x202:0x206] != b"HdrS" or not KERNEL_NAME.fullmatch(release):
        raise UserError(f"{vmlinuz.name} is not a Linux kernel for x86: it has no boot header")
    return release


def install(
    folder: Path,
    vmlinuz: Path,
    modules: Path,
    *,
    config: Path | None,
    source: str,
    toolbox: Toolbox,
    built: Mapping[str, Any] | None = None,
) -> None:
    """Copy a kernel's image, configuration and wanted modules to `folder`, with their digests.

    ``built`` says how iolab built it, if it did; it is kept beside the kernel.
    """
    release = release_of(vmlinuz)
    shutil.copyfile(vmlinuz, folder / "vmlinuz")
    if config is not None:
        shutil.copyfile(config, folder / "config")
    install_modules(modules, folder / "lib" / "modules" / release, toolbox)
    digests = {str(path.relative_to(folder)): digest_file(path) for path in contents(folder)}
    recorded: dict[str, Any] = {
        "release": release,
        "source": source,
        "identity": digest_of(digests),
        "vmlinuz": digests["vmlinuz"],
        "sizes": {name: (folder / name).stat().st_size for name in digests},
    }
    if built is not None:
        recorded["built"] = dict(built)
    atomic_write(folder / "kernel.json", canonical_json(recorded))


def install_unpacked(folder: Path, root: Path, source: str, toolbox: Toolbox) -> None:
    """Install the kernel in unpacked packages, of Debian's older or newer packaging.

    Raises UserError if they do not hold exactly one kernel with its modules.
    """
    bases = [root / "lib" / "modules", root / "usr" / "lib" / "modules"]
    images = sorted(root.glob("boot/vmlinuz-*"))
    images += [path for base in bases for path in sorted(base.glob("*/vmlinuz"))]
    if len(images) != 1:
        number = "no kernel (vmlinuz)" if not images else f"{len(images)} kernels"
        raise UserError(f"the packages contain {number}: give those of exactly one")
    release = release_of(images[0])
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
    install(folder, images[0], modules, config=config, source=source, toolbox=toolbox)
