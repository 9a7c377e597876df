# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

from iolab.store.durations import BlockDuration, block_durations
from iolab.store.raw import RawStore, block_key
from tests.support.results import TARGET, block, write_results


def test_the_durations_of_stored_blocks_are_read(tmp_path: Path) -> None:
    store = RawStore(tmp_path)
    planned = block()
    results = write_results(tmp_path / "results", planned.plan)
    key = block_key(planned, TARGET)
    store.put(key, block=planned, target=TARGET, results=results, run={"wall_s": 31.5})
    # The smoke profile's jobs run for 450 ms.
    assert block_durations(tmp_path) == [
        BlockDuration("dio_kworker", "virtual", "vm", runtime_ms=450, cells=4, wall_s=31.5)
    ]


def test_what_is_no_block_is_left_out(tmp_path: Path) -> None:
    assert block_durations(tmp_path / "absent") == []
    for name, texts in {
        "a0": ["{}", "{}", "{}"],
        "a1": ["[]", "[]", "[]"],
        "a2": ["{", "", "{}"],
        "a3": ['{"plan": {"cells": [1]}}', "{}", "{}"],
    }.items():
        folder = tmp_path / "raw" / name
        folder.mkdir(parents=True)
        for part, text in zip(("block", "target", "run"), texts, strict=True):
            (folder / f"{part}.json").write_text(text)
    (tmp_path / "raw" / "b0").mkdir()
    assert block_durations(tmp_path) == []
