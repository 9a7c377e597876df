# SPDX-License-Identifier: MIT
"""Libraries are found where the loader finds them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from icountvm import elf, libraries
from icountvm.libraries import libraries_of
from iolab_base.errors import UserError


def test_libraries_beside_the_program_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = Path(shutil.which("sleep") or "")
    libc = libraries._cached_libraries()["libc.so.6"]
    beside = tmp_path / "app" / "lib"
    beside.mkdir(parents=True)
    shutil.copyfile(libc, beside / "libc.so.6")
    copy = tmp_path / "app" / "bin" / "sleep"
    copy.parent.mkdir()
    shutil.copy(tool, copy)
    real = elf.needs(copy)
    assert real is not None

    def needs(path: Path) -> elf.Needs | None:
        if path != copy:
            return elf.needs(path)
        return elf.Needs(real.machine, real.loader, real.libraries, (), ("$ORIGIN/../lib",))

    monkeypatch.setattr(libraries, "needs", needs)
    found = libraries_of(copy, needs(copy) or real)
    assert found["libc.so.6"] == copy.parent / "../lib/libc.so.6"
    # A library of another architecture in the way is passed by, as the loader does.
    other = bytearray(libc.read_bytes())
    # e_machine of AArch64 (elf.h).
    other[18:20] = (183).to_bytes(2, "little")
    (beside / "libc.so.6").write_bytes(other)
    assert libraries_of(copy, needs(copy) or real)["libc.so.6"] == libc
    monkeypatch.setenv("LD_LIBRARY_PATH", str(beside))
    shutil.copyfile(libc, beside / "libc.so.6")
    assert libraries_of(tool, real)["libc.so.6"] == beside / "libc.so.6"


def test_given_folders_are_the_only_ones(tmp_path: Path) -> None:
    tool = Path(shutil.which("sleep") or "")
    wants = elf.needs(tool)
    assert wants is not None
    with pytest.raises(UserError, match=r"libc\.so\.6"):
        libraries_of(tool, wants, [tmp_path])
    shutil.copyfile(libraries._cached_libraries()["libc.so.6"], tmp_path / "libc.so.6")
    with pytest.raises(UserError, match="ld-linux"):
        libraries_of(tool, wants, [tmp_path])
    shutil.copyfile(wants.loader, tmp_path / Path(wants.loader).name)
    assert {path.parent for path in libraries_of(tool, wants, [tmp_path]).values()} == {tmp_path}
