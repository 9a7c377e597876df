# SPDX-License-Identifier: MIT
from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from iolab.store import partitions
from iolab.store.block_tables import block_tables
from iolab.store.files import PARTITIONS
from iolab.store.hashes import cell_hashes
from iolab.store.partitions import kept_hashes, kept_tables
from iolab.store.raw import RawStore
from iolab_base.errors import IolabError
from tests.support.stores import spoil, stored
from tests.test_architecture import PACKAGE, imports, room, top


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

    monkeypatch.setattr(partitions, "block_tables", counted)
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
    monkeypatch.setattr(partitions, "_code", lambda: "another")
    check(store)
    assert made == [*store.all_keys(), *store.all_keys()]


@pytest.mark.parametrize("name", ["iolab/store/counters.py", "tracedat/_decode.py"])
def test_a_docstring_leaves_the_code_as_it_is_and_a_constant_does_not(name: str) -> None:
    modules = partitions.sources()
    digest = partitions.code_digest(modules)
    docstring = ast.get_docstring(ast.parse(modules[name]), clean=False)
    assert docstring
    reworded = modules[name].replace(docstring, "Better words.") + "# a comment\n"
    assert partitions.code_digest({**modules, name: reworded}) == digest
    number = re.search(r"^_[A-Z_]+(?:: Final)? = .*\d", modules[name], re.MULTILINE)
    assert number
    changed = modules[name].replace(number[0], f"{number[0]}0", 1)
    assert partitions.code_digest({**modules, name: changed}) != digest


# They find, carry and refuse bytes: no number or text of a table is theirs.
_CARRIERS = {
    *(
        "agent",
        "code",
        "errors",
        "files",
        "names",
        "paths",
        "process",
        "reading",
        "tars",
        "writers",
    ),
}


def test_what_makes_tables_is_in_the_code() -> None:
    graph: dict[str, set[str]] = {}
    base = PACKAGE.parent / "packages" / "iolab_base" / "iolab_base"
    for one in [*imports(PACKAGE), *imports(base)]:
        graph.setdefault(one.module, set()).add(one.imported)
    todo, reached = ["iolab.store.block_tables", "iolab.store.hashes"], set[str]()
    while todo:
        module = todo.pop()
        mine = top(module) in ("iolab", "iolab_base")
        if mine and room(module) not in _CARRIERS and module not in reached:
            reached.add(module)
            todo += graph.get(module, ())
    names = {name.removesuffix(".py").removesuffix("/__init__") for name in partitions.sources()}
    assert {module.replace(".", "/") for module in reached} <= names
    assert {"iolab/agent/plan", "iolab/measure/io_path", "tracedat/_trace"} <= names


def test_a_pathology_of_the_user_has_none(
    store: RawStore, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "PATHOLOGIES", {})
    check(store)
    check(store)
    assert made == 2 * store.all_keys()
    assert not (store.root / PARTITIONS).exists()


def test_a_store_that_cannot_be_written_is_read(store: RawStore) -> None:
    (store.root / PARTITIONS).write_text("no folder")
    check(store)
