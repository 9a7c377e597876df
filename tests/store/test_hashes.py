# SPDX-License-Identifier: MIT
"""The hashes beside the tables: what they hold, and what they find changed."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iolab.blocks import Block
from iolab.store.dataset import load
from iolab.store.hashes import HASHES, read_hashes
from iolab.store.raw import RawStore
from iolab.store.tables import canonical_lines
from iolab_base.errors import UserError
from iolab_base.files import canonical_json, digest_of
from tests.support.results import TARGET, block, result
from tests.support.sealed import forged, forged_table, made_up


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    return made_up(tmp_path / "data")


def read(folder: Path) -> list[Any]:
    return list(read_hashes(folder, load(folder)))


def test_a_sweeps_folder_says_what_was_measured_on_what(sealed: Path) -> None:
    (found,) = read(sealed)
    assert Block.parse(found.block) == block()
    assert (found.target, found.iolab) == (TARGET, "0.0.9")
    assert (found.pathology, found.kernel, found.boot) == ("dio_kworker", "6.1", 0)
    assert list(found.cells) == [cell.id for cell in block().cells]
    recorded = hashlib.sha256(canonical_json(result("c002")).encode()).hexdigest()
    assert found.cells["c002"].recorded_sha256 == recorded
    assert found.cells["c002"].trace_sha256 is None


def test_the_hashes_are_those_of_the_canonical_text(sealed: Path) -> None:
    lines = canonical_lines(RawStore(sealed.parent / "store"), sealed)
    (found,) = read(sealed)
    assert [json.loads(line)["recorded_sha256"] for line in lines] == [
        cell.recorded_sha256 for cell in found.cells.values()
    ]


def test_the_file_is_the_same_for_the_same_measurement(sealed: Path, tmp_path: Path) -> None:
    again = made_up(tmp_path / "again")
    assert (again / HASHES).read_bytes() == (sealed / HASHES).read_bytes()


_TABLES = (
    *("cells.parquet", "latency.parquet", "mechanism.parquet"),
    *("unavailable.json", "kernels.json"),
)


@pytest.mark.parametrize("name", _TABLES)
def test_another_table_is_named(sealed: Path, tmp_path: Path, name: str) -> None:
    # Whole tables of one more block, so that only the hash tells.
    other = made_up(tmp_path / "other", kernel="6.12")
    data = load(sealed)
    original, foreign = (sealed / name).read_bytes(), (other / name).read_bytes()
    changed = foreign if foreign != original else original + b" "
    (sealed / name).write_bytes(changed)
    with pytest.raises(UserError, match=f"{name}: it was changed since {HASHES} was written"):
        read_hashes(sealed, data)
    (sealed / name).unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        read_hashes(sealed, data)


def test_every_changed_byte_of_the_file_is_noticed(sealed: Path) -> None:
    data = load(sealed)
    whole = (sealed / HASHES).read_bytes()
    (before,) = read_hashes(sealed, data)
    # Bytes 3-9 of a gzip file are flags, time and operating system, which say nothing of it.
    for place in [*range(3), *range(10, len(whole) - 8, 13), *range(len(whole) - 8, len(whole))]:
        changed = bytearray(whole)
        changed[place] ^= 0x40
        (sealed / HASHES).write_bytes(changed)
        with pytest.raises(UserError, match=HASHES):
            read_hashes(sealed, data)
    for length in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        (sealed / HASHES).write_bytes(whole[:length])
        with pytest.raises(UserError, match=HASHES):
            read_hashes(sealed, data)
    (sealed / HASHES).write_bytes(whole)
    assert read_hashes(sealed, data) == [before]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "its first line is damaged"),
        ("[]", "no hashes of iolab"),
        ("{}", "no hashes of iolab"),
        ('{"format":"iolab-hashes/9"}', "its format is 'iolab-hashes/9', this iolab reads"),
        ('{"format":"iolab-hashes/1"}', "its first line is damaged"),
        ('{"format":"iolab-hashes/1","tables":3,"blocks_sha256":""}', "first line is damaged"),
        ("[" * 100_000, "its first line is damaged"),
    ],
)
def test_foreign_json_is_named(sealed: Path, text: str, sentence: str) -> None:
    (sealed / HASHES).write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=sentence):
        read(sealed)


def _drop(document: dict[str, Any]) -> None:
    del document["cells"]["c001"]


def _no_hash(document: dict[str, Any]) -> None:
    document["cells"]["c001"]["recorded_sha256"] = "none"


def _another_plan(document: dict[str, Any]) -> None:
    document["block"]["seed"] += 1


def _another_agent(document: dict[str, Any]) -> None:
    document["target"]["agent"] = "1" * 64


def _no_name(document: dict[str, Any]) -> None:
    document["block"]["cells"][0]["id"] = []
    document["key"] = digest_of({name: document[name] for name in ("block", "target")})


def _no_target(document: dict[str, Any]) -> None:
    document["target"] = []


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (_drop, "line 2: its hashes do not match the cells"),
        (_no_hash, "line 2: its hashes do not match the cells"),
        (_another_plan, "line 2: its key does not match"),
        (_another_agent, "line 2: its key does not match"),
        (_no_target, "line 2: "),
        (_no_name, "line 2: it has no hashes"),
        (lambda document: document.clear(), "line 2: it has no hashes"),
    ],
)
def test_a_line_that_contradicts_itself_is_named(
    sealed: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        read(forged(sealed, tmp_path / "forged", edit))


def test_cells_without_hashes_are_named(sealed: Path, tmp_path: Path) -> None:
    def rename(cells: Any) -> None:
        cells["cell"] = cells["cell"].str.replace("c003", "c009")

    # The other tables name the cell, too: without them only the cells are looked at.
    folder = forged_table(sealed, tmp_path / "forged", rename)
    data = load(sealed)
    data.cells["cell"] = data.cells["cell"].str.replace("c003", "c009")
    with pytest.raises(UserError, match=r"have different cells: only one has .*-c003"):
        read_hashes(folder, data)


def test_a_trace_of_another_cell_is_named(sealed: Path) -> None:
    (found,) = read(sealed)
    (sealed / "traces").mkdir()
    trace = sealed / "traces" / f"{found.name}-c002.dat"
    trace.write_bytes(b"of another cell")
    with pytest.raises(UserError, match=f"{trace.name}: it is not the trace"):
        read(sealed)
    shutil.rmtree(trace.parent)
    assert read(sealed) == [found]
