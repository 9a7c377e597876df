# SPDX-License-Identifier: MIT
"""The command that shows where the instructions of an observed cell went."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from iolab.cli import main
from iolab.measure.profile import Profile
from iolab.measure.profile_file import write_profile
from iolab.store.profiles import ProfileStore
from tests.measure.test_profile import profile

__all__ = ["profile"]

_KEY = "0123456789abcdef0123456789abcdef"
_CELL = f"{_KEY[:16]}-c000"
_OTHER = f"{_KEY[:16]}-c001"


@pytest.fixture
def root(tmp_path: Path, profile: Profile) -> Path:
    store = ProfileStore(tmp_path)
    for n, ios in enumerate((10, 20)):
        counted = replace(profile, totals={**profile.totals, "ios": ios})
        write_profile(store.path(_KEY, f"c{n:03}"), counted)
    return tmp_path


def _said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["iolab", "profile", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_observed_cells_are_listed(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _said(capsys, monkeypatch, "--root", str(root)).split() == [_CELL, _OTHER]


def test_a_cell_is_shown_and_written(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [
        word for name in ("flame", "collapsed", "pprof") for word in (f"--{name}", str(root / name))
    ]
    said = _said(capsys, monkeypatch, _CELL, "--root", str(root), *options)
    assert "kmem_cache_alloc" in said
    assert (root / "flame").read_text().startswith("<!DOCTYPE html>")
    assert "fio;[user] 100" in (root / "collapsed").read_text()
    assert (root / "pprof").read_bytes().startswith(b"\x1f\x8b")


def test_a_difference_is_json_too(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (_CELL, "--against", _OTHER, "--json", "--root", str(root))
    rows = json.loads(_said(capsys, monkeypatch, *words))
    assert rows[0] == {"function": "[user]", "treated": 10.0, "control": 5.0, "difference": 5.0}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["0123456789abcdef-c009"], 1, "was not observed"),
        (["../../etc-passwd"], 1, "was not observed"),
        (["--flame", "x.html"], 2, "name the cell"),
    ],
)
def test_wrong_input_is_one_sentence(
    root: Path, in_process: Callable[..., tuple[int, str]], words: list[str], code: int, said: str
) -> None:
    found, error = in_process("profile", *words, "--root", str(root))
    assert (found, error.count("\n")) == (code, 1)
    assert said in error
