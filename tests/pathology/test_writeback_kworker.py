# SPDX-License-Identifier: MIT
from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iolab.blocks import encode_plan
from iolab.design import blocks_of
from iolab.pathology.factors import Condition
from iolab.pathology.writeback_kworker import WRITEBACK_KWORKER
from iolab_agent.plan import Cell
from iolab_agent.plan_reader import parse_plan
from tests.support.story import Line, story, switch, writeback

_MIB = 1 << 20
_ONE: Condition = {
    "filesystem": "ext4",
    "io": "buffered",
    "layout": "growing",
    "numjobs": 1,
    "cpus": 1,
}


def _task(comm: str, ran_ns: int, at_ns: int) -> dict[str, Any]:
    return {"comm": comm, "job": False, "ran_ns": ran_ns, "at_ns": at_ns}


def test_only_unbound_workers_count_each_by_its_own_clock() -> None:
    first = {
        "at_ns": 1_000_000_000,
        "written_bytes": 10 * _MIB,
        "tasks": {
            "20": _task("kworker/u4:0-flush-254:0", 5_000_000, 1_010_000_000),
            "21": _task("kworker/0:1", 0, 1_010_000_000),
        },
    }
    last = {
        "at_ns": 1_500_000_000,
        "written_bytes": 110 * _MIB,
        "tasks": {
            # A fifth of the 0.4 s between its own two looks.
            "20": _task("kworker/u4:0+flush-254:0", 85_000_000, 1_410_000_000),
            "21": _task("kworker/0:1", 400_000_000, 1_510_000_000),
            # Came after the first sample: a tenth of the time since.
            "22": _task("kworker/u4:1-events_unbound", 60_000_000, 1_600_000_000),
            "30": _task("fio", 400_000_000, 1_500_000_000),
        },
    }
    result: Any = {"first": first, "last": last}
    found = WRITEBACK_KWORKER.from_counters(result)
    assert found == pytest.approx(
        {"device_mib_per_s": 200.0, "worker_busy": 0.3, "worker_us_per_mib": 1500.0}
    )


def _added(time: int, order: int) -> Line:
    return time, 0, 10, "mm_filemap_add_to_page_cache", {"index": 0, "order": order}


def _issued(time: int, dev: int, kib: int, rwbs: str = "W") -> Line:
    fields: dict[str, int | str | bytes] = {
        "dev": dev,
        "sector": 0,
        "nr_sector": 2 * kib,
        "rwbs": rwbs,
        "comm": "kworker",
        "cmd": "",
    }
    return time, 0, 20, "block_rq_issue", fields


def _recorded(folder: Path, *more: Line) -> dict[str, float]:
    lines = [
        switch(0, 0, (0, "swapper/0"), 0, (20, "kworker/u4:0")),
        writeback(0, 0, 20, "start"),
        _issued(1000, 7, 2048),
        # A log on another device, and what was read, are not the data.
        _issued(1100, 8, 512),
        _issued(1200, 7, 4096, "R"),
        writeback(3_000_000, 0, 20, "written"),
        switch(3_000_000, 0, (20, "kworker/u4:0"), 1, (0, "swapper/0")),
        *more,
    ]
    return WRITEBACK_KWORKER.from_trace(story(folder, lines))


def test_a_trace_tells_the_workers_and_the_folios(tmp_path: Path) -> None:
    found = _recorded(tmp_path, _added(2000, 0), _added(2100, 2), _added(2200, 8))
    assert found == {
        "mib_traced": 2.0,
        "flush_workers": 1.0,
        "flush_workers_at_once": 1.0,
        "flush_us_per_mib": 1500.0,
        "pages_per_folio": (1 + 4 + 256) / 3,
    }


def test_files_that_are_in_the_cache_tell_no_folio(tmp_path: Path) -> None:
    assert "pages_per_folio" not in _recorded(tmp_path)


def test_the_two_file_systems_differ_in_nothing_but_themselves() -> None:
    def made(filesystem: str | None) -> Cell:
        condition = {**_ONE, "filesystem": filesystem}
        profile = WRITEBACK_KWORKER.profiles["quick"]
        return WRITEBACK_KWORKER.cell(condition, profile, random.Random(1))

    ext4, xfs = made("ext4"), made(None)
    assert replace(ext4, devices=xfs.devices, filesystem=xfs.filesystem) == xfs
    assert ext4.devices == xfs.devices[1:]
    assert ext4.filesystem is not None
    assert xfs.filesystem is not None
    assert (ext4.filesystem.kind, xfs.filesystem.kind) == ("ext4", "xfs")
    assert xfs.filesystem.realtime_device == ext4.filesystem.device


@pytest.mark.parametrize("layout", ["growing", "overwrite"])
@pytest.mark.parametrize("numjobs", [1, 32])
def test_the_files_fit_on_the_device(layout: str, numjobs: int) -> None:
    condition = {**_ONE, "layout": layout, "numjobs": numjobs}
    profile = WRITEBACK_KWORKER.profiles["quick"]
    cell = WRITEBACK_KWORKER.cell(condition, profile, random.Random(1))
    assert cell.job is not None
    assert cell.job.size_mib * numjobs < 0.9 * cell.devices[-1].size_mib


@pytest.mark.parametrize("profile", ["quick", "study", "full"])
def test_every_claim_is_measured_and_what_traces_tell_is_recorded(profile: str) -> None:
    blocks = blocks_of(
        WRITEBACK_KWORKER, WRITEBACK_KWORKER.profiles[profile], kernel="6.1", clock="virtual"
    )
    cells = [c for b in blocks if b.boot < 2 for c in b.cells if not c.aa]
    for block in blocks:
        parse_plan(encode_plan(block.plan))
    from_traces = {"flush_workers_at_once", "pages_per_folio"}
    claims = WRITEBACK_KWORKER.decided if profile == "quick" else WRITEBACK_KWORKER.claims
    for claim in claims:
        boots = [
            c
            for c in cells
            if claim.condition.items() <= c.condition.items()
            and c.recorded is (claim.value in from_traces)
        ]
        assert len(boots) == 2, claim.name
