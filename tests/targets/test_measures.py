# SPDX-License-Identifier: MIT
"""Measures of what held the work up, in a virtual machine: each has a known direction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from iolab.store.counters import measures
from iolab.targets.shipped import program
from iolab.targets.vm import prepare
from tests.support.guest import cell_of
from tests.support.needs import wants
from tests.support.plans import null_blk_cell, open_job, plan

pytestmark = pytest.mark.vm

_RAW = {"name": "data", "kind": "null_blk", "size_mib": 64, "irqmode": 2, "completion_ns": 10_000}
_READ = {"rw": "randread", "bs": "4k", "ioengine": "io_uring", "iodepth": "8", "direct": "1"}
_TIMES = {"ramp_ms": 300, "runtime_ms": 500}
_LIMITED = {"settings": {"cpu.max": "20000 100000"}}
_EVENT = "block:block_rq_complete"


def _job(cpus: list[int], **options: str) -> dict[str, Any]:
    section = {"name": "a", "options": {**_READ, **options}}
    return open_job(section, cpus=cpus, **_TIMES)


def _cells() -> list[dict[str, Any]]:
    burn = asdict(program(["sh", "-c", "while :; do :; done"]))
    raw: dict[str, Any] = {"devices": [_RAW], "filesystem": None}
    own: dict[str, Any] = {"group": {"controllers": ["cpu"]}}
    polled = _job([0, 1], sqthread_poll="1", iodepth="1")
    buffered = open_job({"name": "a", "options": {"rw": "randread", "bs": "4k"}}, **_TIMES)
    return [
        null_blk_cell("free", job=_job([0]), count=[_EVENT, "blk_mq_end_request"], **raw, **own),
        null_blk_cell("limited", job=_job([0]), group=_LIMITED, **raw),
        null_blk_cell(
            "beside",
            job=_job([0]),
            antagonist={"program": burn, "group": _LIMITED, "start_ms": 0},
            **raw,
        ),
        null_blk_cell("punted", job=_job([0], force_async="1"), **raw),
        null_blk_cell("polled", job=polled, **raw),
        null_blk_cell("buffered", job=buffered),
        null_blk_cell("unknown", job=_job([0]), count=["block:such"], **raw),
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a block on two cores."""
    folder = tmp_path_factory.mktemp("measures") / "results"
    with wants("a virtual machine"):
        target = prepare("6.1", "virtual", cpus=2, memory_mib=1024)
        target.run(plan(*_cells(), coalesced_timers=False), folder)
    return folder


@pytest.fixture(scope="module")
def found(results: Path) -> Mapping[str, dict[str, Any]]:
    """The columns of each cell."""
    return {cell["id"]: measures(cell_of(results, cell["id"]), cpu=0) for cell in _cells()}


def test_a_limit_throttles_and_is_pressure(found: Mapping[str, dict[str, Any]]) -> None:
    free, limited = found["free"], found["limited"]
    assert (free["throttled_s"], free["throttled_periods"]) == (0, 0)
    # A fifth of each period of 100 ms, in 0.4 s.
    assert 0.2 < limited["throttled_s"] < 0.4
    assert 2 <= limited["throttled_periods"] <= 5
    assert limited["work_psi_cpu_some"] > free["work_psi_cpu_some"] + 0.3
    assert math.isnan(limited["antagonist_throttled_s"])


def test_an_antagonist_is_throttled_and_waited_for(found: Mapping[str, dict[str, Any]]) -> None:
    beside = found["beside"]
    assert beside["antagonist_throttled_s"] > 0.1
    assert beside["throttled_s"] == 0
    assert beside["waiting_tasks"] > found["free"]["waiting_tasks"] + 0.05
    assert beside["psi_cpu_some"] > found["free"]["psi_cpu_some"] + 0.05


def test_io_urings_workers_are_seen(found: Mapping[str, dict[str, Any]]) -> None:
    assert found["free"]["io_wq_workers"] == 0
    assert found["punted"]["io_wq_workers"] >= 1
    assert found["punted"]["io_wq_cpu"] > 0.05


def test_two_cores_that_spin_are_counted(found: Mapping[str, dict[str, Any]]) -> None:
    assert found["polled"]["busy_cpus"] == 2
    # fio 3.33 does not stamp the issue.
    assert not found["polled"]["valid"]
    assert "latencies" in found["polled"]["gate"]
    assert found["free"]["busy_cpus"] < 2


def test_a_job_in_the_page_cache_is_valid(found: Mapping[str, dict[str, Any]]) -> None:
    assert (found["buffered"]["valid"], found["buffered"]["gate"]) == (True, "")
    assert (found["buffered"]["buffered"], found["free"]["buffered"]) == (1, 0)
    assert found["buffered"]["iops"] > found["free"]["iops"]
    assert found["free"]["latency_max_ns"] >= found["free"]["latency_p999_ns"]


def test_tracepoints_and_functions_are_counted(results: Path) -> None:
    cell = cell_of(results, "free")
    counts = {n: cell["last"]["calls"][n] - c for n, c in cell["first"]["calls"].items()}
    ios = cell["last"]["ios"] - cell["first"]["ios"]
    assert counts == pytest.approx({_EVENT: ios, "blk_mq_end_request": ios}, abs=16)
    unknown = cell_of(results, "unknown")
    assert (unknown["state"], _EVENT.partition(":")[0] in unknown["reason"]) == (
        "cannot run here",
        True,
    )


def test_every_cell_has_all_measures(found: Mapping[str, dict[str, Any]]) -> None:
    for cell in (found["free"], found["limited"], found["buffered"]):
        numbers = {name: value for name, value in cell.items() if not isinstance(value, str)}
        missing = {name for name, value in numbers.items() if math.isnan(value)}
        assert {name for name in missing if not name.startswith(("antagonist_", "seconds"))} <= {
            *("runs_per_s", "program_value", "switches_per_io", "steady_iops"),
            *("fio_voluntary_per_io", "fio_involuntary_per_io"),
        }
        assert cell["kernel_warnings"] >= 0
