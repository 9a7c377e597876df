# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import pytest

from iolab.errors import IolabError, UserError
from iolab.sweeps.measuring import check_room, store_locked
from iolab.sweeps.request import Request
from tests.test_files import small_disk


def test_a_disk_without_room_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64m") as disk:
        request = Request("smoke", root=disk / "runs", jobs=4)
        with pytest.raises(IolabError, match=r"needs 2048 MiB in .*/runs \(--jobs 4\), 6\d MiB"):
            check_room(request, 7)
        with pytest.raises(IolabError, match="needs 512 MiB"):
            check_room(request, 1)
        check_room(request, 0)
        check_room(Request("smoke", root=disk / "runs", target="local"), 7)


def test_what_a_killed_sweep_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    pages = tmp_path / "dio_kworker" / "smoke" / "pages"
    (tmp_path / "plans").mkdir()
    others = [tmp_path / "raw" / "abc" / ".work.kept", tmp_path / "home" / ".work.kept"]
    for folder in others:
        folder.mkdir(parents=True)
    kept = [pages / "boot0.ipynb", pages / "boot1.log", tmp_path / "plans" / "abc.json"]
    left = [
        *(pages / ".work.x1" / "boot0.ipynb", tmp_path / "plans" / "abc.progress"),
        *(tmp_path / "raw" / ".work.x2" / "results" / "facts.json", tmp_path / ".work.results.x3"),
    ]
    for path in kept + left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with store_locked(tmp_path, print):
        found = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert found == {*kept, tmp_path / ".sweep.lock"}
        assert not list(pages.glob(".work*"))
        assert all(folder.exists() for folder in others)


def test_a_root_without_a_block_keeps_no_lock(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "new"):
        with store_locked(root, print):
            assert (root / ".sweep.lock").exists()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "raw" / "0123").mkdir(parents=True)
    with store_locked(tmp_path, print):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"raw", ".sweep.lock"}


def test_nothing_is_done_in_a_store_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": "iolab-store/2"}')
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "abc.progress").touch()
    with pytest.raises(UserError, match="iolab-store/2"), store_locked(tmp_path, print):
        pass
    assert {path.name for path in tmp_path.rglob("*")} == {"store.json", "plans", "abc.progress"}
