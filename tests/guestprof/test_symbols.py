# SPDX-License-Identifier: MIT
"""The functions of a kernel, from symbols made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guestprof import symbols
from guestprof.symbols import EVENT, FIRST_SYMBOL, SYMBOL, parse_symbols
from iolab_base.errors import CannotRunError
from iolab_base.files import digest_file
from tests.guestprof.test_btf import _INT, _STRUCT, Types

_NEEDED = (
    *("__switch_to", "__x64_sys_openat", "do_init_module", "do_exit", "x86_64_start_kernel"),
    "__set_task_comm",
    *("start_secondary", "irq_entries_start", "spurious_entries_start", "asm_exc_page_fault"),
)
_KALLSYMS = """\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t work
ffffffff81000200 t __pfx_other
ffffffff81000210 T other
ffffffff81000300 t work.cold
ffffffff81000900 T native_apic_mem_write
{needed}
ffffffff81009000 T _etext
ffffffff82000000 D data
ffffffffc0000000 t module_function	[null_blk]
"""


def _kallsyms(*without: str) -> str:
    names = [name for name in _NEEDED if name not in without]
    lines = (f"{0xFFFFFFFF81001000 + 64 * n:x} T {name}" for n, name in enumerate(names))
    return _KALLSYMS.format(needed="\n".join(lines))


def _types() -> bytes:
    types = Types()
    number = types.add(_INT, "int", 4, b"\0" * 4)
    layout = types.structure(_STRUCT, "layout", 16, ("base", number, 0), ("text_size", number, 8))
    types.structure(
        _STRUCT, "task_struct", 64, ("pid", number, 8), ("tgid", number, 12), ("comm", number, 16)
    )
    types.structure(
        *(_STRUCT, "module", 200, ("name", number, 24), ("kallsyms", number, 100)),
        ("core_layout", layout, 32),
    )
    members = ("symtab", number, 0), ("num_symtab", number, 8), ("strtab", number, 16)
    types.structure(_STRUCT, "mod_kallsyms", 32, *members)
    return types.data()


def _at(table: Any, address: int) -> Any:
    return table[np.searchsorted(table["start"], address, side="right") - 1]


def test_an_address_belongs_to_the_function_before_it() -> None:
    found = parse_symbols(_kallsyms(), _types())

    def name(address: int) -> str:
        number = int(_at(found.table, address)["id"])
        return found.names[number - FIRST_SYMBOL] if number else ""

    assert name(0xFFFFFFFF81000150) == "work"
    assert name(0xFFFFFFFF81000208) == "work"
    assert name(0xFFFFFFFF81000210) == "other"
    # The rarely executed part of a function is the function's.
    assert name(0xFFFFFFFF81000310) == "work"
    assert name(0xFFFFFFFF81009001) == ""
    assert "module_function" not in found.names
    assert found.offsets["module.text_size"] == 32 + 8
    assert found.offsets["task_struct.comm"] == 16


def test_functions_that_the_plugin_must_know_are_marked() -> None:
    found = parse_symbols(_kallsyms(), _types())
    flags = {
        found.names[row["id"] - FIRST_SYMBOL]: row["flags"] for row in found.table if row["id"]
    }
    assert flags["work"] == 0
    assert flags["__switch_to"] == symbols._SWITCH
    assert flags["native_apic_mem_write"] == symbols._DEVICE
    stubs = symbols._ENTRY | symbols._STUBS | symbols._INTERRUPT
    assert flags["irq_entries_start"] == stubs
    # An exception is the task's own doing.
    expected = symbols._ENTRY | symbols._ERROR | symbols._FAULT
    assert flags["asm_exc_page_fault"] == expected


def test_events_are_marked_in_the_file(tmp_path: Path) -> None:
    found = parse_symbols(_kallsyms(), _types())
    found.write(tmp_path / "symbols", frozenset({"other"}), 99)
    data = (tmp_path / "symbols").read_bytes()
    head, table = np.frombuffer(data[:32], "<u8"), np.frombuffer(data[32:], SYMBOL)
    assert head[0] == len(table) == len(found.table)
    assert _at(table, 0xFFFFFFFF81000210)["flags"] == EVENT
    assert not _at(found.table, 0xFFFFFFFF81000210)["flags"]


def test_a_kernel_that_hides_its_symbols_cannot_be_observed() -> None:
    with pytest.raises(CannotRunError, match="lack __switch_to"):
        parse_symbols(_kallsyms("__switch_to"), _types())


def test_a_kernel_without_types_cannot_be_observed() -> None:
    with pytest.raises(CannotRunError, match=r"lacks its types.*CONFIG_DEBUG_INFO_BTF"):
        parse_symbols(_kallsyms(), b"")
    with pytest.raises(CannotRunError, match="damaged"):
        parse_symbols(_kallsyms(), b"\x9f\xeb\x01")


def test_symbols_whose_file_was_cut_short_are_not_used(tmp_path: Path) -> None:
    made = parse_symbols(_kallsyms(), _types())
    np.save(tmp_path / "symbols.npy", made.table, allow_pickle=False)
    described = {"names": [], "offsets": {}, "table": digest_file(tmp_path / "symbols.npy")}
    (tmp_path / "symbols.json").write_text(json.dumps(described))
    assert symbols._stored(tmp_path) is not None
    (tmp_path / "symbols.npy").write_bytes(b"")
    assert symbols._stored(tmp_path) is None
    (tmp_path / "symbols.json").write_text("[]")
    assert symbols._stored(tmp_path) is None
