# SPDX-License-Identifier: MIT
"""Measures of programs and antagonists, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from iolab.store import counters
from tests.support.results import result

measures: Any = counters.measures


def _task(ran_ns: int, waited_ns: int, **different: Any) -> dict[str, Any]:
    return {"comm": "hog", "job": False, "ran_ns": ran_ns, "waited_ns": waited_ns, **different}


def programmed(*, whole: bool, **different: Any) -> Any:
    """Return what the agent records of a program: 0.5 s of CPU in 0.8 s."""
    made = result()
    del made["fio"], made["fio_said"]
    made["last"]["ios"] = made["first"]["ios"]
    made["first"]["tasks"] = {} if whole else {"30": _task(100, 50, job=True)}
    made["last"]["tasks"] = {"30": _task(490_000_100, 200_000_050, job=True)}
    made["program"] = {
        "whole": whole,
        "seconds": 0.8,
        "exit": 0,
        "ran_ns": 500_000_000,
        "output": "took 7 s",
        "value": 7.0,
        **different,
    }
    return made


def test_a_program_that_ran_to_its_end_is_measured_by_the_kernels_sums() -> None:
    found = measures(programmed(whole=True), cpu=0)
    wanted = {
        "seconds": 0.8,
        "runs_per_s": 1.25,
        "program_value": 7.0,
        "runtime_s": 0.8,
        "fio_cpu": 0.5 / 0.8,
        "work_wait": 0.20000005 / 0.8,
        "switches_per_s": 5000.0,
        "kworker_cpu": 0.0,
        "idle": 0.6,
        "ios": 0,
        "steady_iops": math.nan,
        "valid": True,
        "gate": "",
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, nan_ok=True)
    assert found.keys() == measures(result(), cpu=0).keys()
    assert math.isnan(found["iops"])
    assert math.isnan(found["switches_per_io"])


def test_a_program_for_a_fixed_time_is_measured_between_the_samples() -> None:
    found = measures(programmed(whole=False), cpu=0)
    assert math.isnan(found["seconds"])
    assert math.isnan(found["runs_per_s"])
    assert (found["fio_cpu"], found["work_wait"]) == pytest.approx((0.49, 0.2))
    assert found["runtime_s"] == 0.8


def test_what_waited_unseen_is_not_made_up() -> None:
    children = programmed(whole=True, ran_ns=900_000_000)
    assert math.isnan(measures(children, cpu=0)["work_wait"])
    gone = programmed(whole=False)
    gone["first"]["tasks"]["31"] = _task(5, 5, job=True)
    assert math.isnan(measures(gone, cpu=0)["work_wait"])


def test_the_io_of_a_program_counts_too() -> None:
    made = programmed(whole=True)
    made["last"]["ios"] += 2000
    found = measures(made, cpu=0)
    assert (found["ios"], found["steady_iops"]) == (2000, 2000.0)
    assert found["switches_per_io"] == 2.5


def test_a_program_without_a_number_has_nan_and_its_gate() -> None:
    made = {**programmed(whole=True, value=None), "gates": ["the program printed no number"]}
    found = measures(made, cpu=0)
    assert math.isnan(found["program_value"])
    assert (found["valid"], found["gate"]) == (False, "the program printed no number")


def test_an_antagonist_is_not_part_of_the_job() -> None:
    alone, made = measures(result(), cpu=0), result()
    made["antagonist"] = {"began_ns": 0, "ended_ns": 1}
    for look, ran_ns in (("first", 0), ("last", 300_000_000)):
        made[look]["tasks"]["40"] = _task(ran_ns, 9, antagonist=True)
    found = measures(made, cpu=0)
    assert found["antagonist_cpu"] == pytest.approx(0.3)
    same = {name: value for name, value in alone.items() if name != "antagonist_cpu"}
    assert {name: found[name] for name in same} == pytest.approx(same, nan_ok=True)
