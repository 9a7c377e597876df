# SPDX-License-Identifier: MIT
"""What this pathology asks of the agent, on a real kernel in a virtual machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from iolab.pathology import get_pathology
from iolab.store.counters import measures
from iolab.targets.vm import VmTarget
from tests.support.plans import guest_plan, job, null_blk_cell

pytestmark = pytest.mark.vm

# Completed where they are submitted: there is no device to wait for.
_AT_ONCE = [{"name": "data", "kind": "null_blk", "size_mib": 64}]
_BUSY = job(engine="psync", iodepth=1, batch=1)


@pytest.fixture(scope="module")
def cells(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of a block in the order in which it ran."""
    asked = [
        null_blk_cell("before"),
        null_blk_cell("reniced", worker_nice=-20),
        null_blk_cell("after"),
        null_blk_cell("scaled", settings={"scheduler_cpus": 8}),
        null_blk_cell("scaled-again", settings={"scheduler_cpus": 8}),
        null_blk_cell("waits", 10000, job=job(batch_min=32)),
        null_blk_cell("ring", job=job(engine="io_uring")),
        null_blk_cell("busy", 10000, devices=_AT_ONCE, filesystem=None, job=_BUSY),
    ]
    folder = tmp_path_factory.mktemp("dio") / "results"
    target.run(guest_plan(*asked), folder)
    return {c["id"]: json.loads((folder / "cells" / f"{c['id']}.json").read_text()) for c in asked}


def _workers(cell: dict[str, Any]) -> set[int]:
    """Return the nice values of the ordinary workers of core 0."""
    tasks = cell["last"]["tasks"].values()
    return {t["nice"] for t in tasks if re.match(r"kworker/0:\d+(?![\dH])", t["comm"])}


def test_every_cell_counts(cells: dict[str, Any]) -> None:
    for name, cell in cells.items():
        found = measures(cell, cpu=0)
        assert (found["valid"], found["gate"]) == (True, ""), name


def test_workers_are_reniced_for_one_cell(cells: dict[str, Any]) -> None:
    assert {name for name, cell in cells.items() if cell["reniced"]} == {"reniced"}
    assert cells["reniced"]["reniced"][0] >= 1
    assert [_workers(cells[name]) for name in ("before", "reniced", "after")] == [{0}, {-20}, {0}]
    measured = get_pathology("dio_kworker").from_counters
    assert measured(cells["reniced"])["reniced_share"] == 1
    assert measured(cells["after"])["reniced_share"] == 0


def test_the_scheduler_is_scaled_for_one_cell(cells: dict[str, Any]) -> None:
    places = cells["scaled"]["settings"]["scheduler_cpus"].split()
    assert {Path(p).name for p in places} >= {"latency_ns", "wakeup_granularity_ns"}
    # Had the first left its values, the second would have been refused or would differ.
    assert cells["scaled-again"]["settings"] == cells["scaled"]["settings"]


def test_fio_is_asked_to_wait_for_as_many(cells: dict[str, Any]) -> None:
    options = cells["waits"]["fio"]["global options"]
    assert (options["iodepth_batch_complete_min"], options["ioengine"]) == ("32", "libaio")
    assert cells["ring"]["fio"]["global options"]["ioengine"] == "io_uring"


def test_a_job_that_keeps_the_core_busy_does_not_delay_the_observer(cells: dict[str, Any]) -> None:
    busy = measures(cells["busy"], cpu=0)
    assert busy["fio_cpu"] + busy["kworker_cpu"] > 0.8
    for cell in cells.values():
        # The steady part of 300 ms with its margins, on ticks of 4 ms.
        elapsed_ns = cell["last"]["at_ns"] - cell["first"]["at_ns"]
        assert elapsed_ns == pytest.approx(200e6, abs=8e6)
