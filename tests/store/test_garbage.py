# SPDX-License-Identifier: MIT
"""What a folder of results can do without, on a store with one of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iolab.store.files import PARTITIONS
from iolab.store.garbage import find_garbage, remove_garbage
from iolab.store.raw import RawStore
from iolab_base.errors import IolabError
from tests.support.stores import stored


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of three blocks: one of a sweep, one of none, one that was set aside."""
    folder = tmp_path / "runs"
    used, unused, aside = stored(folder, boots=3)
    RawStore(folder).set_aside(aside)
    (folder / "plans").mkdir()
    for key in (used, aside):
        (folder / "plans" / f"{key}.json").write_text("{}")
    (folder / "plans" / f"{used}.observed.json").write_text("{}")
    for key in (used, unused, aside):
        (folder / "profiles" / key).mkdir(parents=True)
        (folder / "profiles" / key / "c000.parquet").write_bytes(b"12345")
        (folder / PARTITIONS).mkdir(exist_ok=True)
        (folder / PARTITIONS / f"{key}.json").write_text("{}")
    sweep = folder / "dio_kworker" / "quick"
    sweep.mkdir(parents=True)
    (sweep / "blocks.json").write_text(json.dumps([used]))
    return folder


def test_what_a_link_leads_to_is_neither_counted_nor_removed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(b"x" * 1000)
    (root / "set-aside" / "link").symlink_to(tmp_path / "other")
    (root / "up").symlink_to(root)
    found = find_garbage(root, unused=True)
    assert [one.size_bytes < 1000 for one in found if one.path.name == "link"] == [True]
    remove_garbage(found)
    assert (tmp_path / "other" / "file").exists()
    assert not (root / "set-aside" / "link").is_symlink()


def test_tables_behind_a_link_may_need_any_block(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (root / "dio_kworker" / "link").symlink_to(tmp_path / "other")
    with pytest.raises(IolabError, match="which blocks its tables need is not known"):
        find_garbage(root, unused=True)
    assert find_garbage(root)


def names(root: Path, *, unused: bool = False) -> list[tuple[str, str]]:
    return [(one.kind, one.path.name) for one in find_garbage(root, unused=unused)]


def test_only_what_no_result_needs_is_found(root: Path) -> None:
    (used,) = json.loads((root / "dio_kworker" / "quick" / "blocks.json").read_text())
    (aside,) = (path.name for path in (root / "set-aside").iterdir())
    # The plan of a block that is not measured is needed to measure it.
    assert names(root) == [
        ("plan", f"{used}.json"),
        ("plan", f"{used}.observed.json"),
        ("set aside", aside),
        ("profile", aside),
        ("tables", f"{aside}.json"),
    ]


def test_unused_blocks_are_found_when_asked_for(root: Path) -> None:
    (used,) = json.loads((root / "dio_kworker" / "quick" / "blocks.json").read_text())
    (unused,) = set(RawStore(root).all_keys()) - {used}
    more = set(names(root, unused=True)) - set(names(root))
    assert more == {("block", unused), ("profile", unused), ("tables", f"{unused}.json")}


def test_what_is_removed_is_what_was_found(root: Path) -> None:
    found = find_garbage(root, unused=True)
    assert sum(one.size_bytes for one in found if one.kind == "profile") == 10
    remove_garbage(found)
    assert find_garbage(root, unused=True) == []
    (used,) = json.loads((root / "dio_kworker" / "quick" / "blocks.json").read_text())
    assert RawStore(root).all_keys() == [used]
    assert (root / "profiles" / used / "c000.parquet").exists()


@pytest.mark.parametrize("damaged", ["[", "5", "[[]]"])
def test_no_block_is_unused_where_it_is_not_known_what_is_used(root: Path, damaged: str) -> None:
    (root / "dio_kworker" / "quick" / "blocks.json").write_text(damaged)
    with pytest.raises(IolabError, match="which blocks its tables need is not known"):
        find_garbage(root, unused=True)
    assert find_garbage(root)
