# SPDX-License-Identifier: MIT
"""Stores merged into one another: every block counted, none replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iolab.store.merging import merge_store
from iolab.store.raw import RawStore
from iolab.store.soundness import block_states
from iolab_base.errors import UserError
from iolab_base.files import digest_file
from tests.support.stores import spoil, stored, without_digests


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
