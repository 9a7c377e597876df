# SPDX-License-Identifier: MIT
from __future__ import annotations

import math
from typing import Any

import pytest

from iolab.store.counters import measures
from iolab.store.machine_load import LOAD_COLUMNS
from tests.support.results import result

_STALLS = {"cpu_some": 0, "io_some": 0, "io_full": 5, "memory_some": 0, "memory_full": 0}


def _group(throttled: int, ns: int, cpu_some: int) -> dict[str, Any]:
    pressure = {"cpu_some": cpu_some, "cpu_full": 0}
    return {"pressure": pressure, "throttled_periods": throttled, "throttled_ns": ns}


def _loaded() -> Any:
    """Return a second on two cores, of which the second never idles."""
    made = result()
    made["first"] |= {
        "idle": {core: {"idle_ns": 0, "iowait_ns": 0} for core in "01"},
        "waiting_ns": {"0": 0, "1": 0},
        "pressure": _STALLS,
        "groups": {"work": _group(1, 7, 0), "antagonist": _group(0, 0, 0)},
        "busiest": {},
    }
    made["last"] |= {
        "idle": {
            "0": {"idle_ns": 400_000_000, "iowait_ns": 100_000_000},
            "1": {"idle_ns": 9_000_000, "iowait_ns": 0},
        },
        "waiting_ns": {"0": 300_000_000, "1": 900_000_000},
        "pressure": {**_STALLS, "cpu_some": 250_000},
        "groups": {"work": _group(9, 600_000_007, 500_000), "antagonist": _group(2, 10**9, 0)},
        "busiest": {"comm": "jbd2/nullb0-8", "ran_ns": 250_000_000},
    }
    made["kernel_log"] = {"warnings": 2, "first": "workqueue: hogged"}
    return made


def test_what_held_the_work_up() -> None:
    made = _loaded()
    made["last"]["tasks"]["20"]["waited_ns"] = 200_000_000
    made["last"]["tasks"]["12"] = {**made["last"]["tasks"]["11"], "comm": "iou-wrk-11"}
    found = measures(made, cpu=0)
    wanted = {
        "psi_cpu_some": 0.25,
        "psi_io_full": 0.0,
        "work_psi_cpu_some": 0.5,
        "throttled_s": 0.6,
        "throttled_periods": 8,
        "antagonist_throttled_s": 1.0,
        "antagonist_throttled_periods": 2,
        "iowait": 0.1,
        "waiting_tasks": 1.2,
        "kworker_wait": 0.2,
        "busy_cpus": 1,
        "busiest_task": "jbd2/nullb0-8",
        "busiest_cpu": 0.25,
        "io_wq_workers": 1,
        "io_wq_cpu": 0.2,
        "kernel_warnings": 2,
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    # This kernel's root has no such line.
    assert math.isnan(found["psi_cpu_full"])


def test_kworkers_of_all_the_works_cores_wait() -> None:
    made = _loaded()
    made["last"]["tasks"]["21"]["comm"] = "kworker/1:0"
    made["last"]["tasks"]["21"]["waited_ns"] = 100_000_000
    assert measures(made, cpu=0)["kworker_wait"] == pytest.approx(0.1)
    del made["last"]["waiting_ns"]
    assert measures(made, cpu=0)["kworker_wait"] == 0


def test_what_was_not_recorded_is_nan() -> None:
    found = measures(result(), cpu=0)
    assert found["busiest_task"] == ""
    numbers = [name for name in LOAD_COLUMNS if name not in ("busiest_task", "kworker_wait")]
    assert all(math.isnan(found[name]) for name in numbers)


def test_a_lying_name_is_one_line() -> None:
    made = _loaded()
    made["last"]["busiest"]["comm"] = "a\x1b[2J\n" * 1000
    assert len(measures(made, cpu=0)["busiest_task"]) <= 64
    assert measures(made, cpu=0)["busiest_task"].isprintable()
