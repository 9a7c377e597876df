# SPDX-License-Identifier: MIT
"""The plugin, built by the compilers that are here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from guestprof import build
from guestprof.build import build_plugin
from icountvm.compiler import Compiler, find_compiler
from iolab_base.errors import CannotRunError
from iolab_base.process import run
from tests.support.needs import needs, program, wants


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "iolab"


@needs("cc")
def test_the_plugin_is_built_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CC", raising=False)
    first = build_plugin()
    assert first == build_plugin()
    assert len(caplog.messages) == 1
    assert first.is_relative_to(cache)
    assert first.read_bytes().startswith(b"\x7fELF")


def test_the_plugin_needs_no_library_and_no_warning_is_given(tmp_path: Path) -> None:
    compiler, readelf = program("gcc"), program("readelf")
    plugin = Path(build.__file__).with_name("plugin") / "plugin.c"
    options = ["-O2", "-fPIC", "-shared", "-nostdlib", "-Wall", "-Wextra", "-Werror"]
    made = tmp_path / "observer.so"
    run([compiler, *options, "-Wno-unused-parameter", "-o", made, plugin], timeout_s=120)
    dynamic = run([readelf, "-d", made], timeout_s=60).stdout
    assert "NEEDED" not in dynamic


@pytest.mark.usefixtures("cache")
def test_a_compiler_that_fails_is_named() -> None:
    with pytest.raises(CannotRunError, match="false 1 does not build the observer"):
        build_plugin(Compiler(["false"], "false 1"))


@pytest.mark.vm
@pytest.mark.usefixtures("cache")
def test_debians_tcc_builds_it_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    compilers, which = ("cc", "gcc", "clang"), shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name in compilers else which(name))
    with wants("tcc"):
        compiler = find_compiler()
    assert "tcc" in compiler.name
    assert build_plugin(compiler).read_bytes().startswith(b"\x7fELF")
