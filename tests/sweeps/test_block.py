# SPDX-License-Identifier: MIT
"""Which cells of a block are observed, and what is measured again for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from guestprof.profile import CostProfile
from guestprof.profile_file import write_events, write_profile
from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.store.profiles import ProfileStore
from iolab.sweeps import measure
from iolab.sweeps.block import Observed, observation_of, observed_cells, prepare_observer
from iolab.sweeps.measure import blocks_to_measure
from iolab.sweeps.request import Request
from iolab.targets.vm import prepare
from iolab_base.errors import CannotRunError, UserError
from tests.guestprof.test_profile import profile

__all__ = [
    "profile",
]


@pytest.fixture
def block() -> Block:
    found = get_pathology("dio_kworker")
    return blocks_of(found, found.profiles["smoke"], kernel="6.1", clock="virtual", seed=0)[0]


def test_all_cells_or_the_pairs_of_a_level(block: Block) -> None:
    assert observed_cells(block, []) == []
    assert observed_cells(block, ["all"]) == [cell.id for cell in block.cells]
    chosen = observed_cells(block, ["weight=1000"])
    cells = [cell for cell in block.cells if cell.id in chosen]
    assert {cell.condition["weight"] for cell in cells} == {None, 1000}
    assert {cell.role for cell in cells} == {"control", "treatment"}
    assert len({cell.pair for cell in cells}) * 2 == len(cells)


def test_a_factor_that_is_not_there_is_refused(block: Block) -> None:
    with pytest.raises(UserError, match="--observe"):
        observed_cells(block, ["weight"])
    with pytest.raises(UserError, match="unknown factor 'wait'"):
        observed_cells(block, ["wait=1000"])


def test_a_block_without_its_profiles_is_measured_again(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether what is there is a result is tested elsewhere (test_measure.py).
    monkeypatch.setattr(
        measure,
        "missing_blocks",
        lambda store, keys: [key for key in keys if not store.has(key)],
    )
    profiles = ProfileStore(tmp_path)
    (tmp_path / "raw" / "key").mkdir(parents=True)

    def lacks(blocks: dict[str, Block], **asked: Any) -> list[str]:
        return blocks_to_measure(blocks, Request("quick", root=tmp_path, **asked))

    assert lacks({"key": block, "new": block}) == ["new"]
    assert lacks({"key": block}, observed=["all"]) == ["key"]
    for cell in block.cells:
        path = profiles.path("key", cell.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert lacks({"key": block}, observed=["all"]) == []
    calls = ["dget_parent"]
    assert lacks({"key": block}, observed=["all"], calls=calls) == ["key"]
    for cell in block.cells:
        path = profiles.path("key", cell.id).with_suffix(".events.parquet")
        write_events(path, pd.DataFrame({"at_ns": [1]}), calls)
    assert lacks({"key": block}, observed=["all"], calls=calls) == []
    assert lacks({"key": block}, observed=["all"], calls=["dput"]) == ["key"]


def test_a_flat_profile_is_enough_for_a_flat_one_only(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: CostProfile
) -> None:
    monkeypatch.setattr(measure, "missing_blocks", lambda *_: [])
    profiles = ProfileStore(tmp_path)

    def lacks(**asked: Any) -> list[str]:
        return blocks_to_measure({"key": block}, Request("quick", root=tmp_path, **asked))

    for flat in (1, 0):
        for cell in block.cells:
            counted = replace(profile, totals={**profile.totals, "flat": flat})
            write_profile(profiles.path("key", cell.id), counted)
        assert lacks(observed=["all"], flat=True) == []
        assert lacks(observed=["all"]) == ["key"] * flat


@pytest.mark.parametrize(
    ("target", "installed", "instead"),
    [
        ("local", True, "profile another run with `perf record -a -g -- sleep 30`"),
        ("local", False, "install perf (Debian's linux-perf) and profile another run with it"),
        (
            "ssh://root@box:2222",
            False,
            "profile another run with `ssh ssh://root@box:2222 perf record -a -g -- sleep 30`",
        ),
    ],
)
def test_a_real_machine_has_perf_instead(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    installed: bool,
    instead: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if installed:
        (tmp_path / "perf").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    reasons = prepare_observer([replace(block, target=target)], ["all"])
    assert reasons == [f"a real machine cannot be observed from outside: {instead}"]
    assert caplog.messages == [f"measured, but not observed: {reasons[0]}"]


@pytest.mark.vm
def test_what_cannot_be_observed_is_one_sentence(
    block: Block, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = prepare("6.1", "host", cpus=1, memory_mib=1024)
    caplog.clear()  # A host's first run says that it tries KVM.
    with pytest.raises(CannotRunError, match=r"perf record -g"):
        observation_of(target, block, Observed([block.cells[0].id]))
    assert observation_of(target, block, Observed()) is None
    assert caplog.messages == []
