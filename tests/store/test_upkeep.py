# SPDX-License-Identifier: MIT
"""Folders of results inspected, merged into one another, and freed of what they can do without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iolab.store.files import OWN, PARTITIONS
from iolab.store.raw import RawStore
from iolab.store.soundness import block_states
from iolab.store.tables import write_tables
from iolab.store.upkeep import find_garbage, inspect_folder, merge_store, remove_garbage
from iolab_base.errors import IolabError, UserError
from iolab_base.files import digest_file
from tests.support.stores import spoil, stored, without_digests


@pytest.mark.parametrize("own", sorted(OWN))
def test_a_folder_of_the_store_holds_no_tables_of_a_sweep(own: str, tmp_path: Path) -> None:
    stored(tmp_path, boots=1)
    for folder in (tmp_path / own / "ab", tmp_path / "dio_kworker" / own):
        folder.mkdir(parents=True)
        (folder / "cells.parquet").write_bytes(b"")
    assert [one.folder for one in inspect_folder(tmp_path).tables] == [
        tmp_path / "dio_kworker" / own
    ]


def test_traces_of_other_blocks_leave_a_sweeps_folder(tmp_path: Path) -> None:
    folder = tmp_path / "dio_kworker" / "smoke"
    old, new = stored(tmp_path, boots=2)
    write_tables(RawStore(tmp_path), [old], {}, folder)
    (folder / "traces").mkdir()
    (folder / "traces" / f"{old[:16]}-c000.dat").touch()
    write_tables(RawStore(tmp_path), [new], {}, folder)
    assert not list((folder / "traces").iterdir())
    assert [one.state for one in inspect_folder(tmp_path).tables] == ["sound"]


def bytes_of(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): digest_file(p) for p in folder.rglob("*") if p.is_file()}


def test_blocks_are_taken_once_and_are_the_same_bytes(tmp_path: Path) -> None:
    keys = stored(tmp_path / "one", boots=3)
    (first,) = stored(tmp_path / "two")
    assert first in keys
    merged = merge_store(tmp_path / "one", tmp_path / "two")
    assert (set(merged.taken), merged.same) == ({*keys} - {first}, [first])
    assert (merged.different, merged.left_out) == ({}, [])
    assert bytes_of(tmp_path / "one" / "raw") == bytes_of(tmp_path / "two" / "raw")
    again = merge_store(tmp_path / "one", tmp_path / "two")
    assert (again.taken, sorted(again.same)) == ([], sorted(keys))


def test_an_empty_folder_becomes_a_store(tmp_path: Path) -> None:
    (key,) = stored(tmp_path / "one")
    merge_store(tmp_path / "one", tmp_path / "new")
    assert [state.state for state in block_states(RawStore(tmp_path / "new"))] == ["sound"]
    assert (tmp_path / "new" / "store.json").read_bytes() == (
        tmp_path / "one" / "store.json"
    ).read_bytes()
    assert RawStore(tmp_path / "new").has(key)


def test_what_is_damaged_stays_where_it_is(tmp_path: Path) -> None:
    bad, good = stored(tmp_path / "one", boots=2)
    spoil(tmp_path / "one" / "raw" / bad / "cells" / "c001.json.gz", lambda data: data[:100])
    merged = merge_store(tmp_path / "one", tmp_path / "two")
    assert merged.taken == [good]
    assert [(state.key, state.state) for state in merged.left_out] == [(bad, "damaged")]
    assert not RawStore(tmp_path / "two").has(bad)


def test_other_bytes_of_the_same_block_are_named_and_nothing_is_replaced(tmp_path: Path) -> None:
    (key,) = stored(tmp_path / "one")
    stored(tmp_path / "two")
    place = tmp_path / "two" / "raw" / key
    without_digests(RawStore(tmp_path / "two"), key)
    spoil(place / "facts.json", lambda data: data.replace(b"CFS", b"EEVDF"))
    before = bytes_of(place)
    merged = merge_store(tmp_path / "one", tmp_path / "two")
    assert merged.different == {key: ["facts.json"]}
    assert (merged.taken, merged.same) == ([], [])
    assert bytes_of(place) == before


def test_profiles_come_with_their_blocks(tmp_path: Path) -> None:
    (key,) = stored(tmp_path / "one")
    for name, data in (("c000.parquet", b"theirs"), ("c001.parquet", b"new")):
        (tmp_path / "one" / "profiles" / key).mkdir(parents=True, exist_ok=True)
        (tmp_path / "one" / "profiles" / key / name).write_bytes(data)
    here = tmp_path / "two" / "profiles" / key
    here.mkdir(parents=True)
    (here / "c000.parquet").write_bytes(b"ours")
    merge_store(tmp_path / "one", tmp_path / "two")
    assert {p.name: p.read_bytes() for p in here.iterdir()} == {
        "c000.parquet": b"ours",
        "c001.parquet": b"new",
    }


def test_only_what_is_known_of_a_run_is_taken_over(tmp_path: Path) -> None:
    (key,) = stored(tmp_path / "one")
    said = {"wall_s": 1.5, "iolab": "0.0.9\x1b[2J", "token": "hidden"}
    spoil(tmp_path / "one" / "raw" / key / "run.json", lambda _: json.dumps(said).encode())
    assert merge_store(tmp_path / "one", tmp_path / "two").taken == [key]
    run = tmp_path / "two" / "raw" / key / "run.json"
    assert json.loads(run.read_bytes()) == {"wall_s": 1.5, "iolab": "0.0.9?[2J"}
    assert {p.stat().st_mode & 0o777 for p in run.parent.rglob("*") if p.is_file()} == {0o444}


def test_what_changed_after_the_check_is_not_taken(tmp_path: Path) -> None:
    (key,) = stored(tmp_path / "one")
    there, here = RawStore(tmp_path / "one"), RawStore(tmp_path / "two")
    # The copy has what the other store has now, and it is the copy that is judged.
    spoil(there.folder(key) / "cells" / "c001.json.gz", lambda data: data[:-1] + b"x")
    here.copy(key, there)
    assert [state.state for state in block_states(here)] == ["damaged"]


def test_a_block_is_taken_without_a_profile_that_is_a_link(tmp_path: Path) -> None:
    (key,) = stored(tmp_path / "one")
    (tmp_path / "private").write_text("key")
    profiles = tmp_path / "one" / "profiles" / key
    profiles.mkdir(parents=True)
    (profiles / "c000.parquet").symlink_to(tmp_path / "private")
    (profiles / "c001.parquet").write_bytes(b"whole")
    (profiles / "other.parquet").write_bytes(b"of no cell")
    merged = merge_store(tmp_path / "one", tmp_path / "two")
    assert merged.taken == [key]
    assert [(state.key, "c000.parquet" in state.reason) for state in merged.left_out] == [
        (key, True)
    ]
    assert [p.name for p in (tmp_path / "two" / "profiles" / key).iterdir()] == ["c001.parquet"]


def test_what_is_no_store_or_of_another_format_is_one_sentence(tmp_path: Path) -> None:
    stored(tmp_path / "one")
    with pytest.raises(UserError, match="holds no store"):
        merge_store(tmp_path / "nowhere", tmp_path / "one")
    with pytest.raises(UserError, match="name another one"):
        merge_store(tmp_path / "one", tmp_path / "." / "one")
    stored(tmp_path / "newer")
    (tmp_path / "newer" / "store.json").write_text(json.dumps({"format": "iolab-store/9"}))
    with pytest.raises(UserError, match="iolab-store/9"):
        merge_store(tmp_path / "newer", tmp_path / "one")


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
    with pytest.raises(IolabError, match="blocks of its tables are unknown"):
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
    with pytest.raises(IolabError, match="blocks of its tables are unknown"):
        find_garbage(root, unused=True)
    assert find_garbage(root)
