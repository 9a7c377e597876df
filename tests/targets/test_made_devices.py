# SPDX-License-Identifier: MIT
"""Devices that a real machine may be measured on, made by a stock kernel's own modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iolab.targets.place import Place
from iolab.targets.vm import VmTarget
from iolab_agent.plan import Cell, Plan
from tests.support.guest import cell_of
from tests.support.plans import copies, copies_cell, null_blk_cell, plan

pytestmark = pytest.mark.vm


def _cells(kind: str) -> list[Cell]:
    (disk,) = copies_cell("x")["devices"]
    plain = [{**disk, "scheduler": "none", "tunables": {}}]
    files = {"devices": plain, "copies": copies(), "group": None}
    cells = [
        null_blk_cell(f"{kind}-xfs", 1000),
        copies_cell(f"{kind}-ext4", **files),
        copies_cell(f"{kind}-raw", **{**files, "filesystem": None}),
    ]
    # XFS wants 300 MiB; the machine has 1 GiB.
    return [
        replace(cell, devices=[replace(cell.devices[0], size_mib=320 if "xfs" in cell.id else 64)])
        for cell in Place(make=kind).put(plan(*cells)).cells
    ]


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a block on disks in memory, each kind twice."""
    cells = [*_cells("brd"), *_cells("zram")]
    again = [replace(cell, id=f"{cell.id}-again") for cell in cells]
    disk = replace(cells[-1].devices[0], scheduler="bfq")
    scheduled = replace(cells[-1], id="scheduled", devices=[disk])
    folder = tmp_path_factory.mktemp("made") / "results"
    target.run(Plan(block="made", cpu=0, cells=[*cells, *again, scheduled]), folder)
    return folder


@pytest.mark.parametrize("again", ["", "-again"])
@pytest.mark.parametrize("work", ["xfs", "ext4", "raw"])
@pytest.mark.parametrize("kind", ["brd", "zram"])
def test_work_on_a_disk_in_memory_is_done_and_counted(
    results: Path, kind: str, work: str, again: str
) -> None:
    cell = cell_of(results, f"{kind}-{work}{again}")
    if kind == "brd" and cell["state"] == "cannot run here":
        assert cell["reason"] == "this kernel does not count the I/Os of a brd disk"
        return
    assert (cell["state"], cell.get("reason"), cell["gates"]) == ("done", None, [])
    assert cell["last"]["ios"] > cell["first"]["ios"]
    assert cell["agent"]["cpu_ns"] <= cell["agent"]["window_ns"]


def test_a_group_says_its_weight(results: Path) -> None:
    settings = cell_of(results, "zram-xfs")["cgroup"]
    (weight,) = (value for path, value in settings.items() if path.endswith("/iolab/cpu.weight"))
    assert weight == "1000"


def test_what_cannot_be_scheduled_is_said(results: Path) -> None:
    cell = cell_of(results, "scheduled")
    assert cell["state"] == "cannot run here"
    assert "no I/O scheduler" in cell["reason"]
