# SPDX-License-Identifier: MIT
"""Read an uncompressed kernel for x86 (vmlinux): its release, its entry, what of it is loaded."""

from __future__ import annotations

import io
import re
import struct
from typing import Final

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment

__all__ = ["ELF", "has_entry", "loaded_part", "release_in"]

ELF: Final = b"\x7fELF"
# Name and type of the note that says where a kernel begins that is entered as a PVH guest
# (XEN_ELFNOTE_PHYS32_ENTRY, include/xen/interface/elfnote.h).
_ENTRY: Final = ("Xen", "18")
# linux_banner of init/version-timestamp.c.
_BANNER: Final = re.compile(rb"Linux version ([A-Za-z0-9][A-Za-z0-9._+-]{0,63}) \(")
# Of struct elf64_hdr: e_shoff; e_shentsize, e_shnum and e_shstrndx.
_SECTIONS_AT, _SECTION_NUMBERS = 0x28, 0x3A


def has_entry(image: bytes) -> bool:
    """Tell whether a kernel has the note by which QEMU enters it (CONFIG_PVH).

    Parameters
    ----------
    image : bytes
        The kernel; False of anything but an ELF file.
    """
    try:
        for segment in ELFFile(io.BytesIO(image)).iter_segments("PT_NOTE"):
            if isinstance(segment, NoteSegment):
                for note in segment.iter_notes():
                    if (str(note["n_name"]), str(note["n_type"])) == _ENTRY:
                        return True
    except ELFError:
        pass
    return False


def loaded_part(image: bytes) -> bytes:
    """Return a kernel without its sections and symbols: what is loaded comes first in the file.

    Parameters
    ----------
    image : bytes
        The kernel.

    Raises
    ------
    ValueError
        If it is no ELF file, or ends within what is to be loaded.
    """
    try:
        ends = [s["p_offset"] + s["p_filesz"] for s in ELFFile(io.BytesIO(image)).iter_segments()]
    except ELFError as error:
        raise ValueError(str(error)) from error
    end = max(ends, default=0)
    if not 0 < end <= len(image):
        raise ValueError("the file is not whole")
    kept = bytearray(image[:end])
    struct.pack_into("<Q", kept, _SECTIONS_AT, 0)
    struct.pack_into("<HHH", kept, _SECTION_NUMBERS, 0, 0, 0)
    return bytes(kept)


def release_in(image: bytes) -> str | None:
    """Return the release of a kernel, from its banner; None if it has none.

    Parameters
    ----------
    image : bytes
        The kernel.
    """
    found = _BANNER.search(image)
    return None if found is None else found[1].decode()
