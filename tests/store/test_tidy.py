# SPDX-License-Identifier: MIT
from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from iolab.store.dataset import load
from iolab.store.raw import RawStore, block_key
from iolab.store.tidy import canonical_lines, write_tables
from iolab_base.errors import IolabError
from iolab_base.files import canonical_json
from tests.support.results import TARGET, block, result, write_results
from tests.support.stores import spoil


@pytest.fixture
def failed() -> dict[str, Any]:
    return {"id": "c001", "state": "failed", "reason": "fio ended with 1"}


@pytest.fixture
def keys(tmp_path: Path, failed: dict[str, Any]) -> list[str]:
    """Two blocks in ``store``; in the first a cell failed, in the second a gate closed."""
    store = RawStore(tmp_path / "store")
    found = []
    odd = {**result("c001"), "gates": ["the ramp was not honoured"]}
    for boot, different in ((0, failed), (1, odd)):
        made = block(boot)
        results = write_results(tmp_path / f"results{boot}", made.plan, c001=different)
        key = block_key(made, TARGET)
        store.put(key, block=made, target=TARGET, results=results, run={"started": str(boot)})
        found.append(key)
    return found


def test_tables_are_read_back_as_they_were_made(tmp_path: Path, keys: list[str]) -> None:
    store = RawStore(tmp_path / "store")
    made = write_tables(store, keys, {"6.8": "its archive is away"}, tmp_path / "out")
    data = load(tmp_path / "out")
    pd.testing.assert_frame_equal(data.cells, made.cells)
    pd.testing.assert_frame_equal(data.latency, made.latency)
    assert data.kernels == made.kernels
    assert list(data.kernels) == ["6.1"]
    assert data.unavailable.to_dict("records") == [
        {"kernel": "6.8", "reason": "its archive is away"}
    ]
    cells = data.cells
    assert len(cells) == 8
    assert cells["cell"].tolist() == [f"{k[:16]}-c00{n}" for k in keys for n in range(4)]
    assert cells["boot"].tolist() == [0] * 4 + [1] * 4
    assert set(cells["scheduler"]) == {"CFS"}
    assert (cells["weight"].isna() == (cells["aa"] | (cells["role"] == "control"))).all()
    assert (cells.loc[cells["role"] == "treatment", "weight"].dropna() == 1000).all()
    spoiled = cells[~cells["valid"]]
    assert spoiled["gate"].tolist() == ["failed: fio ended with 1", "the ramp was not honoured"]
    assert spoiled["iops"].isna().tolist() == [True, False]
    assert (cells["iops"].dropna() == 3000).all()
    # A cell that failed has no latencies; the others have two bins of 1500 I/Os together.
    assert data.latency.groupby("cell")["count"].sum().tolist() == [1500] * 7
    assert json.loads((tmp_path / "out" / "blocks.json").read_text()) == keys


def test_the_canonical_text_is_the_same_for_the_same_measurement(
    tmp_path: Path, keys: list[str], failed: dict[str, Any]
) -> None:
    store = RawStore(tmp_path / "store")
    write_tables(store, keys, {}, tmp_path / "out")
    lines = list(canonical_lines(store, tmp_path / "out"))
    rows = [json.loads(line) for line in lines]
    assert [row["cell"] for row in rows] == load(tmp_path / "out").cells["cell"].tolist()
    assert rows[1]["iops"] is None
    assert rows[1]["recorded_sha256"] == (
        hashlib.sha256(canonical_json(failed).encode()).hexdigest()
    )
    assert len({row["recorded_sha256"] for row in rows}) == 5
    # Another store, another time of measuring: the same text.
    other = RawStore(tmp_path / "other")
    for boot, key in enumerate(keys):
        results = tmp_path / f"results{boot}"
        other.put(key, block=block(boot), target=TARGET, results=results, run={"started": "x"})
    assert list(canonical_lines(other, tmp_path / "out")) == lines


def test_a_machine_that_was_busy_makes_all_cells_of_its_block_invalid(tmp_path: Path) -> None:
    store, made = RawStore(tmp_path / "store"), block(0)
    busy = {"what": "load of the measured CPU", "found": "45 %", "good": False, "needed": True}
    odd = {**result("c001"), "gates": ["the ramp was not honoured"]}
    results = write_results(tmp_path / "results", made.plan, [busy], c001=odd)
    key = block_key(made, TARGET)
    store.put(key, block=made, target=TARGET, results=results, run={})
    cells = write_tables(store, [key], {}, tmp_path / "out").cells
    assert not cells["valid"].any()
    busy_gate = "load of the measured CPU: 45 %"
    gates = [busy_gate, f"the ramp was not honoured; {busy_gate}", busy_gate, busy_gate]
    assert cells["gate"].tolist() == gates
    assert cells["iops"].notna().all()


def test_one_changed_number_changes_its_line_only(tmp_path: Path, keys: list[str]) -> None:
    store = RawStore(tmp_path / "store")
    write_tables(store, keys, {}, tmp_path / "out")
    before = list(canonical_lines(store, tmp_path / "out"))
    made = block(0)
    changed = result("c002")
    changed["last"]["tasks"]["22"]["waited_ns"] = 1
    results = write_results(
        tmp_path / "again", made.plan, c002=changed, c001=_failed(store, keys[0])
    )
    shutil.rmtree(store.folder(keys[0]))
    store.put(keys[0], block=made, target=TARGET, results=results, run={})
    after = list(canonical_lines(store, tmp_path / "out"))
    assert [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [2]


def _failed(store: RawStore, key: str) -> dict[str, Any]:
    found: dict[str, Any] = list(store.cells(key))[1]["result"]
    return found


def test_without_a_finished_sweep_there_is_no_export(tmp_path: Path, keys: list[str]) -> None:
    store = RawStore(tmp_path / "store")
    for _ in range(2):
        with pytest.raises(IolabError, match="holds no finished sweep"):
            list(canonical_lines(store, tmp_path / "out"))
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "blocks.json").write_text("[")
    (tmp_path / "out" / "blocks.json").write_text('["abc"]')
    with pytest.raises(IolabError, match="has no block abc"):
        list(canonical_lines(store, tmp_path / "out"))


@pytest.mark.parametrize("listed", ["[null]", "{}", "5", '["../raw"]', "[[]]", "[" * 100_000])
def test_an_export_of_what_names_no_block_is_one_sentence(tmp_path: Path, listed: str) -> None:
    (tmp_path / "blocks.json").write_text(listed)
    with pytest.raises(IolabError, match=r"names no blocks|holds no finished sweep"):
        list(canonical_lines(RawStore(tmp_path / "store"), tmp_path))


@pytest.mark.parametrize("document", [None, [], 5, {}, {"cell": None, "facts": [], "target": 1}])
def test_an_export_of_a_cell_that_is_none_is_one_sentence(
    tmp_path: Path, keys: list[str], document: object
) -> None:
    store = RawStore(tmp_path / "store")
    path = store.folder(keys[0]) / "cells" / "c000.json.gz"
    path.unlink()
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    (tmp_path / "blocks.json").write_text(json.dumps(keys))
    with pytest.raises(IolabError, match=r"c000\.json\.gz is missing or damaged"):
        list(canonical_lines(store, tmp_path))


def test_a_number_that_no_table_takes_is_one_sentence(tmp_path: Path, keys: list[str]) -> None:
    store = RawStore(tmp_path / "store")
    path = store.folder(keys[0]) / "block.json"

    def change(data: bytes) -> bytes:
        return json.dumps({**json.loads(data), "boot": 10**30}).encode()

    spoil(path, change)
    with pytest.raises(IolabError, match="holds what no table takes") as caught:
        write_tables(store, keys, {}, tmp_path / "tables")
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "tables" / "cells.parquet").exists()


def test_tables_of_nothing_are_empty_tables(tmp_path: Path) -> None:
    write_tables(RawStore(tmp_path / "store"), [], {}, tmp_path / "out")
    assert load(tmp_path / "out").cells.empty
