# SPDX-License-Identifier: MIT
"""Which blocks are kept and which measured again; the lock of a store, and room on its disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iolab.blocks import Block
from iolab.pathology.base import Machine
from iolab.store.raw import RawStore
from iolab.sweeps.measure import check_room, missing_blocks, store_locked
from iolab.sweeps.request import Request
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import canonical_json, digest_of
from tests.base.test_files import small_disk
from tests.support.results import TARGET, block
from tests.support.stores import BUSY, SPOILT, spoil, stored


def test_a_disk_without_room_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64m") as disk:
        request = Request("smoke", root=disk / "runs", jobs=4)
        with pytest.raises(IolabError, match=r"with --jobs 4 needs 2048 MiB in .*/runs, 6\d MiB"):
            check_room(request, [block()] * 7)
        with pytest.raises(IolabError, match="needs 512 MiB"):
            check_room(request, [block()])
        check_room(request, [])
        check_room(Request("smoke", root=disk / "runs", target="local"), [block()])


def test_a_machine_larger_than_this_one_is_said_before_anything_boots(tmp_path: Path) -> None:
    large = replace(block(), machine=Machine(cpus=1, memory_mib=1 << 30, modules=()))
    request = Request("smoke", root=tmp_path)
    with pytest.raises(CannotRunError, match=r"memory_mib=1073741824 .*this machine has \d+ MiB"):
        check_room(request, [block(), large])
    check_room(replace(request, cluster="tcp://there"), [large])


def test_what_a_killed_sweep_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    sweep = tmp_path / "dio_kworker" / "smoke"
    pages = sweep / "experiments"
    (tmp_path / "plans").mkdir()
    others = [tmp_path / "raw" / "abc" / ".work.kept", tmp_path / "home" / ".work.kept"]
    for folder in others:
        folder.mkdir(parents=True)
    kept = [pages / "kernel-6.1.ipynb", sweep / "blocks.json", tmp_path / "plans" / "abc.json"]
    left = [
        *(pages / ".work.x1" / "kernel-6.1.ipynb", tmp_path / "plans" / "abc.progress"),
        *(tmp_path / "raw" / ".work.x2" / "results" / "facts.json", tmp_path / ".work.results.x3"),
    ]
    for path in kept + left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with store_locked(tmp_path):
        found = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert found == {*kept, tmp_path / ".sweep.lock"}
        assert not list(pages.glob(".work*"))
        assert all(folder.exists() for folder in others)


def test_a_root_without_a_block_keeps_no_lock(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "new"):
        with store_locked(root):
            assert (root / ".sweep.lock").exists()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "raw" / "0123").mkdir(parents=True)
    with store_locked(tmp_path):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"raw", ".sweep.lock"}


def test_nothing_is_done_in_a_store_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": "iolab-store/2"}')
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "abc.progress").touch()
    with pytest.raises(UserError, match="iolab-store/2"), store_locked(tmp_path):
        pass
    assert {path.name for path in tmp_path.rglob("*")} == {"store.json", "plans", "abc.progress"}


@pytest.fixture
def store(tmp_path: Path) -> RawStore:
    return RawStore(tmp_path / 'it\'s a "store"\nof приборы [bold]')


def wanted(keys: list[str]) -> dict[str, Block]:
    """Return what a sweep planned: the blocks that `stored` put there, boot by boot."""
    return {key: block(boot) for boot, key in enumerate(keys)}


def test_what_is_sound_is_kept(store: RawStore) -> None:
    keys = stored(store.root, boots=2)
    assert missing_blocks(store, wanted([*keys, "f" * 64])) == ["f" * 64]
    assert not (store.root / "set-aside").exists()


@pytest.mark.parametrize("damage", SPOILT)
def test_what_is_damaged_is_set_aside_whole_and_the_rest_is_kept(
    store: RawStore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = stored(store.root, boots=2)
    name, change = SPOILT[damage]
    spoil(store.folder(keys[0]) / name, change)
    before = {p.name: p.read_bytes() for p in store.folder(keys[0]).iterdir() if p.is_file()}
    assert missing_blocks(store, wanted(keys)) == keys[:1]
    (sentence,) = caplog.messages
    assert keys[0][:16] in sentence
    assert "is damaged" in sentence
    place = store.root / "set-aside" / keys[0]
    assert {p.name: p.read_bytes() for p in place.iterdir() if p.is_file()} == before
    assert not store.has(keys[0])
    # It is measured again, and again damaged.
    stored(store.root)
    spoil(store.folder(keys[0]) / name, change)
    assert missing_blocks(store, wanted(keys)) == keys[:1]
    assert sorted(p.name for p in place.parent.iterdir()) == [keys[0], f"{keys[0]}.1"]


def test_what_the_machine_was_not_fit_for_is_measured_again(
    store: RawStore, caplog: pytest.LogCaptureFixture
) -> None:
    (key,) = stored(store.root, preflight=[BUSY])
    assert missing_blocks(store, wanted([key])) == [key]
    assert "is refused (load of the measured CPU: 45 %)" in caplog.messages[0]
    assert not store.has(key)


def test_a_store_of_another_iolab_is_refused_by_name(store: RawStore) -> None:
    (key,) = stored(store.root)
    marker = store.root / "store.json"
    assert marker.read_text() == '{"format":"iolab-store/1"}\n'
    spoil(marker, lambda _: b'{"format":"iolab-store/2"}')
    sentence = "format is 'iolab-store/2', this iolab reads 'iolab-store/1'"
    with pytest.raises(UserError, match=sentence):
        missing_blocks(store, wanted([key]))
    with pytest.raises(UserError, match=sentence):
        stored(store.root)
    marker.unlink()
    # Stores from before there was the file are of the first format.
    assert missing_blocks(store, wanted([key])) == []


def test_a_block_of_another_iolab_is_refused_and_stays(store: RawStore) -> None:
    (key,) = stored(store.root)
    document = {**store.read(key, "block.json"), "format": "iolab-block/99"}
    spoil(store.folder(key) / "block.json", lambda _: canonical_json(document).encode())
    other = digest_of({"block": document, "target": TARGET})
    store.folder(key).rename(store.root / "raw" / other)
    with pytest.raises(UserError, match="iolab-block/99"):
        missing_blocks(store, wanted([other]))
    assert store.has(other)
