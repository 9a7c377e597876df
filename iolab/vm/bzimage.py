# SPDX-License-Identifier: MIT
"""Read a kernel image for x86: its release, its configuration, the kernel without compression.

An image is a bzImage, or a vmlinux that QEMU can enter. Offsets are those of
Documentation/arch/x86/boot.rst.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
from pathlib import Path
from typing import Final

from iolab.errors import UserError
from iolab.vm.compressed import DAMAGED, decompressed
from iolab.vm.vmlinux import ELF, has_entry, loaded_part, release_in

__all__ = ["KERNEL_NAME", "config_of", "copy_image", "payload_of", "release_of"]

KERNEL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
# The first version of the boot protocol that says where the compressed kernel is.
_WITH_PAYLOAD: Final = 0x0208
# More than any vmlinux has.
_MOST: Final = 1 << 30
# What kernel/configs.c (CONFIG_IKCONFIG) puts around its gzip stream.
_BEGIN, _END = b"IKCFG_ST", b"IKCFG_ED"


def release_of(vmlinuz: Path) -> str:
    """Return the release in a kernel image's boot header, or in the banner of a vmlinux.

    The header has "HdrS" at 0x202 and the offset of the version string, less 0x200, at 0x20e.
    Raises UserError for any other file, and for a vmlinux that QEMU cannot enter.
    """
    with vmlinuz.open("rb") as stream:
        head = stream.read(0x10000)
    if head.startswith(ELF):
        return _release_of_vmlinux(vmlinuz)
    at = int.from_bytes(head[0x20E:0x210], "little") + 0x200
    release = head[at : head.find(b"\0", at)].split(b" ")[0].decode(errors="replace")
    if head[0x202:0x206] != b"HdrS" or not KERNEL_NAME.fullmatch(release):
        raise UserError(f"{vmlinuz.name} is not a Linux kernel for x86: it has no boot header")
    return release


def _release_of_vmlinux(vmlinux: Path) -> str:
    image = vmlinux.read_bytes()
    release = release_in(image)
    if release is None:
        raise UserError(f"{vmlinux.name} is not a Linux kernel for x86: it has no banner")
    if not has_entry(image):
        raise UserError(
            f"{vmlinux.name} cannot be booted without compression (CONFIG_PVH is off): "
            "type make bzImage there"
        )
    return release


def payload_of(vmlinuz: Path) -> bytes | None:
    """Return the uncompressed kernel that an image holds.

    Parameters
    ----------
    vmlinuz : Path
        The image, as `release_of` accepts it.

    Returns
    -------
    bytes or None
        None if it is compressed by LZ4 or LZO, which are not read, or damaged.
    """
    image = vmlinuz.read_bytes()
    if image.startswith(ELF):
        return image

    def number(at: int, size: int) -> int:
        return int.from_bytes(image[at : at + size], "little")

    if number(0x206, 2) < _WITH_PAYLOAD:
        return None
    begin = ((number(0x1F1, 1) or 4) + 1) * 512 + number(0x248, 4)
    payload = image[begin : begin + number(0x24C, 4)]
    if not payload.startswith(b"\x1f\x8b"):
        # The build appends the kernel's size; gzip has that itself (scripts/Makefile.lib).
        payload = payload[:-4]
    try:
        return decompressed(io.BufferedReader(io.BytesIO(payload))).read(_MOST)
    except (*DAMAGED, OSError):
        return None


def copy_image(vmlinuz: Path, into: Path) -> None:
    """Copy an image; of a vmlinux only what is loaded, not its symbols.

    Parameters
    ----------
    vmlinuz, into : Path
        The image, as `release_of` accepts it, and the copy.

    Raises
    ------
    UserError
        If a vmlinux is not whole.
    """
    with vmlinuz.open("rb") as stream:
        uncompressed = stream.read(len(ELF)) == ELF
    if not uncompressed:
        shutil.copyfile(vmlinuz, into)
        return
    try:
        into.write_bytes(loaded_part(vmlinuz.read_bytes()))
    except ValueError as error:
        raise UserError(f"{vmlinuz.name} is damaged: {error}") from error


def config_of(vmlinuz: Path) -> bytes | None:
    """Return the configuration that a kernel image holds (CONFIG_IKCONFIG).

    Parameters
    ----------
    vmlinuz : Path
        The image, as `release_of` accepts it.

    Returns
    -------
    bytes or None
        None if it holds none, or is not read by `payload_of`.
    """
    kernel = payload_of(vmlinuz)
    found = -1 if kernel is None else kernel.find(_BEGIN)
    if kernel is None or found < 0:
        return None
    try:
        return gzip.decompress(kernel[found + len(_BEGIN) : kernel.find(_END, found)])
    except (*DAMAGED, OSError):
        return None
