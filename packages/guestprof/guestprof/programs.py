# SPDX-License-Identifier: MIT
"""The functions of a program, by its build id.

A stripped program names the functions that it exports (.dynsym). Other functions are known by their
addresses (.eh_frame) and named after them: ``fio+0x4f2a0``. A debug file with the same build id
names all of them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from elftools.elf.segments import NoteSegment

from guestprof.symbols import SYMBOL, USER_FLAG

_DEBUG = "/usr/lib/debug"
_ID_BYTES = 20
_HEAD = np.dtype(
    [("id", f"V{_ID_BYTES + 4}"), *((n, "<u8") for n in ("note", "from", "to", "n", "moves"))]
)


@dataclass(frozen=True)
class ProgramSymbols:
    """The functions of a program, recognized by the 20 bytes of its build id.

    `note` is the address of the build id, `text` the addresses of its code (end excluded), `code`
    the bytes there. `functions` maps addresses to names, ascending. All addresses are those of the
    file; with `moves` the kernel puts the program elsewhere.
    """

    build_id: bytes
    note: int
    text: tuple[int, int]
    functions: dict[int, str]
    code: bytes
    moves: bool

    def encoded(self, first: int) -> bytes:
        """Return the program in the plugin's format; its first function has the number `first`."""
        head = np.zeros(1, _HEAD)
        head["id"] = np.void(self.build_id.ljust(_ID_BYTES + 4, b"\0"))
        head["note"], (head["from"], head["to"]) = self.note, self.text
        head["n"], head["moves"] = len(self.functions), self.moves
        rows = [(at, first + n, USER_FLAG) for n, at in enumerate(self.functions)]
        return head.tobytes() + np.array(rows, SYMBOL).tobytes() + self.code


def _build_id(elf: ELFFile) -> tuple[bytes, int] | None:
    """Return a program's build id and its address."""
    for segment in elf.iter_segments():
        if not isinstance(segment, NoteSegment):
            continue
        for note in segment.iter_notes():
            if note["n_type"] == "NT_GNU_BUILD_ID" and note["n_descsz"] == _ID_BYTES:
                at = note["n_offset"] + 12 + (note["n_namesz"] + 3) // 4 * 4
                place = segment["p_vaddr"] + at - segment["p_offset"]
                return bytes.fromhex(note["n_desc"]), int(place)
    return None


def _named(elf: ELFFile, section: str) -> Iterator[tuple[int, str]]:
    table = elf.get_section_by_name(section)
    if isinstance(table, SymbolTableSection):
        for symbol in table.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]:
                yield int(symbol["st_value"]), str(symbol.name)


def _begins(elf: ELFFile) -> Iterator[int]:
    """Yield where functions begin, named or not."""
    if elf.get_section_by_name(".eh_frame") is not None:
        for entry in elf.get_dwarf_info().EH_CFI_entries():
            if isinstance(entry, FDE):
                yield int(entry["initial_location"])


def _debug_names(build_id: bytes) -> dict[int, str]:
    """Return the functions named by a debug file with this build id."""
    code = build_id.hex()
    folders = [*filter(None, os.environ.get("IOLAB_DEBUG_PATH", "").split(":")), _DEBUG]
    for folder in folders:
        path = Path(folder) / ".build-id" / code[:2] / f"{code[2:]}.debug"
        try:
            with path.open("rb") as stream:
                elf = ELFFile(stream)
                if (_build_id(elf) or (b"", 0))[0] == build_id:
                    return dict(_named(elf, ".symtab"))
        except (OSError, ELFError):
            continue
    return {}


def program_symbols(name: str, data: bytes) -> ProgramSymbols | None:
    """Return the functions of a program, named like ``fio:get_io_u`` or ``fio+0x4f2a0``.

    None if it is not for x86-64, or has no build id.
    """
    try:
        elf = ELFFile(io.BytesIO(data))
        known = elf["e_machine"] == "EM_X86_64" and elf.elfclass == 64
        if not known or (found := _build_id(elf)) is None:
            return None
        build_id, note = found
        moves = elf["e_type"] == "ET_DYN"
        code = next(s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD" and s["p_flags"] & 1)
        begin, end = code["p_vaddr"], code["p_vaddr"] + code["p_filesz"]
        named = {**dict(_named(elf, ".dynsym")), **dict(_named(elf, ".symtab"))}
        named |= _debug_names(build_id)
        places = {at: f"{name}+{at:#x}" for at in _begins(elf)}
    except (ELFError, DWARFError, ValueError, KeyError, StopIteration):
        return None
    places |= {at: f"{name}:{function}" for at, function in named.items()}
    kept = {at: places[at] for at in sorted(places) if begin <= at < end}
    text = min(kept, default=begin), end
    return ProgramSymbols(build_id, note, text, kept, code.data()[text[0] - text[1] :], moves)
