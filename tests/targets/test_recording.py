# SPDX-License-Identifier: MIT
"""Recordings made in a virtual machine, exact against trace-cmd's own report of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracedat
from iolab.measure.io_path import SEGMENTS, io_path
from iolab.targets.vm import VmTarget
from tests.support.guest import cell_of, start_in_guests
from tests.support.oracle import differences
from tests.support.plans import guest_plan, job, null_blk_cell, recording_of
from tests.support.tracing_in_guest import RECORDINGS

pytestmark = pytest.mark.vm

_PROGRAM = Path(__file__).parents[1] / "support" / "tracing_in_guest.py"
_RECORDING = recording_of("dio_kworker", window_ms=200)
_JOB = job(iodepth=128, batch=128, runtime_ms=400)


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a block with recorded cells, and of what `_PROGRAM` does after it."""
    absent = {**_RECORDING, "events": [*_RECORDING["events"], "sched:sched_nap"]}
    cells = [
        null_blk_cell("plain", 10000, job=_JOB),
        null_blk_cell("outside", job=_JOB, recording=_RECORDING),
        null_blk_cell("inside", 10000, job=_JOB, recording=_RECORDING),
        null_blk_cell("absent", recording=absent),
    ]
    folder = tmp_path_factory.mktemp("recorded") / "results"
    with pytest.MonkeyPatch.context() as patch:
        start_in_guests(patch, _PROGRAM.read_text())
        target.run(guest_plan(*cells), folder)
    return folder


@pytest.mark.parametrize("name", ["outside", "inside", *(f"how-{how}" for how in RECORDINGS)])
def test_every_event_and_field_is_as_trace_cmd_reports_it(results: Path, name: str) -> None:
    path = results / "traces" / f"{name}.dat"
    recorded = tracedat.read(path)
    assert sum(recorded.events.values()) > 30
    text = path.with_suffix(".txt").read_text(errors="replace")
    assert list(differences(recorded, text)) == []


def test_the_lossy_recording_lost_events(results: Path) -> None:
    assert not tracedat.read(results / "traces" / "how-lossy.dat").losses.empty


@pytest.mark.parametrize("name", ["outside", "inside"])
def test_a_cell_is_recorded_in_its_steady_part_only(results: Path, name: str) -> None:
    cell = cell_of(results, name)
    assert (cell["state"], cell["gates"]) == ("done", [])
    recorded = tracedat.read(results / "traces" / f"{name}.dat")
    assert recorded.info.clock == "mono"
    assert recorded.losses.empty
    first, last = recorded.span
    assert cell["first"]["at_ns"] < first
    assert last < cell["last"]["at_ns"]
    assert 180e6 < last - first < 210e6
    # What the block layer counted around the window is what was recorded in it.
    counted = cell["last"]["ios"] - cell["first"]["ios"]
    assert abs(counted - recorded.events["block_rq_complete"]) <= 2 * 128


def test_segments_add_up_to_the_block_layers_latency(results: Path) -> None:
    path = io_path(tracedat.read(results / "traces" / "inside.dat"), rwbs="W.*")
    whole = path.whole
    assert len(whole) > 1000
    assert (whole["queue_ns"] + whole["device_ns"] == whole["block_ns"]).all()
    assert (whole[list(SEGMENTS)].sum(axis=1) == whole["total_ns"]).all()
    assert (whole[list(SEGMENTS)] >= 0).all(axis=None)
    assert len(whole) + int(path.unjoined.sum()) == len(path.ios) + path.orphans


def test_an_untraced_cell_leaves_no_trace(results: Path) -> None:
    assert not (results / "traces" / "plain.dat").exists()
    assert "recording" not in cell_of(results, "plain")


def test_a_missing_tracepoint_is_a_reason(results: Path) -> None:
    cell = cell_of(results, "absent")
    assert cell["state"] == "cannot run here"
    assert cell["reason"] == "this kernel has no tracepoint sched:sched_nap"


def test_recordings_leave_tracefs_as_it_was(seen: dict[str, Any]) -> None:
    assert seen["left"] == {}
    for name in ("lossy", "huge", "missing", "also"):
        assert (seen[name]["left"], seen[name]["failures"]) == ({}, [])


def test_what_goes_wrong_is_a_gate_or_one_sentence(seen: dict[str, Any]) -> None:
    assert "the recording lost events: cpu0 overrun" in seen["lossy"]["gates"][0]
    assert "the kernel gives a recording buffer of" in seen["huge"]["error"]
    assert "no tracepoint sched:sched_nap" in seen["missing"]["error"]
    assert seen["also"]["gates"] == []
    assert seen["also"]["recording"]["events"][-1] == "irq:irq_handler_entry"
    # Nothing unfinished stays.
    assert seen["also"]["files"] == ["also.dat", "lossy.dat"]


def test_the_copy_of_kallsyms_is_the_kernels(seen: dict[str, Any]) -> None:
    assert all(seen["symbols"].values()), seen["symbols"]


def test_what_a_killed_recording_left_is_put_back(seen: dict[str, Any]) -> None:
    assert "instances" in seen["killed"]["changed by the kill"]
    assert (seen["killed"]["left"], seen["killed"]["failures"]) == ({}, [])
