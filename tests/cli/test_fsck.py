# SPDX-License-Identifier: MIT
"""``iolab fsck``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab.paths import REFERENCE
from iolab.store.raw import RawStore
from iolab.store.tables import write_tables
from tests.support.command import Told
from tests.support.stores import BUSY, spoil, stored


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
    spoil(path, lambda data: data.replace(b"dio_kworker", b"dio_unknown"))
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
    assert "is no folder of results" in told.one_line()


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
