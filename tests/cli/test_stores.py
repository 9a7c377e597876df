# SPDX-License-Identifier: MIT
"""``iolab status``, ``iolab merge`` and ``iolab gc``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab.paths import REFERENCE
from iolab.store.raw import RawStore
from tests.support.command import Told
from tests.support.commands import every_command
from tests.support.stores import spoil, stored, without_digests

Run = Callable[..., Told]
# Each command with --root. Those that measure ask `iolab.sweeps.measure.store_locked`.
_WITH_ROOT = (
    *("plan dio_kworker --root", "sweep --dry-run --root", "status dio_kworker --root"),
    *("profile --root", "profile CELL --root", "merge OTHER --root"),
    f"export {REFERENCE / 'dio_kworker'} --canonical --root",
)
_MEASURING = ("bisect", "decide", "judge", "why")


def test_nothing_is_measured_where_no_kernel_is(
    iolab: Run, alone: dict[str, str], monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    words = ("status", "fsnotify_contention", "--profile", "smoke", "--kernel", "6.1")
    told = iolab(*words, "--root", root, "--jobs", "1")
    assert (told.code, told.error) == (0, "")
    table = told.out.splitlines()
    assert table[1].split()[:5] == ["fsnotify_contention", "6.1", "0", "of", "2"]
    assert table[-1].startswith("2 blocks are missing, about ")
    assert not root.exists()


def test_stores_are_merged_and_said(iolab: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    bad, good = stored(one, boots=2)
    spoil(one / "raw" / bad / "cells" / "c001.json.gz", lambda data: data[:9])
    told = iolab("merge", one, "--root", two)
    assert (told.code, told.one_line()) == (1, "left out: 1 block; different in virtual time: 0")
    assert f"left out  block {bad[:16]} (dio_kworker 6.1 boot 0): damaged" in told.out
    assert f"{one}: 1 taken, 0 were there" in told.out

    without_digests(RawStore(two), good)
    spoil(two / "raw" / good / "facts.json", lambda data: data.replace(b"CFS", b"EEVDF"))
    told = iolab("merge", one, "--root", two, "--json")
    assert (told.code, told.one_line()) == (1, "left out: 1 block; different in virtual time: 1")
    (document,) = json.loads(told.out)
    assert document["different"] == [{"key": good, "files": ["facts.json"]}]
    assert [left["state"] for left in document["left_out"]] == ["damaged"]


def test_garbage_is_shown_first_and_removed_when_asked_for(iolab: Run, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    key, _ = stored(root, boots=2)
    (root / "plans").mkdir()
    (root / "plans" / f"{key}.json").write_bytes(b"x" * (1 << 20))
    assert "1.0 MiB can be removed with --delete" in iolab("gc", root).out
    assert (root / "plans" / f"{key}.json").exists()
    assert "MiB removed" in iolab("gc", root, "--delete", "--unused").out
    assert RawStore(root).all_keys() == []
    told = iolab("gc", root)
    assert (told.code, told.out) == (0, "nothing to remove\n")


@pytest.mark.parametrize("words", [("merge", "{}"), ("gc", "{}"), ("merge",)])
def test_what_is_no_store_is_one_sentence(
    iolab: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    told = iolab(*(word.format(tmp_path / "nothing") for word in words))
    assert told.code == 2
    assert told.one_line()


def test_every_command_with_a_root_is_known_here() -> None:
    names = {n for n, c in every_command() if any("--root" in p.opts for p in c.params)}
    assert names == {words.split()[0] for words in _WITH_ROOT} | set(_MEASURING)


@pytest.mark.parametrize("words", [*_WITH_ROOT, "fsck", "gc", "merge --root OTHER"])
def test_a_store_of_another_format_is_refused(iolab: Run, tmp_path: Path, words: str) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    stored(other)
    (root / "raw").mkdir(parents=True)
    (root / "store.json").write_text('{"format": "iolab-store/2"}')
    told = iolab(*words.replace("OTHER", str(other)).split(), root)
    assert (told.code, told.out) == (2, "")
    assert "iolab-store/2" in told.one_line()
    assert {path.name for path in root.iterdir()} == {"raw", "store.json"}


def test_a_root_that_is_no_store_is_left_as_it_is(iolab: Run, tmp_path: Path) -> None:
    (tmp_path / "empty" / "raw").mkdir(parents=True)
    assert iolab("merge", tmp_path / "nothing", "--root", tmp_path / "new").code == 2
    assert iolab("merge", tmp_path / "empty", "--root", tmp_path / "new").code == 0
    assert iolab("gc", tmp_path / "empty").code == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "raw"]
