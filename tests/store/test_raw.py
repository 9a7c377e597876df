# SPDX-License-Identifier: MIT
from __future__ import annotations

import gzip
import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from iolab.blocks import Block
from iolab.pathology import get_pathology
from iolab.store.files import DIGESTS, digests_of
from iolab.store.raw import RawStore, block_key
from iolab.store.soundness import block_state
from iolab.store.tables import block_rows
from iolab.sweeps.measure import missing_blocks
from iolab_base.errors import IolabError
from tests.base.test_files import small_disk
from tests.support.bombed_results import BOMBED, bomb_results
from tests.support.processes import PATIENCE_S, child_environment
from tests.support.results import TARGET, block, result, write_results
from tests.support.stores import spoil
from tests.support.trace_bombs import full_pages


@pytest.fixture
def made() -> Block:
    return block()


@pytest.fixture
def results(tmp_path: Path, made: Block) -> Path:
    return write_results(tmp_path / "results", made.plan)


def _put(store: RawStore, made: Block, results: Path, **run: Any) -> str:
    key = block_key(made, TARGET)
    store.put(key, block=made, target=TARGET, results=results, run=run)
    return key


def test_what_was_put_is_read(tmp_path: Path, made: Block, results: Path) -> None:
    store = RawStore(tmp_path / "store")
    assert not store.has(block_key(made, TARGET))
    key = _put(store, made, results, wall_s=1.5)
    assert store.has(key)
    assert store.read(key, "block.json") == made.document()
    assert store.block(key) == made
    assert store.read(key, "target.json") == TARGET
    assert store.read(key, "run.json") == {"wall_s": 1.5}
    assert store.read(key, "facts.json")["scheduler"] == "CFS"
    documents = list(store.cells(key))
    assert [d["cell"] for d in documents] == made.document()["cells"]
    assert [d["result"] for d in documents] == [result(c.id) for c in made.cells]
    assert all(d["target"] == TARGET for d in documents)
    assert (store.folder(key) / "console.txt").read_text().startswith("[    0.1]")


def test_nobody_writes_to_what_is_stored(tmp_path: Path, made: Block, results: Path) -> None:
    store = RawStore(tmp_path / "store")
    key = _put(store, made, results)
    files = [p for p in store.folder(key).rglob("*") if p.is_file()]
    assert len(files) == 6 + len(made.cells)
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o444}
    # The same results, put again at another time, are the same: the first ones stay.
    before = {p: (p.stat().st_ino, p.read_bytes()) for p in files}
    _put(store, made, results, started="later")
    assert {p: (p.stat().st_ino, p.read_bytes()) for p in files} == before
    assert [p.name for p in (store.root / "raw").iterdir()] == [key]


def test_the_same_results_are_the_same_bytes(tmp_path: Path, made: Block, results: Path) -> None:
    stores = [RawStore(tmp_path / name) for name in ("a", "b")]
    folders = [store.folder(_put(store, made, results)) for store in stores]
    contents = [
        {str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()}
        for f in folders
    ]
    assert contents[0] == contents[1]


def test_the_key_has_everything_in_it(made: Block) -> None:
    key = block_key(made, TARGET)
    again = Block.parse(json.loads(json.dumps(made.document())))
    assert key == block_key(again, dict(reversed(TARGET.items())))
    for name in TARGET:
        assert block_key(made, {**TARGET, name: "another"}) != key
    machine = replace(made.machine, memory_mib=made.machine.memory_mib + 1)
    # A field of one cell is enough, of what is asked for and of what it stands for.
    first, *rest = made.plan.cells
    plan = replace(made.plan, cells=[replace(first, worker_nice=-20), *rest])
    cells = (replace(made.cells[0], aa=not made.cells[0].aa), *made.cells[1:])
    changed: dict[str, Any] = {
        **dict.fromkeys(("pathology", "kernel", "clock", "target"), "another"),
        "boot": made.boot + 1,
        "seed": made.seed + 1,
        "machine": machine,
        "cells": cells,
        "plan": plan,
    }
    assert changed.keys() == {field.name for field in fields(Block)}
    for name, value in changed.items():
        assert block_key(replace(made, **{name: value}), TARGET) != key


def _cut(folder: Path) -> None:
    path = folder / "cells" / "c002.json"
    path.write_bytes(path.read_bytes()[:-1])


def _senseless(folder: Path) -> None:
    """Let a cell claim more I/Os than there are numbers, and the block be sure of it."""
    path = folder / "cells" / "c001.json"
    said = json.loads(path.read_text())
    said["fio"]["jobs"][0]["write"]["total_ios"] = 10**400
    path.write_text(json.dumps(said))
    status = json.loads((folder / "status.json").read_text())
    status["sha256"]["cells/c001.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "status.json").write_text(json.dumps(status))


def _status(**different: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        status = json.loads((folder / "status.json").read_text())
        (folder / "status.json").write_text(json.dumps({**status, **different}))

    return write


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_cut, r"damaged cells/c002\.json"),
        (lambda f: (f / "cells" / "c001.json").unlink(), r"lack cells/c001\.json"),
        (lambda f: (f / "facts.json").write_text("{}"), r"damaged facts\.json"),
        (_senseless, "cell c001: a cell's result is not the agent's"),
        (_status(block="other"), "are of block 'other'"),
        (_status(sha256={}), "damaged facts"),
        (_status(sha256=5), "damaged"),
        (lambda f: (f / "status.json").unlink(), r"lack status\.json"),
        (lambda f: (f / "status.json").write_text("{"), r"damaged status\.json"),
        (lambda f: (f / "status.json").write_text("[]"), r"damaged status\.json"),
    ],
)
def test_damaged_results_leave_nothing(
    tmp_path: Path,
    made: Block,
    results: Path,
    spoil: Callable[[Path], object],
    sentence: str,
) -> None:
    spoil(results)
    store = RawStore(tmp_path / "store")
    with pytest.raises(IolabError, match=sentence):
        _put(store, made, results)
    assert not list((tmp_path / "store").rglob("*.json*"))
    assert not store.has(block_key(made, TARGET))


def test_a_full_disk_leaves_nothing(tmp_path: Path, made: Block, results: Path) -> None:
    with small_disk(tmp_path / "disk", "32k") as disk:
        with pytest.raises(IolabError, match="No space left on device"):
            _put(RawStore(disk), made, results)
        assert not list(disk.rglob("*.json*"))
        assert list((disk / "raw").iterdir()) == []


@pytest.mark.parametrize("keep", [0, 5, 100, -1, -4])
def test_a_truncated_cell_is_named(tmp_path: Path, made: Block, results: Path, keep: int) -> None:
    store = RawStore(tmp_path / "store")
    key = _put(store, made, results)
    path = store.folder(key) / "cells" / "c001.json.gz"
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(IolabError, match=r"c001.json.gz is missing or damaged"):
        list(store.cells(key))
    path.write_bytes(data[:keep])
    with pytest.raises(IolabError, match=r"c001.json.gz is missing or damaged"):
        list(store.cells(key))


def test_a_spoiled_cell_is_named_wherever_it_is_spoiled(
    tmp_path: Path, made: Block, results: Path
) -> None:
    store = RawStore(tmp_path / "store")
    key = _put(store, made, results)
    path = store.folder(key) / "cells" / "c000.json.gz"
    data = path.read_bytes()
    path.chmod(0o644)
    refused = 0
    for at in range(10, len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            list(store.cells(key))
        except IolabError:
            refused += 1
    assert refused == len(data) - 10


def test_what_is_not_there_is_one_sentence(tmp_path: Path, made: Block, results: Path) -> None:
    store = RawStore(tmp_path / "store")
    with pytest.raises(IolabError, match="has no block abc"):
        store.read("abc", "block.json")
    key = _put(store, made, results)
    path = store.folder(key) / "target.json"
    path.chmod(0o644)
    for data in (b"{", b"\xff"):
        path.write_bytes(data)
        with pytest.raises(IolabError, match=r"target.json is missing or damaged"):
            store.read(key, "target.json")


def _rewritten(store: RawStore, key: str, document: object) -> Path:
    path = store.folder(key) / "block.json"
    path.chmod(0o644)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("given", ["iolab-block/1", "iolab-block/99", None])
def test_a_block_of_another_format_is_refused(
    tmp_path: Path, made: Block, results: Path, given: str | None
) -> None:
    store = RawStore(tmp_path / "store")
    key = _put(store, made, results)
    path = _rewritten(store, key, {**made.document(), "format": given})
    sentence = f"{path}: its format is {given!r}, this iolab reads 'iolab-block/2'"
    for use in (store.block, lambda key: list(store.cells(key))):
        with pytest.raises(IolabError) as caught:
            use(key)
        assert str(caught.value) == f"{sentence}; measure the block again"


@pytest.mark.parametrize("document", [[], None, {"format": "iolab-block/2"}])
def test_what_is_no_block_is_refused(
    tmp_path: Path, made: Block, results: Path, document: object
) -> None:
    store = RawStore(tmp_path / "store")
    key = _put(store, made, results)
    path = _rewritten(store, key, document)
    sentence = rf"^{path}(: .*; measure the block again| is missing or damaged; .*)$"
    with pytest.raises(IolabError, match=sentence):
        store.block(key)


def _as_file(path: Path) -> None:
    path.write_text("")


@pytest.mark.parametrize(
    "make",
    [_as_file, os.mkfifo, Path.mkdir, lambda p: p.symlink_to("/etc"), lambda p: p.symlink_to(p)],
)
def test_whatever_has_a_blocks_place_is_set_aside(
    tmp_path: Path, made: Block, results: Path, make: Callable[[Path], object]
) -> None:
    store, key = RawStore(tmp_path / "store"), block_key(made, TARGET)
    (store.root / "raw").mkdir(parents=True)
    make(store.root / "raw" / key)
    assert (store.has(key), store.all_keys()) == (True, [key])
    with pytest.raises(IolabError, match=key):
        store.block(key)
    assert store.set_aside(key) == store.root / "set-aside" / key
    assert not store.has(key)
    _put(store, made, results)
    assert store.block(key) == made


def test_a_store_on_another_disk_sets_aside_there(
    tmp_path: Path, made: Block, results: Path
) -> None:
    (tmp_path / "disk" / "raw").mkdir(parents=True)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "raw").symlink_to(tmp_path / "disk" / "raw")
    store = RawStore(tmp_path / "store")
    key = _put(store, made, results)
    assert len(list(store.cells(key))) == len(made.cells)
    assert store.set_aside(key) == tmp_path / "disk" / "set-aside" / key


def test_nothing_is_set_aside_through_a_link(tmp_path: Path, made: Block, results: Path) -> None:
    store = RawStore(tmp_path / "store")
    key = _put(store, made, results)
    (tmp_path / "elsewhere").mkdir()
    (store.root / "set-aside").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IolabError, match="set-aside"):
        store.set_aside(key)
    assert (store.has(key), list((tmp_path / "elsewhere").iterdir())) == (True, [])


def test_the_end_of_a_console_is_lines_that_can_be_shown(
    tmp_path: Path, made: Block, results: Path
) -> None:
    (results / "console.txt").write_bytes(b"\n" * 1_000_000 + b"one\xff\x1b[2J\ntwo\n")
    store = RawStore(tmp_path / "store")
    tail = store.console_tail(_put(store, made, results))
    assert (len(tail), tail[-2:]) == ((1 << 16) - 11, ["one\ufffd?[2J", "two"])


def test_two_processes_may_put_the_same_block(tmp_path: Path, made: Block, results: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from iolab.store.raw import RawStore\n"
        "from tests.support.results import TARGET, block\n"
        "for n in range(20):\n"
        "    RawStore(Path(sys.argv[1])).put(f'{n:064}', block=block(), target=TARGET,\n"
        "        results=Path(sys.argv[2]), run={'process': sys.argv[3]})\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "store"), str(results)]
    both = [subprocess.Popen([*argv, str(n)], env=child_environment()) for n in range(2)]
    assert [process.wait(PATIENCE_S) for process in both] == [0, 0]
    names = sorted(p.name for p in (tmp_path / "store" / "raw").iterdir())
    assert names == [f"{n:064}" for n in range(20)]
    store = RawStore(tmp_path / "store")
    assert all(len(list(store.cells(name))) == len(made.cells) for name in names)


def recorded_block() -> Block:
    """Return a block whose first cell is recorded."""
    made = block()
    recording = get_pathology("dio_kworker").recording
    first, *rest = made.plan.cells
    return replace(
        made, plan=replace(made.plan, cells=[replace(first, recording=recording), *rest])
    )


# Only who decodes these sees what they are.
_IN_PAGES = {"trace: fields in one place", "trace: texts in one place"}


# The other traces are those of tests/tracedat/test_bombs.py.
_CLAIMED = ("chunks of 16 MiB", "symbols of 4 GiB", "twice the pages of its buffer", "zeros")


@pytest.mark.parametrize(
    "name", [n for n in BOMBED if n.startswith("cell")] + [f"trace: {n}" for n in _CLAIMED]
)
def test_results_that_are_a_bomb_leave_nothing(tmp_path: Path, name: str) -> None:
    made, store = recorded_block(), RawStore(tmp_path / "store")
    results = write_results(tmp_path / "results", made.plan)
    bomb_results(results, "c000", name)
    with pytest.raises(IolabError) as error:
        _put(store, made, results)
    assert "c000" in str(error.value)
    assert len(str(error.value)) < 500
    assert store.all_keys() == []


@pytest.mark.parametrize("name", sorted(_IN_PAGES))
def test_a_trace_whose_columns_have_no_room_makes_its_cell_invalid(
    tmp_path: Path, name: str
) -> None:
    made, store = recorded_block(), RawStore(tmp_path / "store")
    made = replace(made, cells=(replace(made.cells[0], recorded=True), *made.cells[1:]))
    results = write_results(tmp_path / "results", made.plan)
    bomb_results(results, "c000", name)
    key = _put(store, made, results)
    assert block_state(store, key).state == "sound"
    rows = [row for row, _, _ in block_rows(store, key)]
    assert [row["valid"] for row in rows] == [False, True, True, True]
    assert "of memory" in rows[0]["gate"]


def test_a_trace_is_stored_as_it_came(tmp_path: Path) -> None:
    made, store = recorded_block(), RawStore(tmp_path / "store")
    results = write_results(tmp_path / "results", made.plan)
    trace = results / "traces" / "c000.dat"
    trace.parent.mkdir()
    trace.write_bytes(full_pages(16 << 20))
    status = json.loads((results / "status.json").read_text())
    status["sha256"]["traces/c000.dat"] = hashlib.sha256(trace.read_bytes()).hexdigest()
    (results / "status.json").write_text(json.dumps(status))
    key = _put(store, made, results)
    kept = store.trace(key, "c000")
    assert kept.read_bytes() == trace.read_bytes()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o444
    status["sha256"]["traces/c000.dat"] = "0" * 64
    (results / "status.json").write_text(json.dumps(status))
    with pytest.raises(IolabError, match=r"damaged traces/c000\.dat"):
        _put(RawStore(tmp_path / "other"), made, results)


@pytest.mark.parametrize("name", ["trace: chunks of 16 MiB", "cell: 31 MiB of objects"])
def test_a_bomb_that_an_older_iolab_stored_is_damage(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    made, store = recorded_block(), RawStore(tmp_path / "store")
    results = write_results(tmp_path / "results", made.plan)
    key = _put(store, made, results)
    bomb_results(results, "c000", name)
    folder = store.folder(key)
    if name.startswith("trace"):
        (folder / "traces").mkdir()
        (results / "traces/c000.dat").rename(folder / "traces/c000.dat")
    else:
        data = b'{"result":' + (results / "cells/c000.json").read_bytes() + b"}"
        spoil(folder / "cells/c000.json.gz", lambda _: gzip.compress(data))
    spoil(folder / DIGESTS, lambda _: json.dumps(digests_of(folder)).encode())
    assert block_state(store, key).state == "damaged"
    if name.startswith("cell"):
        with pytest.raises(IolabError, match="damaged"):
            list(store.cells(key))
    assert missing_blocks(store, {key: made}) == [key]
    assert "set aside" in caplog.messages[0]
    assert not store.has(key)


def test_a_damaged_trace_is_stored_and_makes_its_cell_invalid(tmp_path: Path) -> None:
    made, store = recorded_block(), RawStore(tmp_path / "store")
    made = replace(made, cells=(replace(made.cells[0], recorded=True), *made.cells[1:]))
    results = write_results(tmp_path / "results", made.plan)
    bomb_results(results, "c000", "trace: offset")
    rows = [row for row, _, _ in block_rows(store, _put(store, made, results))]
    assert [row["valid"] for row in rows] == [False, True, True, True]
