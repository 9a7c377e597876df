# SPDX-License-Identifier: MIT
"""The members of a kernel's structures that the observer reads."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

import guestprof
from icountvm.layout import LayoutError, member_offsets


def _offset(structure: str, path: str) -> int:
    """An offset that tells from what it was asked for."""
    return zlib.crc32(f"{structure} {path}".encode())


def test_every_member_is_asked_for_by_the_newer_kernels_names_first() -> None:
    found = member_offsets(_offset)
    assert len(found) == 10
    assert found["task_struct.comm"] == _offset("task_struct", "comm")
    assert found["module.text"] == _offset("module", "mem[MOD_TEXT].base")
    assert found["module.text_size"] == _offset("module", "mem[MOD_TEXT].size")


def test_the_plugin_knows_all_of_them_and_no_others() -> None:
    plugin = Path(guestprof.__file__).with_name("plugin") / "plugin.c"
    text = plugin.read_text()
    known = re.findall(r'^\s+\{"(\w+\.\w+)", &offsets\.', text, re.MULTILINE)
    assert sorted(member_offsets(_offset)) == sorted(known)


@pytest.mark.parametrize("lost", ["task_struct", "mod_kallsyms", "module"])
def test_a_kernel_that_lacks_a_structure_is_refused(lost: str) -> None:
    def offset(structure: str, path: str) -> int:
        if structure == lost:
            raise LayoutError(structure)
        return 0

    with pytest.raises(LayoutError, match=f"^{lost}$"):
        member_offsets(offset)


def test_an_older_kernels_layout_is_taken_where_the_newer_one_is_missing() -> None:
    def offset(structure: str, path: str) -> int:
        if path.startswith("mem["):
            raise LayoutError(path)
        return len(structure) + len(path)

    found = member_offsets(offset)
    assert found["module.text_size"] == len("module") + len("core_layout.text_size")
