# SPDX-License-Identifier: MIT
"""A fresh XFS as the agent writes it is that of mkfs.xfs on the same disk, in a virtual machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iolab.targets.vm import VmTarget
from tests.support.guest import cell_of, start_in_guests
from tests.support.plans import guest_plan, job, null_blk_cell

pytestmark = pytest.mark.vm

_PROGRAM = Path(__file__).parents[1] / "support" / "fresh_in_guest.py"
_META = {"name": "meta", "kind": "null_blk", "size_mib": 512}
_DATA = {"name": "data", "kind": "null_blk", "size_mib": 4096, "memory_backed": False}
_SCSI = {"name": "disk", "kind": "scsi_debug", "size_mib": 320, "completion_ns": 20_000}
_INODE = 512
# Of an inode in the file system's third version: three times of change, its checksum, its time of
# birth (struct xfs_dinode, fs/xfs/libxfs/xfs_format.h).
_TIMED = (*range(32, 56), *range(100, 104), *range(144, 152))


def _cells() -> dict[str, dict[str, Any]]:
    small = job(size_mib=16, runtime_ms=300)
    alone = {"kind": "xfs", "device": "meta"}
    on_scsi = {"kind": "xfs", "device": "disk"}
    made: dict[str, dict[str, Any]] = {
        "null_blk": {"devices": [_META], "filesystem": alone},
        "realtime": {
            "devices": [_META, _DATA],
            "filesystem": {**alone, "realtime_device": "data"},
        },
        "scsi_debug": {"devices": [_SCSI], "filesystem": on_scsi},
        "integrity": {"devices": [{**_SCSI, "integrity": True}], "filesystem": on_scsi},
        "again": {"devices": [_META], "filesystem": alone},
    }
    return {name: null_blk_cell(name, None, job=small, **parts) for name, parts in made.items()}


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh") / "results"
    made = guest_plan(*_cells().values(), coalesced_timers=False)
    with pytest.MonkeyPatch.context() as patch:
        start_in_guests(patch, _PROGRAM.read_text())
        target.run(made, folder)
    return folder


def _same_but_times(pair: list[str]) -> bool:
    """Whether two pages differ in nothing but the times and checksums of inodes."""
    wanted, found = map(bytes.fromhex, pair)
    places = [n for n in range(len(wanted)) if wanted[n] != found[n]]
    inodes = {n - n % _INODE for n in places}
    return all(n % _INODE in _TIMED for n in places) and all(
        wanted[at : at + 2] == b"IN" for at in inodes
    )


@pytest.mark.parametrize("name", _cells())
def test_it_is_what_mkfs_makes(results: Path, name: str) -> None:
    cell = cell_of(results, name)
    assert (cell["state"], cell.get("reason")) == ("done", None)
    seen = json.loads((results / "seen.json").read_text())["disks"][list(_cells()).index(name)]
    assert seen["cleared"]
    assert seen["found"] == seen["wanted"]
    assert len(seen["wanted"]) > 10
    assert all(map(_same_but_times, seen["differ"].values()))


def test_the_machine_has_made_each_before_it_was_kept(results: Path) -> None:
    # "again" and "integrity" have the shapes of others.
    assert json.loads((results / "seen.json").read_text())["prepared"] == 3
