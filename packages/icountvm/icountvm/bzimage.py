# SPDX-License-Identifier: MIT
"""Read a kernel image for x86: its release, its configuration, the uncompressed kernel.

An image is a bzImage, or a vmlinux that QEMU can enter. Offsets follow
Documentation/arch/x86/boot.rst.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from icountvm.compressed import DAMAGED, read_decompressed
from icountvm.elf import ELF, loaded_part, notes
from iolab_base.errors import UserError
from iolab_base.reading import read_regular

KERNEL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
# The first version of the boot protocol that locates the compressed kernel.
_WITH_PAYLOAD: Final = 0x0208
# More than any vmlinux with debug information, and more than the loaded part of one
# (KERNEL_IMAGE_SIZE).
_MOST_IMAGE: Final = 3 << 29
_MOST_PAYLOAD: Final = 1 << 30
# A distribution's has less than 300 KiB.
CONFIG_BYTES: Final = 4 << 20
# kernel/configs.c (CONFIG_IKCONFIG) puts these around its gzip stream.
_BEGIN, _END = b"IKCFG_ST", b"IKCFG_ED"
# Name and type of the note with the entry point of a PVH guest
# (XEN_ELFNOTE_PHYS32_ENTRY, include/xen/interface/elfnote.h).
_ENTRY: Final = (b"Xen", 18)
# linux_banner of init/version-timestamp.c.
_BANNER: Final = re.compile(rb"Linux version ([A-Za-z0-9][A-Za-z0-9._+-]{0,63}) \(")


def read_given(path: Path, most: int, *, below: Path | None = None, name: str = "") -> bytes:
    """Return the content of a kernel's file; errors are UserErrors that call the file `name`."""
    try:
        return read_regular(path, most, below=below)
    except OSError as error:
        raise UserError(f"cannot read {name or path.name}: {error.strerror or error}") from error


def read_image(path: Path, *, below: Path | None = None) -> bytes:
    """Return the content of a kernel image, read as by `read_given`."""
    return read_given(path, _MOST_IMAGE, below=below)


def release_of(image: bytes, name: str) -> str:
    """Return the release in a kernel image's boot header, or in the banner of a vmlinux.

    The header has "HdrS" at 0x202 and the offset of the version string, less 0x200, at 0x20e.
    Raises UserError for any other file, and for a vmlinux that QEMU cannot enter.
    """
    if image.startswith(ELF):
        return _release_of_vmlinux(image, name)
    at = int.from_bytes(image[0x20E:0x210], "little") + 0x200
    release = re.split(rb"[\0 ]", image[at : at + 256])[0].decode(errors="replace")
    if image[0x202:0x206] != b"HdrS" or not KERNEL_NAME.fullmatch(release):
        raise UserError(f"{name} is not a Linux kernel for x86: it has no boot header")
    return release


def _release_of_vmlinux(image: bytes, name: str) -> str:
    found = _BANNER.search(image)
    if found is None:
        raise UserError(f"{name} is not a Linux kernel for x86: it has no banner")
    if not has_entry(image):
        raise UserError(
            f"{name} cannot be booted without compression (CONFIG_PVH is off): "
            "type make bzImage there"
        )
    return found[1].decode()


def has_entry(image: bytes) -> bool:
    """Return whether a vmlinux has the note by which QEMU enters it (CONFIG_PVH)."""
    try:
        return _ENTRY in notes(image)
    except ValueError:
        return False


def payload_of(image: bytes) -> bytes | None:
    """Return the uncompressed kernel in an image; None if it is LZ4, LZO or damaged."""
    if image.startswith(ELF):
        return image

    def number(at: int, size: int) -> int:
        return int.from_bytes(image[at : at + size], "little")

    if number(0x206, 2) < _WITH_PAYLOAD:
        return None
    begin = ((number(0x1F1, 1) or 4) + 1) * 512 + number(0x248, 4)
    payload = image[begin : begin + number(0x24C, 4)]
    if not payload.startswith(b"\x1f\x8b"):
        # The build appends the kernel's size, except to gzip, which has it (scripts/Makefile.lib).
        payload = payload[:-4]
    try:
        return read_decompressed(payload, _MOST_PAYLOAD)
    except (*DAMAGED, OSError):
        return None


def kept_image(image: bytes, name: str) -> bytes:
    """Return the part of an image that is kept: only the loaded part of a vmlinux, no symbols."""
    if not image.startswith(ELF):
        return image
    try:
        return loaded_part(image)
    except ValueError as error:
        raise UserError(f"{name} is damaged: {error}") from error


def config_of(image: bytes) -> bytes | None:
    """Return the configuration inside a kernel image (CONFIG_IKCONFIG), or None."""
    kernel = payload_of(image)
    found = -1 if kernel is None else kernel.find(_BEGIN)
    if kernel is None or found < 0:
        return None
    try:
        end = kernel.find(_END, found)
        return read_decompressed(kernel[found + len(_BEGIN) : end], CONFIG_BYTES)
    except (*DAMAGED, OSError):
        return None
