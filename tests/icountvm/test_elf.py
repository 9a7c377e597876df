# SPDX-License-Identifier: MIT
"""ELF files of kernels, whole and damaged in every field."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from icountvm.elf import loaded_part, notes, section
from tests.icountvm.conftest import elf_with_note, module
from tests.support.needs import needs

MODULE = module("configfs,a-b")
INFO = b"license=GPL\0depends=configfs,a-b\0"


def test_a_modules_section_is_found_by_its_name() -> None:
    assert section(MODULE, ".modinfo") == INFO
    assert section(MODULE, ".mod") == b""
    assert section(MODULE, ".text") == b""
    assert section(MODULE[:58].ljust(64, b"\0"), ".modinfo") == b""


@needs("objcopy", "readelf")
def test_a_section_and_notes_are_those_of_binutils(tmp_path: Path) -> None:
    program, dumped = tmp_path / "true", tmp_path / "dumped"
    shutil.copy("/bin/true", program)
    argv = ["objcopy", "--dump-section", f".interp={dumped}", str(program)]
    subprocess.run(argv, check=True)
    assert section(program.read_bytes(), ".interp") == dumped.read_bytes()
    told = subprocess.run(["readelf", "-nW", program], check=True, capture_output=True, text=True)
    owners = [line.split()[0] for line in told.stdout.splitlines() if " 0x0" in line]
    found = sorted(name.decode() for name, _ in notes(program.read_bytes()))
    assert set(found) == set(owners)


@pytest.mark.parametrize("end", [0, 4, 63, 64, 80, len(MODULE) - 200, len(MODULE) - 1])
def test_a_module_that_is_cut_short_is_damaged(end: int) -> None:
    with pytest.raises(ValueError, match=r"cut short|no ELF file"):
        section(MODULE[:end], ".modinfo")


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (0x28, "<Q", 1 << 63),  # e_shoff
        (0x28, "<Q", len(MODULE) - 1),
        (0x3A, "<H", 0),  # e_shentsize
        (0x3A, "<H", 63),
        (0x3A, "<H", 0xFFFF),
        (0x3C, "<H", 0xFFFF),  # e_shnum
        (0x3E, "<H", 3),  # e_shstrndx
        (0x3E, "<H", 0xFFFF),
        (0x04, "<B", 1),  # 32 bits
        (0x05, "<B", 2),  # the highest byte first
        (len(MODULE) - 128 + 0x18, "<Q", 1 << 62),  # sh_offset of .modinfo
        (len(MODULE) - 128 + 0x20, "<Q", (1 << 64) - 1),  # sh_size of .modinfo
        (len(MODULE) - 64 + 0x20, "<Q", 1 << 40),  # sh_size of the names
    ],
)
def test_an_impossible_field_is_damage(at: int, form: str, value: int) -> None:
    damaged = bytearray(MODULE)
    struct.pack_into(form, damaged, at, value)
    with pytest.raises(ValueError, match="it"):
        section(bytes(damaged), ".modinfo")


def test_every_changed_byte_is_read_or_damage() -> None:
    kernel = elf_with_note(b"Xen", 18, b"behind")
    for file in (MODULE, kernel):
        for at in range(len(file)):
            for value in (0, 1, 0x7F, 0x80, 0xFF):
                changed = file[:at] + bytes([value]) + file[at + 1 :]
                for read in (lambda x: section(x, ".modinfo"), loaded_part, lambda x: [*notes(x)]):
                    try:
                        read(changed)
                    except ValueError:
                        continue


def test_notes_without_end_are_damage() -> None:
    """65,535 segments that are all the same MiB of notes."""
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", MODULE[:16], 2, 62, 1, 0, 64, 0, 0, 64, 56, 65535, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 4, 4, 0, 0, 0, 1 << 20, 1 << 20, 4)
    tracemalloc.start()
    with pytest.raises(ValueError, match="larger than they can be"):
        list(notes(header + segment * 65535 + bytes(1 << 20)))
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_what_is_loaded_is_whole_or_damage() -> None:
    kernel = elf_with_note(b"Xen", 18, b"symbols")
    assert loaded_part(kernel) == loaded_part(kernel[:-7])
    assert loaded_part(kernel)[64:] == kernel[64:-7]
    with pytest.raises(ValueError, match="cut short"):
        loaded_part(kernel[:-8])
