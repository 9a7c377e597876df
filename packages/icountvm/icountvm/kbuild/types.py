# SPDX-License-Identifier: MIT
"""Types of a kernel that is built without BTF, taken from an object compiled for the purpose.

BTF takes pahole and a kernel with debug information, which takes minutes to compile. An object with
three variables, compiled like a module of the kernel, has the same structures in its DWARF.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from elftools.elf.elffile import ELFFile

from icountvm.layout import LayoutError, member_offsets
from iolab_base.files import atomic_write
from iolab_base.process import CommandError, run
from iolab_base.reading import read_regular

_SOURCE: Final = """\
#include <linux/module.h>
#include <linux/sched.h>

struct task_struct iolab_task;
struct module iolab_module;
struct mod_kallsyms iolab_kallsyms;
"""
# No variable uses the enumeration that numbers a module's memory.
_FLAGS: Final = "-g -gdwarf-4 -fno-eliminate-unused-debug-types"
_COMPILE_S: Final = 300.0
# For the object: it has the types of everything that the two headers include.
_MOST_BYTES: Final = 256 << 20
_STRUCTURES: Final = ("DW_TAG_structure_type", "DW_TAG_union_type")
_OTHER_NAMES: Final = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type")


def built_offsets(make: Sequence[str], env: Mapping[str, str], folder: Path) -> dict[str, int]:
    """Return the member offsets that the observer reads, as `icountvm.layout.member_offsets`.

    Empty where the tree does not compile the object in `folder`: then the kernel can be measured,
    and observed only if it has BTF. `make` runs the kernel's make in the folder of its objects.
    """
    atomic_write(folder / "types.c", _SOURCE)
    atomic_write(folder / "Kbuild", "obj-m := types.o\n")
    try:
        argv = [*make, f"KCFLAGS={_FLAGS}", f"M={folder}", "types.o"]
        run(argv, timeout_s=_COMPILE_S, env=env)
        return member_offsets(Dwarf(folder / "types.o").offset)
    except (CommandError, LayoutError):
        return {}


class Dwarf:
    """The types in an object's DWARF; LayoutError if they are unreadable."""

    def __init__(self, path: Path) -> None:
        self._structures: dict[str, Any] = {}
        self._enumerators: dict[str, int] = {}
        try:
            # pyelftools reads members later, so the whole object is kept.
            elf = ELFFile(io.BytesIO(read_regular(path, _MOST_BYTES)))
            units = list(elf.get_dwarf_info().iter_CUs()) if elf.has_dwarf_info() else []
            for unit in units:
                for entry in unit.get_top_DIE().iter_children():
                    self._note(entry)
        except Exception as error:
            # pyelftools raises arbitrary exceptions for a damaged file.
            raise LayoutError(f"the types in {path} cannot be read: {error}") from error

    def offset(self, structure: str, path: str) -> int:
        """Return a member's offset in bytes, for a path as in `guestprof.btf.Btf.offset`."""
        try:
            return self._offset(structure, path)
        except LayoutError:
            raise
        except Exception as error:
            raise LayoutError(f"the kernel's types are damaged: {error!r}") from error

    def _offset(self, structure: str, path: str) -> int:
        entry = self._structures.get(structure)
        total = 0
        for step in path.split("."):
            name, _, index = step.rstrip("]").partition("[")
            found = None if entry is None else _member(entry, name)
            if found is None or (index and index not in self._enumerators):
                raise LayoutError(f"the kernel's types lack {path} in struct {structure}")
            at, entry = found
            total += at
            if index:
                entry = _resolved(entry.get_DIE_from_attribute("DW_AT_type"))
                total += self._enumerators[index] * entry.attributes["DW_AT_byte_size"].value
        return total

    def _note(self, entry: Any) -> None:
        name = entry.attributes.get("DW_AT_name")
        if entry.tag == "DW_TAG_enumeration_type":
            for each in entry.iter_children():
                value = each.attributes["DW_AT_const_value"].value
                self._enumerators[_text(each.attributes["DW_AT_name"])] = value
        elif entry.tag == "DW_TAG_structure_type" and name is not None:
            self._structures.setdefault(_text(name), entry)


def _text(attribute: Any) -> str:
    return str(attribute.value.decode(errors="replace"))


def _resolved(entry: Any) -> Any:
    """Return a type behind its other names."""
    while entry.tag in _OTHER_NAMES:
        entry = entry.get_DIE_from_attribute("DW_AT_type")
    return entry


def _member(entry: Any, name: str) -> tuple[int, Any] | None:
    """Return a member's offset in bytes and its type; search unnamed members too."""
    if entry.tag not in _STRUCTURES:
        return None
    for each in entry.iter_children():
        if each.tag != "DW_TAG_member":
            continue
        place = each.attributes.get("DW_AT_data_member_location")
        at = 0 if place is None else int(place.value)
        kept = _resolved(each.get_DIE_from_attribute("DW_AT_type"))
        named = each.attributes.get("DW_AT_name")
        if named is not None and _text(named) == name:
            return at, kept
        if named is None and (inner := _member(kept, name)) is not None:
            return at + inner[0], inner[1]
    return None
