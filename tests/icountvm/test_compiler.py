# SPDX-License-Identifier: MIT
"""Small libraries, built by the compilers that are here."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from icountvm.compiler import Compiler, build_library, find_compiler
from iolab_base.errors import CannotRunError, UserError
from tests.support.needs import needs


@pytest.fixture
def sources(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources of a library whose function returns what its second file says."""
    monkeypatch.delenv("CC", raising=False)
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "main.c").write_text('#include "number.h"\nint number(void) { return NUMBER; }\n')
    (folder / "number.h").write_text("#define NUMBER 42\n")
    return folder


def number_in(library: Path) -> int:
    number = ctypes.CDLL(str(library)).number()
    assert isinstance(number, int)
    return number


@needs("cc")
def test_a_library_is_built_once_for_each_state_of_its_sources(
    sources: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = build_library(sources, "main.c", "a number")
    assert first.name == "main.so"
    assert first.is_relative_to(cache)
    assert number_in(first) == 42
    assert build_library(sources, "main.c", "a number") == first
    assert len(caplog.messages) == 1
    (sources / "number.h").write_text("#define NUMBER 43\n")
    second = build_library(sources, "main.c", "a number")
    assert (number_in(first), number_in(second)) == (42, 43)
    assert len(caplog.messages) == 2


@needs("cc")
def test_a_source_that_does_not_compile_says_where(sources: Path, cache: Path) -> None:
    (sources / "number.h").write_text("#define NUMBER nothing\n")
    with pytest.raises(CannotRunError, match=r"(?s)a number.*number\.h:1:"):
        build_library(sources, "main.c", "a number")
    assert not list(cache.rglob("*.so"))


@pytest.mark.parametrize(
    ("name", "has"), [("gcc (Debian 12.2.0) 12.2.0", True), ("tcc version 0.9.27", False)]
)
def test_only_tcc_lacks_variables_of_a_thread(name: str, has: bool) -> None:
    assert Compiler(["cc"], name).thread_locals is has


@pytest.mark.parametrize("program", ["true", "false"])
def test_a_program_that_tells_no_version_is_no_compiler(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = tmp_path / "silent"
    silent.write_text(f"#!/bin/sh\n{program}\n")
    silent.chmod(0o755)
    monkeypatch.setenv("CC", str(silent))
    with pytest.raises(UserError, match="CC"):
        find_compiler()


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("given", [None, " "])
def test_a_machine_without_compiler_and_mirror_can_build_nothing(
    given: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if given is not None:
        monkeypatch.setenv("CC", given)
    else:
        monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CannotRunError, match="C compiler"):
        find_compiler()


def test_a_compiler_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/such/compiler")
    with pytest.raises(UserError, match="CC is not a program"):
        find_compiler()


@needs("gcc")
def test_a_compiler_may_have_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "env gcc -m64")
    found = find_compiler()
    assert found.argv[1:] == ["gcc", "-m64"]
    assert "gcc" in found.name
