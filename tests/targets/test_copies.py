# SPDX-License-Identifier: MIT
"""dd on ext4 in a virtual machine, counted three times: by dd, by the disk, by the recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracedat
from iolab import measure
from iolab.store.counters import measures
from iolab.targets.vm import VmTarget
from tests.support.guest import cell_of
from tests.support.plans import copies, copies_cell, guest_plan, recording_of

pytestmark = pytest.mark.vm

_RECORDING = recording_of("bfq_idling")
_COPIES = copies(writes=10, processes=6)


def _disk(scheduler: str, **tunables: int) -> dict[str, Any]:
    (disk,) = copies_cell("x")["devices"]
    return {"devices": [{**disk, "scheduler": scheduler, "tunables": tunables}]}


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a block of copies."""
    recorded = {"copies": _COPIES, "recording": _RECORDING}
    cells = [
        copies_cell("deadline", **_disk("mq-deadline"), **recorded),
        copies_cell("bfq", **recorded),
        copies_cell("plain", copies=_COPIES),
        copies_cell("device", filesystem=None, group=None),
        copies_cell("absent", **_disk("kyber")),
        copies_cell("wrong", **_disk("mq-deadline", slice_idle=0)),
        copies_cell("full", copies=copies(block_size=1 << 20, writes=100, processes=1)),
        copies_cell("last"),
    ]
    folder = tmp_path_factory.mktemp("copied") / "results"
    target.run(guest_plan(*cells, coalesced_timers=False), folder)
    return folder


@pytest.mark.parametrize("name", ["deadline", "bfq", "plain", "device", "last"])
def test_what_dd_says_fits_the_clock_and_the_disk(results: Path, name: str) -> None:
    cell = cell_of(results, name)
    assert (cell["state"], cell["gates"]) == ("done", [])
    asked = copies() if name in ("device", "last") else _COPIES
    wanted = asked["writes"] * asked["processes"]
    found = measures(cell, cpu=0)
    assert (found["valid"], found["ios"], len(cell["copies"])) == (True, wanted, asked["processes"])
    edges = [cell["first"]["at_ns"]]
    for process in cell["copies"]:
        edges += [process["began_ns"], process["ended_ns"]]
        # No write is done before the disk is: 200 us each.
        assert process["seconds"] >= asked["writes"] * 200e-6
        assert process["seconds"] * 1e9 <= process["ended_ns"] - process["began_ns"]
        assert 0 < process["ran_ns"] < process["ended_ns"] - process["began_ns"]
    edges.append(cell["last"]["at_ns"])
    assert edges == sorted(edges)
    assert cell["last"]["ios"] - cell["first"]["ios"] >= wanted
    assert 0 < found["fio_cpu"] <= 1 - found["idle"] <= 1


@pytest.mark.parametrize("name", ["deadline", "bfq"])
def test_the_whole_cell_is_recorded(results: Path, name: str) -> None:
    cell = cell_of(results, name)
    recorded = tracedat.read(results / "traces" / f"{name}.dat")
    assert recorded.losses.empty
    counted = cell["last"]["ios"] - cell["first"]["ios"]
    assert recorded.events["block_rq_complete"] == counted
    # Every write of dd is a request of dd's, which reads too; the journal's come to them.
    requests = recorded.frame("block_rq_insert")
    writes = requests[requests["rwbs"].astype("str").str.startswith("W")]
    inserted = writes["comm"].astype("str").value_counts()
    assert inserted["dd"] == _COPIES["writes"] * _COPIES["processes"]
    assert inserted[inserted.index.str.startswith("jbd2/")].sum() >= inserted["dd"]
    first, last = recorded.span
    assert cell["first"]["at_ns"] < first < cell["copies"][0]["ended_ns"]
    assert cell["copies"][-1]["began_ns"] < last < cell["last"]["at_ns"]
    # What the disk was busy is what its requests took: 200 us each, one after the other.
    assert measure.busy_time(recorded).sum() == pytest.approx(counted * 200e3, rel=0.1)


def test_bfq_idles_for_dd_while_the_journal_waits(results: Path) -> None:
    deadline, bfq = (tracedat.read(results / "traces" / f"{n}.dat") for n in ("deadline", "bfq"))
    assert measure.idle_gaps(deadline, shortest_ns=1_000_000).empty
    gaps = measure.idle_gaps(bfq, shortest_ns=1_000_000)
    # At least one for each dd, of slice_idle, of 8 ms.
    assert len(gaps) >= _COPIES["processes"]
    assert gaps["length_ns"].between(7_500_000, 8_500_000).all()
    assert gaps["owner"].str.startswith("jbd2/").all()
    assert (gaps["previous"] == "dd").all()
    # The gaps are all that BFQ's dd takes longer.
    taken = {
        name: sum(process["seconds"] for process in cell_of(results, name)["copies"])
        for name in ("deadline", "bfq")
    }
    longer = taken["bfq"] - taken["deadline"]
    assert longer == pytest.approx(gaps["length_ns"].sum() / 1e9, rel=0.05)


def test_what_a_cell_cannot_have_is_a_reason(results: Path) -> None:
    absent, wrong, full = (cell_of(results, name) for name in ("absent", "wrong", "full"))
    assert (absent["state"], absent["reason"]) == (
        "cannot run here",
        "this kernel has no I/O scheduler kyber",
    )
    assert (wrong["state"], wrong["reason"]) == (
        "cannot run here",
        "the I/O scheduler mq-deadline has no tunable slice_idle",
    )
    assert full["state"] == "failed"
    assert "No space left on device" in full["reason"]
