# SPDX-License-Identifier: MIT
"""Derive from a kernel what boots fastest: an uncompressed image, modules without signatures.

The kernel's own decompressor took 30 % of the instructions of a short block, and checking the
modules' signatures took 3 %. Neither is needed: files were checked when they were fetched, and
their digests are part of every result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from icountvm.bzimage import has_entry, payload_of
from icountvm.cpio import CpioEntry, write_cpio
from icountvm.kernels import Kernel
from iolab_base.files import atomic_write, cache_dir

# Part of the identity of a machine: change it with what this module does to a kernel.
RECIPE = "uncompressed-unsigned-configured-1"

# scripts/sign-file.c appends a signature, struct module_signature, and this.
_SIGNED = b"~Module signature appended~\n"
_SIGNATURE_BYTES = 12
_FORCED = re.compile(r"^CONFIG_MODULE_SIG_FORCE=y$", re.MULTILINE)


def boot_image(kernel: Kernel) -> Path:
    """Return the image to boot: the uncompressed kernel, or `kernel.vmlinuz` where QEMU needs it.

    QEMU enters an uncompressed kernel by its PVH note (CONFIG_PVH). A kernel without that note, or
    compressed with LZ4 or LZO, boots from its compressed image.
    """
    path = cache_dir("image", "kernels") / f"{kernel.identity}.elf"
    if not path.exists():
        # An empty file means: no such image. Decompressing each time would cost seconds.
        payload = payload_of(kernel.vmlinuz.read_bytes())
        atomic_write(path, payload if payload is not None and has_entry(payload) else b"")
    return path if path.stat().st_size else kernel.vmlinuz


def modules_archive(kernel: Kernel) -> Path:
    """Return the cpio archive of a kernel's modules and configuration, to append to the image.

    The modules keep their signatures if the kernel loads only signed ones.
    """
    path = cache_dir("image", "modules") / f"{kernel.identity}-{RECIPE}.cpio"
    if not path.exists():
        forced = kernel.config is not None and _FORCED.search(kernel.config.read_text()) is not None
        entries = list(_module_entries(kernel, signed=forced))
        if kernel.config is not None:
            entries.append(CpioEntry.file(f"boot/config-{kernel.release}", kernel.config))
        write_cpio(path, entries)
    return path


def _module_entries(kernel: Kernel, *, signed: bool) -> Iterator[CpioEntry]:
    base = f"lib/modules/{kernel.release}"
    for file in sorted(path for path in kernel.modules.rglob("*") if path.is_file()):
        name = f"{base}/{file.relative_to(kernel.modules).as_posix()}"
        keep = signed or file.suffix != ".ko"
        yield CpioEntry.file(name, file if keep else _unsigned(file.read_bytes()))


def _unsigned(module: bytes) -> bytes:
    if not module.endswith(_SIGNED):
        return module
    rest = module.removesuffix(_SIGNED)
    size = int.from_bytes(rest[-4:], "big")
    return rest[: -(size + _SIGNATURE_BYTES)] if size + _SIGNATURE_BYTES < len(rest) else module
