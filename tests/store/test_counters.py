# SPDX-License-Identifier: MIT
from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest

from iolab.store import counters
from iolab_base.errors import IolabError
from tests.support.results import copied, result

# The results here are incomplete or wrong on purpose.
measures: Any = counters.measures
check_result: Any = counters.check_result
histogram: Any = counters.histogram


def test_measures_are_what_a_pencil_finds() -> None:
    found = measures(result(), cpu=0)
    wanted = {
        "iops": 1500 / 0.5,
        "read_iops": 0.0,
        "write_iops": 1500 / 0.5,
        "steady_iops": 2000.0,
        "seconds_per_io": 0.5 / 1500,
        "latency_mean_ns": 4000.0,
        "latency_p50_ns": 3008,
        "latency_p95_ns": 8192,
        "latency_p99_ns": 8192,
        "latency_p999_ns": 8192,
        "ios": 1500,
        "runtime_s": 0.5,
        "fio_cpu": 0.2,
        "kworker_cpu": 0.1,
        "idle": 0.6,
        "switches_per_io": 2.5,
        "fio_voluntary_per_io": 0.5,
        "fio_involuntary_per_io": 0.25,
        "switches_per_s": 5000.0,
        "work_wait": 0.0,
        "valid": True,
        "gate": "",
    }
    # These come from kworkers and processes, which older results have, too.
    assert found.pop("kworker_wait") == 0
    assert found.pop("busiest_task") == ""
    assert all(math.isnan(found.pop(name)) for name in set(found) - set(wanted))
    assert found == pytest.approx(wanted)


def test_copies_are_measured_by_what_dd_says() -> None:
    found = measures(copied(), cpu=0)
    assert found.keys() == measures(result(), cpu=0).keys()
    for name in (*found,):
        # dd processes come and go between the samples.
        if name.startswith("latency_") or name in ("seconds", "antagonist_cpu", "work_wait"):
            assert math.isnan(found[name])
    # The device's own I/Os are more than dd's writes: 2000 of them in the second that was sampled.
    wanted = {
        "iops": 40 / 0.05,
        "seconds_per_io": 0.05 / 40,
        "ios": 40,
        "runtime_s": 0.05,
        "steady_iops": 2000.0,
        "fio_cpu": 0.1,
        "kworker_cpu": 0.1,
        "idle": 0.6,
        "switches_per_io": 2.5,
        "fio_voluntary_per_io": 0.04,
        "fio_involuntary_per_io": 0.01,
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert (found["valid"], found["gate"], histogram(copied())) == (True, "", [])


def test_only_the_measured_cores_kworkers_count() -> None:
    # On core 10 it is the other one that is found, on core 1 none.
    assert measures(result(), cpu=10)["kworker_cpu"] == pytest.approx(0.9)
    assert measures(result(), cpu=1)["kworker_cpu"] == 0


def test_an_antagonist_that_calls_itself_a_kworker_is_none() -> None:
    made = result()
    made["last"]["tasks"]["20"]["antagonist"] = True
    assert measures(made, cpu=0)["kworker_cpu"] == 0


def test_reading_jobs_are_read_from_their_side() -> None:
    made = result()
    job = made["fio"]["jobs"][0]
    job["read"], job["write"] = job["write"], job["read"]
    assert measures(made, cpu=0)["iops"] == 3000
    assert len(histogram(made)) == 2


def test_the_histogram_is_sorted_by_latency() -> None:
    assert histogram(result()) == [(3008.0, 1000), (8192.0, 500)]
    assert histogram({"state": "failed"}) == []


def test_processes_and_directions_are_added_up_and_their_bins_merged() -> None:
    made = result()
    job = made["fio"]["jobs"][0]
    busy = next(side for side in (job["read"], job["write"]) if side["total_ios"])
    silent = {"total_ios": 0, "runtime": 0, "clat_ns": {"mean": 0.0}}
    other = {"total_ios": 500, "runtime": 250, "clat_ns": {"mean": 8000.0, "bins": {"8192": 500}}}
    # As cpuio has it: I/Os in no time.
    burn = {"total_ios": 2, "runtime": 0, "clat_ns": {"mean": 5e7, "bins": {"50000000": 2}}}
    made["fio"]["jobs"] = [
        {"read": other, "write": busy, "trim": silent},
        {"read": burn, "write": silent, "trim": silent},
    ]
    found = measures(made, cpu=0)
    assert (found["ios"], found["runtime_s"]) == (2000, 0.5)
    assert found["iops"] == 1500 / 0.5 + 500 / 0.25
    assert (found["read_iops"], found["write_iops"]) == (500 / 0.25, 1500 / 0.5)
    assert found["latency_mean_ns"] == (1500 * 4000 + 500 * 8000) / 2000
    # 1000 of 2000 are in the first bin: exactly half.
    assert (found["latency_p50_ns"], found["latency_p95_ns"]) == (3008, 8192)
    assert histogram(made) == [(3008.0, 1000), (8192.0, 1000)]


def test_a_job_without_latencies_has_none() -> None:
    made = result()
    for job in made["fio"]["jobs"]:
        for side in ("read", "write"):
            job[side]["clat_ns"] = {"mean": 0.0}
    found = measures(made, cpu=0)
    assert (found["valid"], found["iops"]) == (True, 3000)
    assert math.isnan(found["latency_mean_ns"])
    assert math.isnan(found["latency_p99_ns"])


def _no_report_of_io(made: dict[str, Any]) -> None:
    made["fio"]["jobs"][0]["write"]["total_ios"] = 0


def _no_time(made: dict[str, Any]) -> None:
    made["fio"]["jobs"][0]["write"]["runtime"] = 0


@pytest.mark.parametrize("spoil", [_no_report_of_io, _no_time])
def test_without_io_there_is_no_number(spoil: Any) -> None:
    made = result()
    made["gates"] = ["fio reports error 5"]
    spoil(made)
    found = measures(made, cpu=0)
    assert (found["valid"], found["gate"]) == (False, "fio reports error 5; no I/O was done")
    assert math.isnan(found["iops"])


def test_a_job_in_the_page_cache_is_measured_without_the_device() -> None:
    made = result()
    made["last"]["ios"] = made["first"]["ios"]
    made["fio"]["global options"] = {"rw": "randread"}
    made["fio"]["jobs"][0]["job options"] = {"name": "a"}
    found = measures(made, cpu=0)
    assert (found["valid"], found["iops"], found["buffered"]) == (True, 3000, 1)
    assert math.isnan(found["switches_per_io"])
    made["fio"]["jobs"][0]["job options"]["direct"] = "1"
    assert measures(made, cpu=0)["buffered"] == 0


def test_latencies_longer_than_the_run_are_a_gate() -> None:
    made = {**result(), "measuring_from_ns": 5, "measuring_until_ns": 2_000_000_005}
    side = made["fio"]["jobs"][0]["write"]["clat_ns"]
    side["max"] = 2_000_000_000
    assert measures(made, cpu=0)["valid"]
    assert measures(made, cpu=0)["latency_max_ns"] == 2e9
    side["max"] = 26_000_000_000
    found = measures(made, cpu=0)
    assert not found["valid"]
    assert "latencies" in found["gate"]


def test_copies_without_time_are_no_measurement() -> None:
    made = copied()
    for process in made["copies"]:
        process["seconds"] = 0.0
    assert measures(made, cpu=0)["gate"] == "no I/O was done"
    assert measures({**copied(), "copies": []}, cpu=0)["gate"] == "no I/O was done"


@pytest.mark.parametrize("state", ["failed", "cannot run here"])
def test_a_cell_that_did_not_run_has_no_numbers_and_says_why(state: str) -> None:
    found = measures({"id": "c0", "state": state, "reason": "no room"}, cpu=0)
    assert (found["valid"], found["gate"]) == (False, f"{state}: no room")
    numbers = {k: v for k, v in found.items() if isinstance(v, float) and k != "runtime_s"}
    kinds = counters.CELL_COLUMNS
    assert set(numbers) == {n for n in kinds if kinds[n] == "float64"} - {"runtime_s"}
    assert all(math.isnan(value) for value in numbers.values())
    assert found.keys() == measures(result(), cpu=0).keys()


def test_a_core_whose_time_nobody_counts_is_not_idle_nor_busy() -> None:
    made = result()
    made["first"]["cpu"] = made["last"]["cpu"] = {"lacks": "no /proc/schedstat"}
    found = measures(made, cpu=0)
    assert math.isnan(found["idle"])
    assert found["valid"]
    assert found["fio_cpu"] == pytest.approx(0.2)


def test_gates_keep_the_numbers_but_not_the_validity() -> None:
    found = measures({**result(), "gates": ["a", "b"]}, cpu=0)
    assert (found["valid"], found["gate"], found["iops"]) == (False, "a; b", 3000)


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"state": "failed"},
        {"state": "done"},
        {"state": "done", "first": 5, "last": 5},
        {**result(), "fio": {"jobs": []}},
        {**result(), "last": {"ios": 99}},
        {**result(), "gates": [["a list"]]},
        {**result(), "gates": [5]},
        {**copied(), "copies": [{"writes": 5}]},
    ],
)
def test_what_is_not_the_agents_is_one_sentence(made: dict[str, Any]) -> None:
    with pytest.raises(IolabError, match="a cell's result is not the agent's"):
        measures(made, cpu=0)


def _deep(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    made = deepcopy(document)
    place: Any = made
    *above, last = path.split(".")
    for step in above:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("fio.jobs.0.write.clat_ns", 5),
        ("fio.jobs.0.write.clat_ns.bins", {"x": 1}),
        ("fio.jobs.0.write.clat_ns.bins", {"5": [1]}),
        ("fio.jobs.0.write.clat_ns.bins", {"5": 10**30}),
        ("fio.jobs.0.write.clat_ns.bins", {"-5": 3}),
        ("fio.jobs.0.write.total_ios", 10**400),
        ("fio.jobs.0.write.total_ios", 10**20),
        ("last.ios", "many"),
        ("last.tasks", [1]),
    ],
)
def test_results_that_make_no_sense_are_refused_before_they_are_stored(
    path: str, value: object
) -> None:
    check_result(result(), cpu=0)
    with pytest.raises(IolabError, match="a cell's result is not the agent's"):
        check_result(_deep(result(), path, value), cpu=0)


def test_two_samples_of_one_moment_are_refused() -> None:
    made = result()
    with pytest.raises(IolabError, match="a cell's result is not the agent's"):
        check_result(_deep(made, "last.at_ns", made["first"]["at_ns"]), cpu=0)


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
