# SPDX-License-Identifier: MIT
"""Buffered writes to ext4 on a device that stores nothing, in a virtual machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iolab.pathology.writeback_kworker import WRITEBACK_KWORKER
from iolab.store.counters import measures
from iolab.targets.vm import VmTarget
from tests.support.guest import start_in_guests
from tests.support.plans import guest_plan, job, null_blk_cell

pytestmark = pytest.mark.vm

_MIB = 1 << 20
_PROGRAM = Path(__file__).parents[1] / "support" / "cache_in_guest.py"


def _cell(name: str, **different: Any) -> dict[str, Any]:
    buffered = {"engine": "psync", "rw": "write", "block_size": _MIB, "iodepth": 1, "batch": 1}
    return null_blk_cell(
        name,
        devices=[{"name": "data", "kind": "null_blk", "size_mib": 1024, "memory_backed": False}],
        filesystem={"kind": "ext4", "device": "data"},
        settings={"dirty_background_bytes": 4 * _MIB, "dirty_bytes": 16 * _MIB},
        job=job(**{**buffered, "size_mib": 64, "direct": False, **different}),
    )


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache") / "results"
    cells = [
        _cell("overwrite"),
        _cell("growing", layout="growing", size_mib=512),
        _cell("direct", direct=True),
    ]
    made = guest_plan(*cells, coalesced_timers=False)
    with pytest.MonkeyPatch.context() as patch:
        start_in_guests(patch, _PROGRAM.read_text())
        target.run(made, folder)
    return folder


@pytest.fixture(scope="module")
def cells(results: Path) -> dict[str, Any]:
    return {p.stem: json.loads(p.read_text()) for p in (results / "cells").iterdir()}


def test_a_file_system_lives_in_the_cache_of_its_device(
    seen: dict[str, Any], cells: dict[str, Any]
) -> None:
    for name, result in cells.items():
        assert (result["state"], result.get("reason")) == ("done", None), name
        found = measures(result, cpu=0)
        assert (found["valid"], found["gate"]) == (True, ""), name
    assert " ext4 rw" in seen["running"]["mounts"][0]
    assert seen["complaints"] == []


def test_buffered_writes_are_the_flush_workers_direct_ones_are_not(cells: dict[str, Any]) -> None:
    found = {name: WRITEBACK_KWORKER.from_counters(result) for name, result in cells.items()}
    assert found["direct"]["worker_busy"] < 0.02
    for name in ("overwrite", "growing"):
        assert found[name]["worker_busy"] > 0.05
        # A part of the time of one processor, spent on what was written in that time.
        each = found[name]["worker_busy"] / found[name]["device_mib_per_s"]
        assert found[name]["worker_us_per_mib"] == pytest.approx(1e6 * each)
        assert found[name]["device_mib_per_s"] > 50


def test_dirty_limits_hold_and_are_put_back(seen: dict[str, Any]) -> None:
    running = seen["running"]
    assert (running["dirty_background_bytes"], running["dirty_bytes"]) == (
        str(4 * _MIB),
        str(16 * _MIB),
    )
    # The ratios that the kernel had in their place are there again.
    assert seen["left"] == {}


def test_what_a_killed_agent_left_is_put_back(seen: dict[str, Any]) -> None:
    assert seen["killed"] == {
        "changed by the kill": ["dirty limits", "disks", "mounts"],
        "failures": [],
        "left": {},
    }
