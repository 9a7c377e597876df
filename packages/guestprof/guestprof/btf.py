# SPDX-License-Identifier: MIT
"""Find members in a kernel's structures, from its BTF (Documentation/bpf/btf.rst)."""

from __future__ import annotations

import struct

from icountvm.layout import LayoutError

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_MEMBER = struct.Struct("<III")
_ARRAY = struct.Struct("<III")
_ENUMERATOR = struct.Struct("<Ii")
_ARRAY_KIND, _STRUCT, _UNION, _ENUM = 3, 4, 5, 6
# Kinds that only name another type: typedef, volatile, const, restrict, type tag.
_NAMES = {8, 9, 10, 11, 18}
# Bytes that follow a type of each kind: fixed, and for each of its members.
_FIXED = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
# For a name (KSYM_NAME_LEN), and for the steps to one member: a hostile kernel's types may have no
# end.
_LONGEST = 512
_MOST_STEPS = 1 << 18


class BtfError(LayoutError):
    """The types are damaged, or lack a structure or member."""


class Btf:
    """The types of a kernel, from the bytes of /sys/kernel/btf/vmlinux; BtfError if damaged."""

    def __init__(self, data: bytes) -> None:
        if not data:
            raise BtfError(
                "the kernel lacks its types (BTF): build it with CONFIG_DEBUG_INFO_BTF, or with "
                "`iolab kernels build`"
            )
        try:
            magic, _, _, header, types, n_types, strings, n_strings = _HEADER.unpack_from(data)
            if magic != _MAGIC:
                raise BtfError("the kernel's types (BTF) are damaged: wrong magic number")
            self._types = data[header + types : header + types + n_types]
            self._strings = data[header + strings : header + strings + n_strings]
            self._at = [0]
            self._structures: dict[str, int] = {}
            self._index()
        except struct.error as error:
            raise BtfError("the kernel's types (BTF) are damaged") from error

    def offset(self, structure: str, path: str) -> int:
        """Return where a member lies in a structure, in bytes; BtfError if it is missing.

        The path has the names of the member, its member, and so on, with dots; ``name[ENUMERATOR]``
        is an element of an array. Members of unnamed structures and unions count as the outer
        one's.
        """
        self._steps = _MOST_STEPS
        try:
            return self._offset(structure, path)
        except (struct.error, IndexError, ValueError, RecursionError) as error:
            raise BtfError("the kernel's types (BTF) are damaged") from error

    def _offset(self, structure: str, path: str) -> int:
        number = self._structures.get(structure)
        if number is None:
            raise BtfError(f"the kernel's types (BTF) lack struct {structure}")
        total = 0
        for step in path.split("."):
            name, _, index = step.rstrip("]").partition("[")
            found = self._member(number, name)
            if found is None:
                raise BtfError(f"the kernel's types (BTF) lack {path} in struct {structure}")
            bits, number = found
            total += bits // 8
            if index:
                number, size = self._element(number)
                total += size * self._enumerator(index)
        return total

    def _index(self) -> None:
        at = 0
        while at < len(self._types):
            name, info, _ = _TYPE.unpack_from(self._types, at)
            kind, members = info >> 24 & 0x1F, info & 0xFFFF
            if kind == _STRUCT and name:
                self._structures.setdefault(self._name(name), len(self._at))
            self._at.append(at)
            at += _TYPE.size + _FIXED.get(kind, 0) + _EACH.get(kind, 0) * members

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise BtfError("the kernel's types (BTF) have no end")

    def _name(self, at: int) -> str:
        return self._strings[at : at + _LONGEST].split(b"\0")[0].decode(errors="replace")

    def _resolved(self, number: int) -> tuple[int, int, int, int]:
        """Return kind, number of members, size and place of a type, behind its other names."""
        while True:
            self._step()
            _, info, size = _TYPE.unpack_from(self._types, self._at[number])
            kind = info >> 24 & 0x1F
            if kind not in _NAMES:
                return kind, info & 0xFFFF, size, self._at[number] + _TYPE.size
            number = size

    def _member(self, number: int, name: str) -> tuple[int, int] | None:
        """Return a member's offset in bits and its type; search unnamed members too."""
        kind, members, _, at = self._resolved(number)
        if kind not in (_STRUCT, _UNION):
            return None
        for n in range(members):
            self._step()
            named, kept, offset = _MEMBER.unpack_from(self._types, at + n * _MEMBER.size)
            # The upper byte is a bit field's size in structures that have any.
            offset &= 0xFFFFFF
            if named and self._name(named) == name:
                return offset, kept
            if not named and (inner := self._member(kept, name)) is not None:
                return offset + inner[0], inner[1]
        return None

    def _element(self, number: int) -> tuple[int, int]:
        """Return the type and the size in bytes of an array's elements."""
        kind, _, _, at = self._resolved(number)
        if kind != _ARRAY_KIND:
            raise BtfError("the kernel's types (BTF) have no array where one was expected")
        element = _ARRAY.unpack_from(self._types, at)[0]
        return element, self._resolved(element)[2]

    def _enumerator(self, name: str) -> int:
        wanted = self._strings.find(b"\0" + name.encode() + b"\0") + 1
        # Without the name, 0 would be that of any nameless enumerator.
        for start in self._at[1:] if wanted else ():
            _, info, _ = _TYPE.unpack_from(self._types, start)
            if info >> 24 & 0x1F != _ENUM:
                continue
            for n in range(info & 0xFFFF):
                found, value = _ENUMERATOR.unpack_from(self._types, start + _TYPE.size + 8 * n)
                if found == wanted:
                    return int(value)
        raise BtfError(f"the kernel's types (BTF) lack the enumerator {name}")
