# SPDX-License-Identifier: MIT
"""The command that shows where the instructions of an observed cell went."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from guestprof.calls import write_calls
from guestprof.profile import CostProfile
from guestprof.profile_file import write_events, write_profile
from guestprof.schedule import SWITCH_CALLS, switches
from iolab.cli import main
from iolab.store.profiles import ProfileStore
from iolab.store.raw import RawStore
from tests.guestprof.test_profile import profile
from tests.guestprof.test_schedule import story
from tests.support.stores import stored

__all__ = ["profile"]

_KEY = "0123456789abcdef0123456789abcdef"
_CELL = f"{_KEY[:16]}-c000"
_OTHER = f"{_KEY[:16]}-c001"


@pytest.fixture
def root(tmp_path: Path, profile: CostProfile) -> Path:
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
    lines = _said(capsys, monkeypatch, "--root", str(root)).splitlines()
    assert [line.split() for line in lines[1:]] == [[_CELL], [_OTHER]]
    assert lines[0].split()[:2] == ["cell", "pathology"]


def test_a_listed_cell_has_its_condition(
    tmp_path: Path,
    profile: CostProfile,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (key,) = stored(tmp_path)
    planned = RawStore(tmp_path).block(key).cells
    for cell in planned:
        write_profile(ProfileStore(tmp_path).path(key, cell.id), profile)
    rows = json.loads(_said(capsys, monkeypatch, "--root", str(tmp_path), "--json"))
    assert [row["cell"] for row in rows] == [f"{key[:16]}-{cell.id}" for cell in planned]
    assert {row["role"] for row in rows} == {"A/A" if c.aa else c.role for c in planned}
    treated = next(row for row in rows if row["role"] == "treatment")
    assert treated["condition"].startswith("weight=")
    words = (treated["cell"], "--flame", str(tmp_path / "f.html"), "--root", str(tmp_path))
    _said(capsys, monkeypatch, *words)
    assert f"<title>{treated['pathology']}, kernel" in (tmp_path / "f.html").read_text()


def test_boots_that_are_compared_have_an_interval(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (_CELL, _CELL, "--against", _OTHER, "--against", _CELL, "--json", "--root", str(root))
    rows = json.loads(_said(capsys, monkeypatch, *words))
    user = next(row for row in rows if row["function"] == "[user]")
    assert (user["treated"], user["control"], user["difference"]) == (10.0, 7.5, 2.5)
    assert user["low"] < 0 < user["high"]
    assert user["n"] == 2


def test_recorded_calls_are_written_for_perfetto_with_the_schedule_that_they_tell(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, words = root / "calls.pb", ("--perfetto", str(root / "calls.pb"), "--root", str(root))
    calls = story()
    some = calls[calls["function"] == SWITCH_CALLS[0]]
    for events, schedule in ((calls, switches(calls)), (some, None)):
        names = set(events["function"])
        write_events(ProfileStore(root).path(_KEY, "c000.events"), events, names)
        _said(capsys, monkeypatch, _CELL, *words)
        write_calls(root / "expected.pb", events, schedule)
        assert path.read_bytes() == (root / "expected.pb").read_bytes()


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


def test_who_wakes_and_preempts_whom_is_shown(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_events(ProfileStore(root).path(_KEY, "c000.events"), story(), SWITCH_CALLS)
    words = (_CELL, "--switches", "--root", str(root))
    rows = json.loads(_said(capsys, monkeypatch, *words, "--json"))
    preempts = next(row for row in rows if row["does"] == "preempts")
    assert preempts == {
        "task": "fio",
        "does": "preempts",
        "other": "kworker/0:1",
        "count": 2,
        "per_io": 0.2,
        "wait_ns": None,
    }
    said = _said(capsys, monkeypatch, *words).splitlines()
    assert said[0].split() == ["task", "does", "other", "count", "per_io", "wait_ns"]
    assert "nan" not in "".join(said)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--switches"], 2, "name the cell"),
        ([_CELL, "--switches"], 1, "no calls of cell"),
        ([_CELL, "--against", _OTHER, "--switches"], 2, "takes one cell"),
        (["0123456789abcdef-c009"], 1, "was not observed"),
        (["../../etc-passwd"], 1, "was not observed"),
        (["--flame", "x.html"], 2, "name the cell"),
        ([_CELL, _OTHER], 2, "takes one cell"),
        ([_CELL, "--against", _OTHER, "--against", _CELL], 2, "1 cells need as many"),
        ([_CELL, _CELL, *("--against", _CELL) * 2, "--pprof", "x"], 2, "--pprof takes one cell"),
        ([_CELL, "--perfetto", "x"], 1, "no calls of cell"),
    ],
)
def test_wrong_input_is_one_sentence(
    root: Path, in_process: Callable[..., tuple[int, str]], words: list[str], code: int, said: str
) -> None:
    found, error = in_process("profile", *words, "--root", str(root))
    assert (found, error.count("\n")) == (code, 1)
    assert said in error
