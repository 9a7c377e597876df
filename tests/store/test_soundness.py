# SPDX-License-Identifier: MIT
"""What a stored block is worth: sound, refused, damaged, or another iolab's."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from iolab.report.tables import machine_table
from iolab.store.files import DIGESTS
from iolab.store.raw import RawStore
from iolab.store.soundness import block_state, block_states, findings, machine_gates
from iolab_base.errors import IolabError
from iolab_base.files import canonical_json, digest_of
from tests.support.results import TARGET
from tests.support.stores import BUSY, QUIET, SPOILT, spoil, stored, without_digests

_LOAD = {"what": "load", "found": "45 %", "good": False, "needed": True}


def test_what_is_needed_and_not_good_is_a_gate() -> None:
    warning = {**_LOAD, "what": "turbo", "found": "on", "needed": False}
    good = {**_LOAD, "what": "heat", "good": True}
    facts = {"preflight": [_LOAD, warning, good]}
    assert machine_gates(facts) == ["load: 45 %"]
    assert machine_table(facts)["reading"].tolist() == ["no cell is valid", "a warning", "good"]


def test_of_a_machine_that_was_made_there_is_nothing() -> None:
    assert not findings({})
    assert not machine_gates({})
    assert machine_table({}).empty


@pytest.mark.parametrize(
    "wrong", [5, [5], [{"what": "load"}], [{**_LOAD, "good": "yes"}], [{**_LOAD, "more": 1}]]
)
def test_what_is_not_the_agents_is_one_sentence(wrong: Any) -> None:
    with pytest.raises(IolabError, match="the findings of the machine are malformed"):
        findings({"preflight": wrong})


@pytest.fixture
def store(tmp_path: Path) -> RawStore:
    return RawStore(tmp_path / "store")


@pytest.mark.parametrize("digests", [True, False])
def test_what_was_stored_is_sound(store: RawStore, digests: bool) -> None:
    keys = stored(store.root, boots=2, preflight=[QUIET])
    if not digests:
        for key in keys:
            without_digests(store, key)
    states = {state.key: state for state in block_states(store)}
    assert {state.state for state in states.values()} == {"sound"}
    assert states[keys[0]].words == "dio_kworker 6.1 boot 0"


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("damage", SPOILT)
def test_each_damage_is_found_and_the_file_named(
    store: RawStore, damage: str, digests: bool
) -> None:
    (key,) = stored(store.root)
    if not digests:
        without_digests(store, key)
    name, change = SPOILT[damage]
    spoil(store.folder(key) / name, change)
    state = block_state(store, key)
    assert state.state == "damaged"
    assert name in state.reason
    assert len(state.reason.splitlines()) == 1
    assert str(store.root) not in state.reason


@pytest.mark.parametrize("name", ["block.json", "facts.json", "cells/c000.json.gz", "run.json"])
def test_a_missing_file_is_damage(store: RawStore, name: str) -> None:
    (key,) = stored(store.root)
    (store.folder(key) / name).unlink()
    state = block_state(store, key)
    assert state.state == "damaged"
    assert name in state.reason


def test_a_trace_that_changed_is_found_by_its_digest(store: RawStore) -> None:
    (key,) = stored(store.root)
    folder = store.folder(key)
    (folder / "traces").mkdir()
    (folder / "traces" / "c000.dat").write_bytes(b"a trace")
    digests = json.loads((folder / DIGESTS).read_bytes())
    spoil(folder / DIGESTS, lambda _: canonical_json({**digests, "traces/c000.dat": "0"}).encode())
    assert block_state(store, key).reason.startswith("traces/c000.dat is not what was stored")


@pytest.mark.parametrize("listed", [{}, [], {"/dev/zero": "0"}, {"../../secret": "0"}])
def test_digests_name_files_of_the_block_alone(store: RawStore, listed: object) -> None:
    (key,) = stored(store.root)
    path = store.folder(key) / DIGESTS
    digests = json.loads(path.read_bytes())
    forged = {**digests, **listed} if isinstance(listed, dict) and listed else listed
    spoil(path, lambda _: canonical_json(forged).encode())
    state = block_state(store, key)
    assert state.state == "damaged"
    assert state.reason.startswith(DIGESTS)


def test_a_cell_of_another_block_is_found_without_digests(store: RawStore) -> None:
    one, other = stored(store.root, boots=2)
    without_digests(store, one)
    foreign = (store.folder(other) / "cells" / "c000.json.gz").read_bytes()
    spoil(store.folder(one) / "cells" / "c000.json.gz", lambda _: foreign)
    assert block_state(store, one).reason == "cells/c000.json.gz is missing or damaged"


def test_a_senseless_number_is_found_without_digests(store: RawStore) -> None:
    (key,) = stored(store.root)
    without_digests(store, key)
    path = store.folder(key) / "cells" / "c000.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    document["result"]["fio"]["jobs"][0]["write"]["total_ios"] = 10**400
    spoil(path, lambda _: gzip.compress(json.dumps(document).encode()))
    assert "a cell's result is not the agent's" in block_state(store, key).reason


def test_a_block_of_a_busy_machine_is_refused(store: RawStore) -> None:
    (key,) = stored(store.root, preflight=[QUIET, BUSY])
    state = block_state(store, key)
    assert (state.state, state.reason) == ("refused", "load of the measured CPU: 45 %")


def test_a_block_of_another_iolab_is_no_damage(store: RawStore) -> None:
    (key,) = stored(store.root)
    document = {**store.read(key, "block.json"), "format": "iolab-block/99"}
    path = store.folder(key) / "block.json"
    # Its key was made of another text: then the format itself was damaged.
    spoil(path, lambda _: canonical_json(document).encode())
    assert block_state(store, key).state == "damaged"
    other = digest_of({"block": document, "target": TARGET})
    store.folder(key).rename(store.root / "raw" / other)
    state = block_state(store, other)
    assert state.state == "other format"
    assert state.reason == "its format is iolab-block/99, this iolab reads iolab-block/2"


def test_a_cell_without_end_is_not_unpacked(store: RawStore) -> None:
    (key,) = stored(store.root)
    without_digests(store, key)
    path = store.folder(key) / "cells" / "c000.json.gz"
    spoil(path, lambda _: gzip.compress(bytes(1 << 24)) * 17)
    state = block_state(store, key)
    assert (state.state, "c000.json.gz" in state.reason) == ("damaged", True)
