# SPDX-License-Identifier: MIT
"""The functions of programs, from programs that are built here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from guestprof.programs import program_symbols
from iolab_base.process import run
from tests.support.needs import need

_SOURCE = """
static __attribute__((noinline)) int inner(int n) { return n * 7 + 1; }
__attribute__((visibility("default"))) int shown(int n) { return inner(n) + 2; }
int main(int n, char **words) { return shown(n); }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("cc", "objcopy")
    folder = tmp_path_factory.mktemp("built")
    (folder / "built.c").write_text(_SOURCE)
    options = ["-g", "-O1", "-pie", "-fPIE", "-rdynamic", "-Wl,--build-id"]
    run(["cc", *options, "-o", "whole", "built.c"], cwd=folder, timeout_s=60)
    run(["objcopy", "--strip-all", "whole", "stripped"], cwd=folder, timeout_s=60)
    run(["objcopy", "--only-keep-debug", "whole", "debug"], cwd=folder, timeout_s=60)
    return folder


def _places(path: Path) -> dict[str, int]:
    found = program_symbols("built", path.read_bytes())
    assert found is not None
    assert all(found.text[0] <= at < found.text[1] for at in found.functions)
    assert len(found.code) == found.text[1] - found.text[0]
    return {name: at for at, name in found.functions.items()}


def test_a_program_with_symbols_names_all_functions(built: Path) -> None:
    assert {"built:inner", "built:shown", "built:main"} <= set(_places(built / "whole"))


def test_a_stripped_program_names_what_it_exports_and_places_the_rest(built: Path) -> None:
    whole, stripped = _places(built / "whole"), _places(built / "stripped")
    assert stripped["built:shown"] == whole["built:shown"]
    assert "built:inner" not in stripped
    (inner,) = (name for name, at in stripped.items() if at == whole["built:inner"])
    assert inner.startswith("built+0x")


def test_a_debug_file_of_the_same_build_id_names_them(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = program_symbols("built", (built / "stripped").read_bytes())
    assert found is not None
    code = found.build_id.hex()
    place = tmp_path / ".build-id" / code[:2] / f"{code[2:]}.debug"
    place.parent.mkdir(parents=True)
    shutil.copyfile(built / "debug", place)
    monkeypatch.setenv("IOLAB_DEBUG_PATH", str(tmp_path))
    assert _places(built / "stripped")["built:inner"] == _places(built / "whole")["built:inner"]
    # A file in the place of another program's is not believed.
    other = bytearray((built / "debug").read_bytes())
    at = other.index(found.build_id)
    other[at] ^= 1
    place.write_bytes(other)
    assert "built:inner" not in _places(built / "stripped")


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF" + bytes(60)])
def test_what_is_no_program_has_no_functions(data: bytes) -> None:
    assert program_symbols("none", data) is None
