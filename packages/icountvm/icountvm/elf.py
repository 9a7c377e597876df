# SPDX-License-Identifier: MIT
"""Read ELF files: sections and segments of kernels, and the files that a program needs to start.

Kernels and modules may come from anybody. They are read here, with bounds: pyelftools trusts the
sizes in a file, so it reads programs only.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from iolab_base.errors import IolabError

ELF: Final = b"\x7fELF"
# That of the guest.
MACHINE: Final = "x86-64"
# 64 bits, little-endian.
_KNOWN: Final = ELF + b"\2\1"
# struct elf64_hdr, elf64_shdr, elf64_phdr and elf64_note (include/uapi/linux/elf.h).
_HEADER: Final = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_NOTE: Final = struct.Struct("<III")
_PT_NOTE: Final = 4
# In elf64_hdr: e_shoff; e_shentsize, e_shnum and e_shstrndx.
_SECTIONS_AT, _SECTION_NUMBERS = 0x28, 0x3A
# For a section or notes; those of real files have a few KiB.
_MOST: Final = 1 << 20


def section(file: bytes, name: str) -> bytes:
    """Return the content of a section of an x86-64 file, at most 1 MiB; b"" if it is missing."""
    _, _, _, _, _, at, _, _, _, _, size, number, names_at = _header_of(file)
    sections = _table(file, _SECTION, at, size, number)
    if not sections:
        return b""
    if names_at >= number:
        raise ValueError("its names of sections are missing")
    names = _content(file, *sections[names_at][4:6])
    for each in sections:
        if names.startswith(name.encode() + b"\0", each[0]):
            return _content(file, *each[4:6])
    return b""


def notes(file: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield name and type of each note of a file's segments; ValueError if it is damaged."""
    total = 0
    for kind, _, at, _, _, size, _, _ in _segments(file):
        if kind != _PT_NOTE:
            continue
        total += size
        if total > _MOST:
            raise ValueError("its notes are larger than they can be")
        data, place = _content(file, at, size), 0
        while place + _NOTE.size <= size:
            length, described, number = _NOTE.unpack_from(data, place)
            place += _NOTE.size
            yield data[place : place + length].rstrip(b"\0"), number
            place += length + -length % 4 + described + -described % 4


def loaded_part(file: bytes) -> bytes:
    """Return a file without sections and symbols; the loaded part comes first in it.

    Raises ValueError if the file is not ELF, or ends before the loaded part does.
    """
    end = max((at + size for _, _, at, _, _, size, _, _ in _segments(file)), default=0)
    if not _HEADER.size <= end <= len(file):
        raise ValueError("it is cut short")
    kept = bytearray(file[:end])
    struct.pack_into("<Q", kept, _SECTIONS_AT, 0)
    struct.pack_into("<HHH", kept, _SECTION_NUMBERS, 0, 0, 0)
    return bytes(kept)


def _header_of(file: bytes) -> tuple[int, ...]:
    if not file.startswith(_KNOWN) or len(file) < _HEADER.size:
        raise ValueError("it is no ELF file for x86-64")
    return _HEADER.unpack_from(file)


def _segments(file: bytes) -> list[tuple[int, ...]]:
    _, _, _, _, at, _, _, _, size, number, *_ = _header_of(file)
    return _table(file, _SEGMENT, at, size, number)


def _table(file: bytes, form: struct.Struct, at: int, size: int, number: int) -> list[Any]:
    """Return the rows of a table of a header."""
    if number and (size < form.size or at + size * number > len(file)):
        raise ValueError("it is cut short, or its header is damaged")
    return [form.unpack_from(file, at + size * n) for n in range(number)]


def _content(file: bytes, at: int, size: int) -> bytes:
    if size > _MOST or at + size > len(file):
        raise ValueError("it is cut short, or its header is damaged")
    return file[at : at + size]


@dataclass(frozen=True)
class Needs:
    """Architecture, loader and libraries of an ELF file.

    The machine is ``x86-64``, or the ELF specification's name and the word size. A library or a
    static program has the loader "". Libraries are DT_NEEDED in the file's order; folders are
    DT_RPATH and DT_RUNPATH as written, ``$ORIGIN`` included.
    """

    machine: str
    loader: str = ""
    libraries: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def _link_chain(root: Path, name: str) -> list[str]:
    """Return `name`, the links that it leads to, and the file, all relative to `root`."""
    chain = [name]
    while (root / chain[-1]).is_symlink():
        target = (root / chain[-1]).readlink()
        at = PurePosixPath("/") / PurePosixPath(chain[-1]).parent / target
        chain.append(os.path.normpath(at).lstrip("/"))
        if len(chain) > 40:
            raise IolabError(f"{root / name} is a link that leads to itself")
    if not (root / chain[-1]).exists():
        raise IolabError(f"{root / name} is missing")
    return chain


def needs(path: Path) -> Needs | None:
    """Return what an ELF file needs, or None for any other file."""
    with path.open("rb") as stream:
        if stream.read(4) != ELF:
            return None
        try:
            return _read(ELFFile(stream))
        except Exception as error:
            # pyelftools raises arbitrary exceptions for a damaged file.
            raise IolabError(f"{path} is a damaged program: {error}") from error


def _read(file: ELFFile) -> Needs:
    known = file["e_machine"] == "EM_X86_64" and file.elfclass == 64
    machine = MACHINE if known else f"{str(file['e_machine'])[3:]}, {file.elfclass} bits"
    found: dict[str, list[str]] = {"needed": [], "rpath": [], "runpath": []}
    loader = ""
    for segment in file.iter_segments():
        if isinstance(segment, InterpSegment):
            loader = str(segment.get_interp_name())
        # Not the section .dynamic: a stripped program may lack section headers.
        if isinstance(segment, DynamicSegment):
            for tag in segment.iter_tags():
                name = str(tag.entry.d_tag).removeprefix("DT_").lower()
                if name in found:
                    # Only tags of these kinds have the attribute.
                    found[name].append(str(getattr(tag, name)))
    folders = {n: tuple(f for v in found[n] for f in v.split(":") if f) for n in found}
    return Needs(machine, loader, tuple(found["needed"]), folders["rpath"], folders["runpath"])


def closure(root: Path, names: Iterable[str], library_folders: Sequence[str]) -> set[str]:
    """Return programs with all files that they need to start, including links, relative to `root`.

    The first of `library_folders` with a library provides it.
    """
    wanted: set[str] = set()
    todo = list(names)
    while todo:
        chain = _link_chain(root, todo.pop())
        if wanted.issuperset(chain):
            continue
        wanted.update(chain)
        wants = needs(root / chain[-1])
        if wants is None:
            continue
        if wants.loader:
            todo.append(wants.loader.lstrip("/"))
        for library in wants.libraries:
            for folder in library_folders:
                if (root / folder / library).exists() or (root / folder / library).is_symlink():
                    todo.append(f"{folder}/{library}")
                    break
            else:
                raise IolabError(f"{root / chain[-1]} needs {library}, which is missing")
    return wanted
