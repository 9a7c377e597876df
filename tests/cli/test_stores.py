# SPDX-License-Identifier: MIT
"""``iolab status``, ``iolab merge``, ``iolab gc`` and ``iolab fsck``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from iolab.paths import REFERENCE
from iolab.store.raw import RawStore
from iolab.store.tables import write_tables
from tests.support.command import Told
from tests.support.commands import every_command
from tests.support.stores import BUSY, spoil, stored, without_digests

Run = Callable[..., Told]
# Each command with --root. Those that measure ask `iolab.sweeps.measure.store_locked`.
_WITH_ROOT = (
    *("plan dio_kworker --root", "sweep --dry-run --root", "status dio_kworker --root"),
    *("profile --root", "profile CELL --root", "merge OTHER --root"),
    f"export {REFERENCE / 'dio_kworker'} --canonical --root",
)
_MEASURING = ("ask", "atlas", "bisect", "decide", "judge", "why")


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
    assert f"{one}: 1 taken, 0 already there" in told.out

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


@pytest.fixture
def keys(root: Path) -> list[str]:
    """Two blocks, and the tables of them."""
    found = stored(root, boots=2)
    write_tables(RawStore(root), found, {}, root / "dio_kworker" / "smoke")
    return found


@pytest.mark.usefixtures("keys")
def test_a_sound_folder_is_one_line(root: Path, iolab: Callable[..., Told]) -> None:
    told = iolab("fsck", root)
    assert (told.code, told.error) == (0, "")
    assert told.out == "2 of 2 blocks and 1 of 1 folder of tables are sound\n"


def test_damage_is_named_and_set_aside_if_asked(
    root: Path, keys: list[str], iolab: Callable[..., Told]
) -> None:
    cell = RawStore(root).folder(keys[0]) / "cells" / "c001.json.gz"
    spoil(cell, lambda data: data[:-5])
    before = sorted(root.rglob("*"))
    told = iolab("fsck", root)
    assert (told.code, told.one_line()) == (1, "1 block and 0 folders are damaged")
    assert f"DAMAGED  block {keys[0][:16]} (dio_kworker 6.1 boot 0): cells/c001.json.gz" in told.out
    assert "1 of 2 blocks" in told.out
    assert sorted(root.rglob("*")) == before
    told = iolab("fsck", root, "--set-aside", "--json")
    assert told.code == 1
    found = json.loads(told.out)
    assert found["damaged"] == 1
    states = {one["key"]: (one["state"], one["set_aside"]) for one in found["blocks"]}
    place = str(root / "set-aside" / keys[0])
    assert states == {keys[0]: ("damaged", place), keys[1]: ("sound", None)}
    assert (Path(place) / "cells" / "c001.json.gz").exists()
    told = iolab("fsck", root)
    assert (told.code, told.out) == (0, "1 of 1 block and 1 of 1 folder of tables are sound\n")


@pytest.mark.parametrize("lost", [False, True])
def test_damaged_tables_say_what_mends_them(
    root: Path, keys: list[str], lost: bool, iolab: Callable[..., Told]
) -> None:
    spoil(root / "dio_kworker" / "smoke" / "latency.parquet", lambda data: data[:100])
    if lost:
        spoil(RawStore(root).folder(keys[1]) / "block.json", lambda data: data[:100])
    told = iolab("fsck", root)
    assert told.code == 1
    assert "latency.parquet: not a whole Parquet file" in told.out
    mend = "1 of its 2 blocks are measured again" if lost else "nothing is measured"
    assert mend in told.out


def test_a_refused_block_is_no_damage(root: Path, iolab: Callable[..., Told]) -> None:
    stored(root, preflight=[BUSY])
    told = iolab("fsck", root)
    assert (told.code, told.error) == (0, "")
    assert "load of the measured CPU: 45 %" in told.out
    assert "the next sweep measures it again" in told.out


def test_tables_of_an_unknown_pathology_are_no_damage(
    root: Path, keys: list[str], iolab: Callable[..., Told]
) -> None:
    assert keys
    path = root / "dio_kworker" / "smoke" / "cells.parquet"
    pd.read_parquet(path).assign(pathology="dio_unknown").to_parquet(path, index=False)
    told = iolab("fsck", root)
    assert (told.code, told.error) == (0, "")
    assert "name the file that defines it" in told.out


def test_what_is_no_folder_of_results_is_one_sentence(
    tmp_path: Path, iolab: Callable[..., Told]
) -> None:
    for folder in (tmp_path, tmp_path / "away"):
        told = iolab("fsck", folder)
        assert (told.code, told.out) == (2, "")
        assert "holds neither a store (raw) nor tables" in told.one_line()
    (tmp_path / "cells.parquet").touch()
    told = iolab("fsck", tmp_path / "cells.parquet")
    assert (told.code, told.out) == (2, "")
    assert "is not a folder of results" in told.one_line()


def test_another_iolabs_store_is_refused(
    root: Path, keys: list[str], iolab: Callable[..., Told]
) -> None:
    assert keys
    spoil(root / "store.json", lambda _: b'{"format": "iolab-store/9"}')
    told = iolab("fsck", root)
    assert (told.code, told.out) == (2, "")
    assert "the store's format is 'iolab-store/9'" in told.one_line()


def test_the_reference_data_are_sound(iolab: Callable[..., Told]) -> None:
    told = iolab("fsck", REFERENCE)
    assert (told.code, told.error) == (0, "")
