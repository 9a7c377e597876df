# SPDX-License-Identifier: MIT
"""Profiles of observed cells in a store: found by a cell's name, and taken from another store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from guestprof.profile import CostProfile
from guestprof.profile_file import write_events, write_profile
from iolab.store.profiles import ProfileStore, RefusedProfileError
from iolab.store.raw import RawStore
from iolab_base.errors import IolabError
from tests.guestprof.test_profile import profile
from tests.support.stores import stored

__all__ = ["profile"]

_KEY = "0123456789abcdef0123456789abcdef"
_CELL = f"{_KEY[:16]}-c000"


def calls(path: Path, functions: Iterable[str]) -> None:
    call = {"at_ns": 2500, "task": "fio", "pid": 9, "cpu": 0, "function": "dget", "arg0": 1}
    write_events(path, pd.DataFrame([call]), functions)


def test_a_profile_is_found_by_the_name_of_its_cell(tmp_path: Path, profile: CostProfile) -> None:
    store = ProfileStore(tmp_path)
    assert list(store.names()) == []
    write_profile(store.path(_KEY, "c000"), profile)
    calls(store.path(_KEY, "c000.events"), ["dget"])
    assert list(store.names()) == [_CELL]
    assert store.profile(_CELL).totals == profile.totals
    assert store.events(_CELL)["at_ns"].tolist() == [2500]
    # Its block is not in the store.
    assert store.described(_CELL) == {"cell": _CELL}


def test_a_profile_is_there_with_the_calls_and_callers_that_are_asked_for(
    tmp_path: Path, profile: CostProfile
) -> None:
    store = ProfileStore(tmp_path)
    assert not store.has(_KEY, "c000")
    write_profile(store.path(_KEY, "c000"), profile)
    assert store.has(_KEY, "c000")
    assert not store.has(_KEY, "c000", ["dget"])
    calls(store.path(_KEY, "c000.events"), ["dget", "dput"])
    asked = (["dget"], ["dput", "dget"], ["dget", "other"])
    assert [store.has(_KEY, "c000", names) for names in asked] == [True, True, False]
    flat = replace(profile, totals={**profile.totals, "flat": 1})
    write_profile(store.path(_KEY, "c000"), flat)
    assert not store.has(_KEY, "c000")
    assert store.has(_KEY, "c000", flat=True)
    store.path(_KEY, "c000.events").write_bytes(b"damaged")
    assert not store.has(_KEY, "c000", ["dget"], flat=True)


def test_what_was_not_observed_says_what_to_measure(tmp_path: Path, profile: CostProfile) -> None:
    store = ProfileStore(tmp_path)
    write_profile(store.path(_KEY, "c000"), profile)
    for name, option in (
        (f"{_KEY[:16]}-c001", "--observe"),
        ("../../etc-c000", "--observe"),
        ("*-c000", "--observe"),
        ("c000", "--observe"),
    ):
        with pytest.raises(IolabError, match=option):
            store.profile(name)
        with pytest.raises(IolabError, match=option):
            store.events(name)
    with pytest.raises(IolabError, match="--calls"):
        store.events(_CELL)


def test_a_described_cell_has_its_block_and_what_varies_in_it(
    tmp_path: Path, profile: CostProfile
) -> None:
    (key,) = stored(tmp_path)
    store, block = ProfileStore(tmp_path), RawStore(tmp_path).block(key)
    for cell in block.cells:
        write_profile(store.path(key, cell.id), profile)
    found = [store.described(f"{key[:16]}-{cell.id}") for cell in block.cells]
    assert {(one["pathology"], one["kernel"], one["boot"]) for one in found} == {
        ("dio_kworker", "6.1", "0")
    }
    # Two cells are a treated pair, two an A/A pair.
    assert sorted((one["role"], one["condition"]) for one in found) == [
        *(("A/A", ""), ("A/A", ""), ("control", ""), ("treatment", "weight=1000"))
    ]
    write_profile(store.path(key, "c999"), profile)
    with pytest.raises(IolabError, match="c999"):
        store.described(f"{key[:16]}-c999")


def test_files_of_a_run_are_taken_and_other_ones_not(tmp_path: Path) -> None:
    store, run = ProfileStore(tmp_path / "store"), tmp_path / "run"
    run.mkdir()
    for name in ("c000.parquet", "c000.events.parquet", "qemu.log"):
        (run / name).write_text(name)
    store.take(_KEY, run)
    taken = sorted(path.name for path in store.path(_KEY, "c000").parent.iterdir())
    assert taken == ["c000.events.parquet", "c000.parquet"]
    assert store.path(_KEY, "c000").read_text() == "c000.parquet"


def test_another_stores_profiles_replace_none_and_a_link_is_refused(tmp_path: Path) -> None:
    (key,) = stored(tmp_path / "here")
    here, there = ProfileStore(tmp_path / "here"), ProfileStore(tmp_path / "there")
    for store, cell in ((here, "c000"), (there, "c000"), (there, "c001")):
        store.path(key, cell).parent.mkdir(parents=True, exist_ok=True)
        store.path(key, cell).write_text(f"of {store.root.name}")
    here.add(key, there)
    assert here.path(key, "c000").read_text() == "of here"
    assert here.path(key, "c001").read_text() == "of there"
    there.path(key, "c002").symlink_to(tmp_path / "secret")
    there.path(key, "c003").write_text("whole")
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(RefusedProfileError, match=r"c002\.parquet"):
        here.add(key, there)
    assert not here.path(key, "c002").exists()
    assert here.path(key, "c003").read_text() == "whole"
