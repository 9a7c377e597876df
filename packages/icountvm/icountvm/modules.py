# SPDX-License-Identifier: MIT
"""Select the kernel modules that an experiment may load, with their dependencies."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from icountvm.archives import Room
from icountvm.bzimage import read_given
from icountvm.compressed import DAMAGED, read_decompressed
from icountvm.elf import section
from icountvm.found import Found, inside
from icountvm.toolbox import Toolbox
from iolab_base.errors import UserError
from iolab_base.process import run

# Modules that a kernel lacks or has built in are skipped; modprobe in the guest shows which.
WANTED = (
    *("null_blk", "brd", "loop", "scsi_debug", "sd_mod", "zram", "nvme"),
    *("dm_mod", "dm_crypt", "dm_delay", "dm_thin_pool", "dm_verity", "raid0", "raid1"),
    *("bfq", "mq-deadline", "kyber-iosched"),
    *("btrfs", "ext4", "f2fs", "xfs"),
    *("crc32c_generic", "crc32c_intel", "crc32c_cryptoapi", "libcrc32c"),
    # What dm-crypt, dm-verity and f2fs ask the crypto API for by name (crypto/api.c); a kernel has
    # the ones or the others.
    *("aes_generic", "aes", "cbc", "ecb", "essiv", "xts", "sha256_generic", "sha256"),
    *("crc32_generic", "crc32_cryptoapi"),
    *("virtio_blk", "virtio_console", "virtio_pci"),
)
# The package's lists of built-in modules and of the order of modules, which depmod(8) reads.
_NOTES = ("modules.builtin", "modules.builtin.modinfo", "modules.order")


_SUFFIXES = frozenset({".ko", ".gz", ".xz", ".zst"})
# Limits for a module with debug information, for a list, and for everything kept of a kernel.
_MOST_MODULE: Final = 256 << 20
_MOST_LIST: Final = 16 << 20
_MOST: Final = 2 << 30
# A kernel's own modules are not deeper.
_DEEPEST: Final = 32


def _plain(path: Path) -> str:
    return path.name.split(".ko")[0].replace("-", "_")


def _modules_below(top: Path) -> Iterator[Path]:
    """Yield files named like modules; links to folders are not followed."""
    todo = [top]
    while todo:
        folder = todo.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = folder / entry.name
                if entry.is_dir(follow_symlinks=False):
                    if len(path.parts) - len(top.parts) < _DEEPEST:
                        todo.append(path)
                elif ".ko" in entry.name and path.suffix in _SUFFIXES:
                    yield path


def _depends(module: bytes) -> list[str]:
    """Return the modules to load before this one, from its section ``.modinfo``."""
    needed: list[str] = []
    for note in section(module, ".modinfo").decode(errors="replace").split("\0"):
        key, _, value = note.partition("=")
        if key == "depends":
            needed += [name for name in value.split(",") if name]
        elif key == "softdep" and (before := re.search(r"\bpre:([^:]*?)(\bpost:|$)", value)):
            needed += before[1].split()
    return needed


def install_modules(found: Found, into: Path, toolbox: Toolbox) -> None:
    """Copy the wanted modules of a kernel to ``lib/modules/RELEASE`` and index them with depmod.

    The copies are not compressed. Raises UserError for a damaged, too large or irregular module.
    """
    into.mkdir(parents=True, exist_ok=True)
    if found.modules is not None:
        _copy(found.root, found.modules, into)
    base = into.parent.parent.parent
    run([*toolbox.command("depmod"), "-b", base, into.name], timeout_s=120)


def _copy(root: Path, source: Path, into: Path) -> None:
    available: dict[str, Path] = {}
    try:
        for path in sorted(_modules_below(source)):
            available.setdefault(_plain(path), path.relative_to(source))
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}") from error

    def read(name: Path, most: int) -> bytes:
        where = inside(root, source.relative_to(root) / name)
        return read_given(where, most, below=root, name=name.name)

    room = Room(into, _MOST)
    todo = [name.replace("-", "_") for name in WANTED]
    while todo:
        if (name := todo.pop()) not in available:
            continue
        path = available.pop(name)
        packed = read(path, _MOST_MODULE)
        try:
            module = read_decompressed(packed, _MOST_MODULE)
            todo += [needed.replace("-", "_") for needed in _depends(module)]
            room.take(len(module))
        except DAMAGED as error:
            raise UserError(f"{path.name} is damaged: {error}") from error
        target = into / path.with_name(path.name.split(".ko")[0] + ".ko")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(module)
    for note in _NOTES:
        if inside(root, source.relative_to(root) / note).exists():
            (into / note).write_bytes(read(Path(note), _MOST_LIST))
