# SPDX-License-Identifier: MIT
"""Members of a kernel's structures that the observer reads in a running machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from iolab_base.errors import IolabError

# By the name that the plugin knows: structure and path, newer kernels' first.
# Since 6.4 (commit ac3b43283923) a module's memory is an array by type.
_MEMBERS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "task_struct.pid": (("task_struct", "pid"),),
    "task_struct.tgid": (("task_struct", "tgid"),),
    "task_struct.comm": (("task_struct", "comm"),),
    "module.name": (("module", "name"),),
    "module.kallsyms": (("module", "kallsyms"),),
    "mod_kallsyms.symtab": (("mod_kallsyms", "symtab"),),
    "mod_kallsyms.num_symtab": (("mod_kallsyms", "num_symtab"),),
    "mod_kallsyms.strtab": (("mod_kallsyms", "strtab"),),
    "module.text": (("module", "mem[MOD_TEXT].base"), ("module", "core_layout.base")),
    "module.text_size": (("module", "mem[MOD_TEXT].size"), ("module", "core_layout.text_size")),
}


class LayoutError(IolabError):
    """A kernel's types are missing or damaged, or lack a structure or member."""


def member_offsets(offset: Callable[[str, str], int]) -> dict[str, int]:
    """Return the offsets of the members in bytes, by the names that the plugin knows.

    `offset` returns that of a member from a structure's name and a path such as
    ``mem[MOD_TEXT].base`` (`guestprof.btf.Btf.offset`), or raises LayoutError.
    """
    return {name: _first(offset, known) for name, known in _MEMBERS.items()}


def _first(offset: Callable[[str, str], int], known: tuple[tuple[str, str], ...]) -> int:
    for structure, path in known[:-1]:
        try:
            return offset(structure, path)
        except LayoutError:
            continue
    return offset(*known[-1])
