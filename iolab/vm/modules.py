# SPDX-License-Identifier: MIT
"""Select the kernel modules that an experiment may load, with their dependencies."""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from pathlib import Path

from elftools.elf.elffile import ELFFile

from iolab.errors import IolabError
from iolab.process import run
from iolab.vm.toolbox import Toolbox

__all__ = ["WANTED", "install_modules"]

# Modules that a kernel lacks or has built in are skipped; modprobe in the guest tells which.
WANTED = (
    *("null_blk", "brd", "loop", "scsi_debug", "sd_mod", "zram", "nvme"),
    *("bfq", "mq-deadline", "kyber-iosched"),
    *("ext4", "xfs", "crc32c_generic", "crc32c_intel", "crc32c_cryptoapi", "libcrc32c"),
    *("virtio_blk", "virtio_console", "virtio_pci"),
)
# The package's lists of built-in modules and of the order of modules, which depmod(8) reads.
_NOTES = ("modules.builtin", "modules.builtin.modinfo", "modules.order")


def _plain(path: Path) -> str:
    return path.name.split(".ko")[0].replace("-", "_")


def _decompressed(path: Path, toolbox: Toolbox, into: Path) -> Path:
    """Write a module without compression below `into` and return it."""
    target = into / (path.name.split(".ko")[0] + ".ko")
    into.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".xz":
        try:
            target.write_bytes(lzma.decompress(path.read_bytes()))
        except lzma.LZMAError as error:
            raise IolabError(f"{path.name} is damaged: {error}") from error
    elif path.suffix == ".gz":
        try:
            target.write_bytes(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, zlib.error) as error:
            raise IolabError(f"{path.name} is damaged: {error}") from error
    elif path.suffix == ".zst":
        argv = [*toolbox.command("zstd"), "--decompress", "--quiet", "--force", str(path)]
        run([*argv, "-o", target], timeout_s=60)
    else:
        target.write_bytes(path.read_bytes())
    return target


def _depends(module: Path) -> list[str]:
    """Return the modules that must be loaded before a module, by its section ``.modinfo``."""
    with module.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".modinfo")
        notes = section.data().decode(errors="replace").split("\0") if section else []
    needed: list[str] = []
    for note in notes:
        key, _, value = note.partition("=")
        if key == "depends":
            needed += [name for name in value.split(",") if name]
        elif key == "softdep" and (before := re.search(r"\bpre:([^:]*?)(\bpost:|$)", value)):
            needed += before[1].split()
    return needed


def install_modules(source: Path | None, into: Path, toolbox: Toolbox) -> None:
    """Copy the wanted modules of a kernel without compression, and index them with depmod.

    Parameters
    ----------
    source : Path or None
        The kernel's ``lib/modules/RELEASE``, or the top of its build; None if all is built in.
    into : Path
        The new one; it ends in ``lib/modules/RELEASE`` too.
    toolbox : Toolbox
        Has depmod and zstd.

    Raises
    ------
    IolabError
        If a module is damaged or depmod fails.
    """
    available: dict[str, Path] = {}
    for path in sorted(source.rglob("*.ko*")) if source else ():
        if path.suffix in {".ko", ".gz", ".xz", ".zst"}:
            available.setdefault(_plain(path), path)
    into.mkdir(parents=True, exist_ok=True)
    todo = [name.replace("-", "_") for name in WANTED]
    done: set[str] = set()
    while source and todo:
        name = todo.pop()
        if name in done or name not in available:
            continue
        done.add(name)
        path = available[name]
        module = _decompressed(path, toolbox, into / path.parent.relative_to(source))
        todo += [needed.replace("-", "_") for needed in _depends(module)]
    for note in _NOTES:
        if source and (source / note).is_file():
            (into / note).write_bytes((source / note).read_bytes())
    base = into.parent.parent.parent
    run([*toolbox.command("depmod"), "-b", base, into.name], timeout_s=120)
