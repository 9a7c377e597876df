# SPDX-License-Identifier: MIT
from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyarrow import parquet

from iolab.store import tables
from iolab.store.dataset import load
from iolab.store.files import PARTITIONS
from iolab.store.hashes import cell_hashes
from iolab.store.raw import RawStore, block_key
from iolab.store.tables import block_tables, canonical_lines, kept_hashes, kept_tables, write_tables
from iolab_base.errors import IolabError, UserError
from iolab_base.files import canonical_json
from tests.support.results import TARGET, block, result, write_results
from tests.support.stores import spoil, stored
from tests.test_architecture import PACKAGE, imports, room, top


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


def test_a_flipped_byte_of_a_number_is_no_number(tmp_path: Path, keys: list[str]) -> None:
    write_tables(RawStore(tmp_path / "store"), keys, {}, tmp_path / "out")
    path = tmp_path / "out" / "cells.parquet"
    whole = path.read_bytes()
    footer = parquet.read_metadata(path)
    column = footer.row_group(0).column(footer.schema.names.index("iops"))
    end = column.data_page_offset + column.total_compressed_size
    for at in range(end - 8, end):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(UserError, match="not a whole Parquet file"):
            load(tmp_path / "out")
    path.write_bytes(whole)
    load(tmp_path / "out")


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
    with pytest.raises(IolabError, match="does not fit into the tables") as caught:
        write_tables(store, keys, {}, tmp_path / "tables")
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "tables" / "cells.parquet").exists()


def test_tables_of_nothing_are_empty_tables(tmp_path: Path) -> None:
    write_tables(RawStore(tmp_path / "store"), [], {}, tmp_path / "out")
    assert load(tmp_path / "out").cells.empty


@pytest.fixture
def store(tmp_path: Path) -> RawStore:
    """A store of two blocks."""
    stored(tmp_path / "store", boots=2)
    return RawStore(tmp_path / "store")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The blocks whose tables were made of what the agent recorded."""
    keys: list[str] = []

    def counted(store: RawStore, wanted: list[str]) -> object:
        keys.extend(wanted)
        return block_tables(store, wanted)

    monkeypatch.setattr(tables, "block_tables", counted)
    return keys


def check(store: RawStore) -> None:
    """Check that partitions say what the blocks do."""
    keys = store.all_keys()
    for kept, found in zip(kept_tables(store, keys), block_tables(store, keys), strict=True):
        pd.testing.assert_frame_equal(kept, found)
    for key in keys:
        assert kept_hashes(store, key) == cell_hashes(store, key)


def test_tables_are_made_once_and_are_the_same(store: RawStore, made: list[str]) -> None:
    check(store)
    assert made == store.all_keys()
    check(store)
    assert made == store.all_keys()
    assert {p.name.partition(".")[0] for p in (store.root / PARTITIONS).iterdir()} == set(made)


def test_rows_are_in_the_order_of_the_keys(store: RawStore) -> None:
    first, second = store.all_keys()
    cells, _, _ = kept_tables(store, [second, first])
    assert cells["block"].drop_duplicates().tolist() == [second[:16], first[:16]]


def test_a_changed_file_of_a_block_is_seen(store: RawStore) -> None:
    check(store)
    first, _ = store.all_keys()
    spoil(store.folder(first) / "cells" / "c001.json.gz", lambda data: data[:-1])
    with pytest.raises(IolabError, match=r"c001\.json\.gz is missing or damaged"):
        kept_tables(store, store.all_keys())


@pytest.mark.parametrize("name", ["cells.parquet", "latency.parquet", "json"])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b"c001", b"c002"),
        lambda data: data.replace(b'"recorded_sha256":"', b'"recorded_sha256":"0', 1),
        lambda data: b"[" * 100_000,
    ],
    ids=["cut", "empty", "another", "forged", "deep"],
)
def test_a_damaged_partition_is_made_again(
    store: RawStore, made: list[str], name: str, change: Callable[[bytes], bytes]
) -> None:
    check(store)
    first, second = store.all_keys()
    path = store.root / PARTITIONS / f"{first}.{name}"
    whole = path.read_bytes()
    spoil(path, change)
    damaged = path.read_bytes() != whole
    kept_tables(store, [first, second])
    if damaged:
        assert made == [first, second, first]
    check(store)


def test_other_code_makes_its_own(
    store: RawStore, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(store)
    monkeypatch.setattr(tables, "_code", lambda: "another")
    check(store)
    assert made == [*store.all_keys(), *store.all_keys()]


@pytest.mark.parametrize("name", ["iolab/store/counters.py", "tracedat/_decode.py"])
def test_a_docstring_leaves_the_code_as_it_is_and_a_constant_does_not(name: str) -> None:
    modules = tables.sources()
    digest = tables.code_digest(modules)
    docstring = ast.get_docstring(ast.parse(modules[name]), clean=False)
    assert docstring
    reworded = modules[name].replace(docstring, "Better words.") + "# a comment\n"
    assert tables.code_digest({**modules, name: reworded}) == digest
    number = re.search(r"^_[A-Z_]+(?:: Final)? = .*\d", modules[name], re.MULTILINE)
    assert number
    changed = modules[name].replace(number[0], f"{number[0]}0", 1)
    assert tables.code_digest({**modules, name: changed}) != digest


# They find, carry and refuse bytes: no number or text of a table is theirs.
_CARRIERS = {
    *("code", "errors", "files", "names", "paths", "process", "reading", "tars", "writers"),
}


def test_what_makes_tables_is_in_the_code() -> None:
    graph: dict[str, set[str]] = {}
    base = PACKAGE.parent / "packages" / "iolab_base" / "iolab_base"
    for one in [*imports(PACKAGE), *imports(base)]:
        graph.setdefault(one.module, set()).add(one.imported)
    todo, reached = ["iolab.store.tables", "iolab.store.hashes"], set[str]()
    while todo:
        module = todo.pop()
        mine = top(module) in ("iolab", "iolab_base")
        if mine and room(module) not in _CARRIERS and module not in reached:
            reached.add(module)
            todo += graph.get(module, ())
    names = {name.removesuffix(".py").removesuffix("/__init__") for name in tables.sources()}
    assert {module.replace(".", "/") for module in reached} <= names
    assert {
        "fiojobs/table",
        "iolab_agent/plan",
        "iolab/measure/io_path",
        "tracedat/_trace",
    } <= names


def test_a_pathology_of_the_user_has_none(
    store: RawStore, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PATHOLOGIES", {})
    check(store)
    check(store)
    assert made == 2 * store.all_keys()
    assert not (store.root / PARTITIONS).exists()


def test_a_store_that_cannot_be_written_is_read(store: RawStore) -> None:
    (store.root / PARTITIONS).write_text("no folder")
    check(store)
