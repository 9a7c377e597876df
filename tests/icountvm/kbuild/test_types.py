# SPDX-License-Identifier: MIT
"""Offsets read from a compiler's DWARF are those that the compiler uses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from icountvm.kbuild.types import Dwarf, built_offsets
from icountvm.layout import LayoutError
from tests.support.needs import needs

pytestmark = needs("gcc")

_STRUCTURES = """
struct outer {
  char first;
  union { struct { short in_union; int pid; }; long other; };
  const volatile struct mine { int a; void *base; unsigned size; } mem[N];
  int bits : 3;
  struct mine core;
  char comm[16];
};
"""
_PATHS = (
    "first",
    "in_union",
    "pid",
    "mem[MEM_DATA].base",
    "mem[MEM_DATA].size",
    "core.size",
    "comm",
)
_FLAGS = ["-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An object with the structures; beside it, a program that prints their offsets."""
    folder = tmp_path_factory.mktemp("types")
    text = "enum kind { MEM_TEXT, MEM_DATA = 2, N };\n" + _STRUCTURES
    (folder / "types.c").write_text(f"{text}struct outer x;\n")
    prints = "".join(f'  printf("%zu\\n", offsetof(struct outer, {path}));\n' for path in _PATHS)
    (folder / "main.c").write_text(
        f"#include <stddef.h>\n#include <stdio.h>\n{text}"
        f"int main(void) {{\n{prints}  return 0;\n}}\n"
    )
    subprocess.run(["gcc", *_FLAGS, "-c", "types.c"], cwd=folder, check=True)
    subprocess.run(["gcc", "-o", "main", "main.c"], cwd=folder, check=True)
    return folder


def test_offsets_are_those_of_the_compiler(compiled: Path) -> None:
    told = subprocess.run([compiled / "main"], check=True, capture_output=True, text=True).stdout
    types = Dwarf(compiled / "types.o")
    assert [types.offset("outer", path) for path in _PATHS] == [int(x) for x in told.split()]


@pytest.mark.parametrize(
    ("structure", "path"),
    [("outer", "none"), ("none", "pid"), ("outer", "mem[NONE].base"), ("outer", "pid.below")],
)
def test_what_is_not_there_is_said(compiled: Path, structure: str, path: str) -> None:
    with pytest.raises(LayoutError, match="the kernel's types lack"):
        Dwarf(compiled / "types.o").offset(structure, path)


def test_an_object_without_types_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.o").write_bytes(b"\x7fELF nothing")
    with pytest.raises(LayoutError, match="cannot be read"):
        Dwarf(tmp_path / "x.o")


def test_a_tree_that_does_not_compile_it_gives_none(tmp_path: Path) -> None:
    """The kernel is measured all the same."""
    assert built_offsets(["false"], {}, tmp_path / "types") == {}
