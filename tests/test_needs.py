# SPDX-License-Identifier: MIT
"""A test is skipped for want of something that has a name, and the run counts it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iolab_base.process import run
from tests.support.needs import LackError, need, program
from tests.support.processes import child_environment

_TESTS = Path(__file__).parent
_SUITE = """
import pytest
from tests.support.needs import lack, needs, wants
@needs("a-program-that-nobody-has")
def test_marked(): raise AssertionError
@pytest.fixture(scope="module")
def made(): lack("a fixture", "it says why")
def test_first(made): pass
def test_second(made): pass
def test_wanted():
    with wants("a file", OSError):
        open("/no/such/file")
@pytest.mark.skip(reason="as pytest does it")
def test_otherwise(): pass
def test_passes(): pass
"""


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_ends_with_what_was_skipped_for_want_of_what(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    hooks = "pytest_runtest_setup, pytest_runtest_makereport, pytest_terminal_summary"
    (tmp_path / "conftest.py").write_text(f"from tests.conftest import {hooks}")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs: x\n")
    (tmp_path / "test_a.py").write_text(_SUITE)
    argv = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", *workers]
    said = run(argv, cwd=tmp_path, env=child_environment(), timeout_s=600).stdout.splitlines()
    assert "1 passed, 5 skipped" in said[-1]
    head, _, counted = said[-2].partition(" for want of: ")
    assert head == "skipped 5"
    assert set(counted.split(", ")) == {
        *("a fixture (2)", "a-program-that-nobody-has (1)", "a file (1)", "another reason (1)"),
    }
    # pytest's own lines name the tests.
    assert any("test_a.py" in line and "a fixture: it says why" in line for line in said)


def test_no_test_is_skipped_in_another_way() -> None:
    others = re.compile(r"pytest\.(skip\(|importorskip|mark\.skip)")
    found = [path.name for path in _TESTS.rglob("*.py") if others.search(path.read_text())]
    assert found == [Path(__file__).name]


def test_who_is_root_needs_no_program() -> None:
    need()
    with pytest.raises(LackError, match="for want of a-program-that-nobody-has"):
        need("a-program-that-nobody-has")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["losetup", "mkfs.ext4", "ssh", "trace-cmd"])
def test_a_program_that_this_machine_lacks_is_unpacked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder of this machine's programs that has only what names its mirror.
    if apt := shutil.which("apt-get"):
        (tmp_path / "apt-get").symlink_to(apt)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tests.support.needs._SBIN", str(tmp_path))
    found = program(name)
    assert program(name) == found
    said = subprocess.run([name, "-V"], capture_output=True, text=True, check=False)
    assert re.search(r"\d\.\d", said.stdout + said.stderr)
