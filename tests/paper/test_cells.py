# SPDX-License-Identifier: MIT
"""Observed cells: what is stored is whole, and a sweep's cells arrive as they were counted."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from guestprof.profile_file import read_profile, write_events, write_profile
from guestprof.schedule import SWITCH_CALLS
from iolab.paths import REFERENCE
from iolab.store.dataset import load
from iolab.store.hashes import HASHES, TABLES, read_hashes
from iolab.store.profiles import ProfileStore
from iolab_base.errors import UserError
from paper.make import run
from paper.make.cells import CALLS, CHAIN, INTERRUPT, chain_of, copy, main, mean, read_pairs
from paper.make.observed import FOLDERS
from tests.guestprof.test_schedule import story

_OBSERVED = REFERENCE / "observed"
_LARGEST = 5 << 20


@pytest.mark.parametrize("name", FOLDERS)
def test_every_stored_profile_is_whole(name: str) -> None:
    pairs = read_pairs(_OBSERVED / name)
    boots = {pair.treated.row["boot"] for pair in pairs}
    assert len(boots) == 3
    for cell in [cell for pair in pairs for cell in pair]:
        totals = cell.profile.totals
        assert cell.profile.complete == 1
        counted = int(cell.profile.nodes["instructions"].sum())
        # The clock of the guest counts nothing else.
        assert counted + totals["idle_ns"] == cell.window_ns
        assert not any(totals[f"lost_{what}"] for what in ("nodes", "frames", "events"))
        assert (totals["clock_off"], totals["off_by"]) == (0, 0)
        assert cell.row["valid"]


@pytest.mark.parametrize("name", ["cgroup", "switch"])
def test_recorded_switches_are_those_that_the_kernel_counts(name: str) -> None:
    for cell in [cell for pair in read_pairs(_OBSERVED / name) for cell in pair]:
        recorded = cell.chain[cell.chain["does"].isin(["preempts", "follows"])]["count"].sum()
        assert recorded == cell.switches


@pytest.mark.parametrize("name", FOLDERS)
def test_a_stored_folder_has_small_files_that_are_sealed(name: str) -> None:
    folder = _OBSERVED / name
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert all(path.stat().st_size < _LARGEST for path in files)
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in files)
    assert read_hashes(folder, load(folder))
    assert "--observe" in (folder / "command.txt").read_text()


def test_the_chain_counts_calls_of_sleeping_and_of_runnable_tasks() -> None:
    chain = chain_of(story()).set_index(["does", "task", "other"])["count"].to_dict()
    assert chain["wakes", "kworker/0:1", "fio"] == 2
    assert chain[CALLS, "kworker/0:1", "fio"] == 3
    assert chain[CALLS, INTERRUPT, "kworker/0:1"] == 2
    assert chain[CALLS, "fio", "kworker/0:1"] == 1
    assert chain["preempts", "fio", "kworker/0:1"] == 2


def test_a_mean_over_boots_shows_a_spread_only_if_there_is_one() -> None:
    # t(0.975, 2) = 4.303 standard errors of 10 / sqrt(3).
    found = mean([1000, 1010, 1020])
    assert found.value == 1010
    assert found.half == pytest.approx(4.302653 * 10 / math.sqrt(3))
    assert found.text() == "1,010 ± 25"
    assert mean([2.0, 2.0]).text(3) == "2.000"
    assert mean([1.0, 1.0001]).text(2) == "1.00"


def _swept(root: Path) -> Path:
    """Return a folder of results in a store: one pair of stored cells, one with recorded calls."""
    results = root / "fsnotify_contention" / "smoke"
    source = _OBSERVED / "fsnotify"
    results.mkdir(parents=True)
    for name in (*TABLES, HASHES):
        shutil.copy(source / name, results / name)
    stored, store = ProfileStore(source), ProfileStore(root)
    block = read_hashes(source, load(source))[0]
    known = [name for name in stored.names() if name.startswith(block.name)][:2]
    for name in known:
        path = store.path(block.key, name.rpartition("-")[2])
        write_profile(path, stored.profile(name))
    write_events(path.with_suffix(".events.parquet"), story(), SWITCH_CALLS)
    return results


def test_a_sweep_is_copied_with_its_profiles_and_chains(tmp_path: Path) -> None:
    results, folder = _swept(tmp_path / "runs"), tmp_path / "copied"
    main([str(results), str(folder)])
    for name in (*TABLES, HASHES):
        assert (folder / name).read_bytes() == (_OBSERVED / "fsnotify" / name).read_bytes()
    paths = sorted((folder / "profiles").glob("*/*.parquet"))
    assert len(paths) == 2
    for path in paths:
        there = read_profile(_OBSERVED / "fsnotify" / path.relative_to(folder))
        pd.testing.assert_frame_equal(read_profile(path).nodes, there.nodes)
    chain = pd.read_parquet(folder / CHAIN)
    assert set(chain["cell"]) == {f"{path.parent.name}-{path.stem}" for path in paths[1:]}
    # The folder is there now.
    with pytest.raises(UserError, match="copied"):
        main([str(results), str(folder)])


def test_a_sweep_without_observed_cells_is_not_copied(tmp_path: Path) -> None:
    results = _swept(tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "profiles")
    with pytest.raises(UserError, match="observed"):
        copy(results, tmp_path / "copied")
    assert not (tmp_path / "copied").exists()


@pytest.mark.parametrize("words", [[], ["one"], ["a", "b", "c"]])
def test_the_command_needs_two_folders(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cells", *words])
    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == 2
    assert "folder" in capsys.readouterr().err
