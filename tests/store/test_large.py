# SPDX-License-Identifier: MIT
"""The made-up large stores that tests/bench/bench_store.py measures, small."""

from __future__ import annotations

from pathlib import Path

from iolab.paths import REFERENCE
from iolab.store.dataset import load
from iolab.store.raw import RawStore
from iolab.store.soundness import block_states
from iolab.sweeps.measure import missing_blocks
from tests.support.large import large_blocks, large_store, large_tables
from tests.support.stores import spoil


def test_a_large_store_is_sound_and_one_damaged_cell_in_it_is_noticed(tmp_path: Path) -> None:
    blocks = large_blocks(1)
    assert large_store(tmp_path / "store", 1) == list(blocks)
    store = RawStore(tmp_path / "store")
    assert {state.state for state in block_states(store)} == {"sound"}
    assert missing_blocks(store, blocks) == []
    key = list(blocks)[1]
    spoil(next((store.folder(key) / "cells").iterdir()), lambda data: data[:-1])
    assert missing_blocks(store, blocks) == [key]


def test_large_tables_are_tables(tmp_path: Path) -> None:
    large_tables(REFERENCE / "dio_kworker", tmp_path / "tables", 500, bins=3)
    data = load(tmp_path / "tables")
    assert len(data.cells) >= 500
    assert len(data.latency) == 3 * len(data.cells)
    assert data.latency["cell"].drop_duplicates().tolist() == data.cells["cell"].tolist()
