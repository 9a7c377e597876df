# SPDX-License-Identifier: MIT
"""Offsets in a kernel's structures, from types made here."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest

from guestprof.btf import Btf, BtfError

_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _TYPEDEF, _CONST = 1, 2, 3, 4, 5, 6, 8, 10


class Types:
    """Writes BTF as Documentation/bpf/btf.rst says."""

    def __init__(self) -> None:
        self.strings = b"\0"
        self.types = b""
        self.count = 0

    def name(self, text: str) -> int:
        """Return where a name begins."""
        if not text:
            return 0
        at = len(self.strings)
        self.strings += text.encode() + b"\0"
        return at

    def add(self, kind: int, name: str, size: int, body: bytes = b"", members: int = 0) -> int:
        """Add a type and return its number."""
        self.types += struct.pack("<III", self.name(name), kind << 24 | members, size) + body
        self.count += 1
        return self.count

    def structure(self, kind: int, name: str, size: int, *members: tuple[str, int, int]) -> int:
        """Add a structure of members with name, type and offset in bytes."""
        body = b"".join(struct.pack("<III", self.name(n), t, 8 * at) for n, t, at in members)
        return self.add(kind, name, size, body, len(members))

    def data(self) -> bytes:
        """Return the whole."""
        sizes = (0, len(self.types), len(self.types), len(self.strings))
        return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, *sizes) + self.types + self.strings


@pytest.fixture
def data() -> bytes:
    types = Types()
    number = types.add(_INT, "int", 4, struct.pack("<I", 32))
    memory = types.structure(_STRUCT, "memory", 24, ("base", number, 0), ("size", number, 12))
    alias = types.add(_CONST, "", types.add(_TYPEDEF, "memory_t", memory))
    array = types.add(_ARRAY, "", 0, struct.pack("<III", alias, number, 3))
    kinds = struct.pack("<Ii", types.name("TEXT"), 0) + struct.pack("<Ii", types.name("INIT"), 2)
    types.add(_ENUM, "kinds", 4, kinds, 2)
    types.add(_ENUM, "", 4, struct.pack("<Ii", 0, 1), 1)
    inner = types.structure(_STRUCT, "", 8, ("deep", number, 4))
    union = types.structure(_UNION, "", 8, ("flat", number, 0), ("", inner, 0))
    types.structure(
        _STRUCT, "module", 200, ("name", number, 16), ("mem", array, 32), ("", union, 8)
    )
    return types.data()


@pytest.mark.parametrize(
    ("path", "offset"),
    [
        ("name", 16),
        ("mem", 32),
        ("mem[TEXT].size", 44),
        ("mem[INIT].base", 32 + 2 * 24),
        ("flat", 8),
        ("deep", 12),
    ],
)
def test_a_member_is_found_through_arrays_and_unnamed_unions(
    data: bytes, path: str, offset: int
) -> None:
    assert Btf(data).offset("module", path) == offset


@pytest.mark.parametrize("path", ["size", "mem[NONE].base", "name[TEXT]", "mem.base"])
def test_a_missing_member_is_named(data: bytes, path: str) -> None:
    with pytest.raises(BtfError, match="BTF"):
        Btf(data).offset("module", path)


def test_a_missing_structure_is_named(data: bytes) -> None:
    with pytest.raises(BtfError, match="struct task_struct"):
        Btf(data).offset("task_struct", "pid")


@pytest.mark.parametrize("damaged", [b"\0" * 24, b"\x9f\xeb"])
def test_damaged_types_are_refused(damaged: bytes) -> None:
    with pytest.raises(BtfError, match="damaged"):
        Btf(damaged)


def test_types_without_end_are_refused() -> None:
    types = Types()
    types.add(_TYPEDEF, "self", 1)
    types.structure(_STRUCT, "named", 8, ("self", 1, 0))
    types.structure(_STRUCT, "inner", 8, ("", 3, 0))
    # Each of 64 structures holds the next one twice.
    for n in range(64):
        types.structure(_STRUCT, f"s{n}", 8, ("", n + 5, 0), ("", n + 5, 0))
    types.structure(_STRUCT, "last", 8, ("x", 1 << 31, 0))
    for structure, path in (("named", "self.x"), ("inner", "x"), ("s0", "y"), ("last", "x.y")):
        with pytest.raises(BtfError, match=r"no end|damaged"):
            Btf(types.data()).offset(structure, path)


def test_each_changed_byte_is_read_or_damage(data: bytes) -> None:
    for at in range(len(data)):
        for value in (0, 0x7F, 0xFF):
            with suppress(BtfError):
                Btf(data[:at] + bytes([value]) + data[at + 1 :]).offset("module", "mem[INIT].size")
