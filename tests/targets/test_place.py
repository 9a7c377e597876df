# SPDX-License-Identifier: MIT
from __future__ import annotations

from typing import Any

import pytest

from iolab.blocks import encode_plan
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import NULL_BLK_MODULES
from iolab.targets.place import Place
from iolab_agent.plan import Plan
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import CannotRunError
from tests.support.plans import copies_cell, job, null_blk_cell, plan, program_cell

_FOLDER = Place(directory="/srv/x")
_DISK = Place(disk="/dev/sdx", serial="abc")


def _put(place: Place, *cells: dict[str, Any]) -> Plan:
    """Return a plan of cells that was put somewhere, as the agent reads it."""
    return parse_plan(encode_plan(place.put(plan(*cells))))


def test_no_place_leaves_a_plan_as_it_is() -> None:
    assert Place().put(plan()) == plan()
    assert (Place().label, _FOLDER.label, _DISK.label) == ("", "directory", "disk")


def test_a_real_machine_loads_what_its_cells_use() -> None:
    modules = list(NULL_BLK_MODULES)
    alone = null_blk_cell("raw", filesystem=None)
    assert Place().put(plan(alone, modules=modules)).modules == ["null_blk"]
    job = null_blk_cell("job")
    assert Place().put(plan(job, modules=modules)).modules == ["null_blk", "crc32c", "xfs"]
    copied = plan(job, copies_cell("copies"), modules=modules)
    assert Place().put(copied).modules == modules


def test_a_folder_takes_the_data() -> None:
    placed = _put(_FOLDER, null_blk_cell("job", 1000), copies_cell("copies"))
    assert placed.modules == []
    assert not placed.coalesced_timers
    job, copied = placed.cells
    for cell in (job, copied):
        assert cell.filesystem is None
        (device,) = cell.devices
        assert (device.kind, device.path, device.size_mib) == ("directory", "/srv/x", 512)
    assert job.group is not None
    assert (copied.devices[0].scheduler, copied.devices[0].tunables) == ("bfq", {"low_latency": 0})


def test_a_disk_takes_the_file_system_too() -> None:
    raw = copies_cell("raw", filesystem=None)
    placed = _put(_DISK, null_blk_cell("job"), copies_cell("copies"), raw)
    kinds = [None if c.filesystem is None else c.filesystem.kind for c in placed.cells]
    assert kinds == ["xfs", "ext4", None]
    for cell in placed.cells:
        (device,) = cell.devices
        assert (device.kind, device.path, device.serial) == ("named", "/dev/sdx", "abc")
        if cell.filesystem is not None:
            assert (cell.filesystem.device, cell.filesystem.realtime_device) == ("data", None)


@pytest.mark.parametrize("kind", ["zram", "brd"])
def test_a_disk_in_memory_is_made_instead(kind: str) -> None:
    place = Place(make=kind)
    placed = _put(place, null_blk_cell("job"))
    (device,) = placed.cells[0].devices
    assert (device.kind, device.size_mib, device.memory_backed) == (kind, 512, True)
    assert placed.cells[0].filesystem is not None
    assert placed.cells[0].filesystem.realtime_device is None
    assert placed.modules == (["zram"] if kind == "zram" else [])
    assert place.label == kind
    with pytest.raises(CannotRunError, match=f"the I/O scheduler bfq: {kind} has none"):
        place.put(plan(copies_cell("copies")))


def test_a_loop_device_has_its_file_in_the_folder() -> None:
    placed = _put(Place(directory="/srv/x", make="loop"), copies_cell("copies"))
    (device,) = placed.cells[0].devices
    assert (device.kind, device.path, device.real) == ("loop", "/srv/x", False)
    assert (device.scheduler, device.rotational) == ("bfq", True)
    assert placed.modules == ["loop"]


def test_room_is_asked_for() -> None:
    cell = null_blk_cell("job")
    cell["job"] = {**cell["job"], "size_mib": 1000, "numjobs": 2}
    assert _put(_FOLDER, cell).cells[0].devices[0].size_mib == 2264


def test_what_cannot_be_there_is_said() -> None:
    with pytest.raises(CannotRunError, match="name one"):
        _FOLDER.put(plan(copies_cell("raw", filesystem=None)))
    guarded = {"name": "data", "kind": "scsi_debug", "size_mib": 64, "integrity": True}
    cell = copies_cell("guarded", devices=[guarded])
    with pytest.raises(CannotRunError, match="protection information"):
        _DISK.put(plan(cell))


def test_no_program_runs_on_a_real_machine() -> None:
    beside = null_blk_cell("beside", antagonist={"program": {"argv": ["/bin/true"]}})
    for cell in (program_cell("alone", "/bin/true"), beside):
        with pytest.raises(CannotRunError, match="a program runs in the virtual machine only"):
            _FOLDER.put(plan(cell))


def test_an_antagonists_files_are_beside_the_jobs() -> None:
    beside = {"job": job(size_mib=1000), "start_ms": -100}
    (cell,) = _put(_FOLDER, null_blk_cell("beside", antagonist=beside)).cells
    assert cell.antagonist is not None
    assert cell.antagonist.job is not None
    assert cell.devices[0].size_mib == 1016 + 101 + 64
    other = [*null_blk_cell("x")["devices"], {"name": "b", "kind": "null_blk", "size_mib": 64}]
    elsewhere = null_blk_cell("other", devices=other, antagonist={**beside, "device": "b"})
    with pytest.raises(CannotRunError, match="needs a second device"):
        _FOLDER.put(plan(elsewhere))


@pytest.mark.parametrize("name", sorted(PATHOLOGIES))
def test_the_plans_of_all_pathologies_can_be_put_on_a_disk(name: str) -> None:
    pathology = get_pathology(name)
    put = 0
    for block in blocks_of(pathology, pathology.profiles["quick"], kernel="6.1", clock="host"):
        for place in (_FOLDER, _DISK):
            try:
                parse_plan(encode_plan(place.put(block.plan)))
                put += 1
            except CannotRunError:
                assert place is _FOLDER
    assert put
