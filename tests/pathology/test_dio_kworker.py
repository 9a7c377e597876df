# SPDX-License-Identifier: MIT
from __future__ import annotations

from typing import Any

import pytest

from iolab.design import blocks_of
from iolab.pathology import get_pathology


def _task(comm: str, ran_ns: int, *, nice: int = 0) -> dict[str, Any]:
    return {"comm": comm, "job": comm == "fio", "ran_ns": ran_ns, "nice": nice}


def _measures(first: dict[str, Any], last: dict[str, Any]) -> dict[str, float]:
    # Only what the measure reads.
    result: Any = {"first": {"tasks": first}, "last": {"tasks": last}}
    return get_pathology("dio_kworker").from_counters(result)


def test_the_balance_and_who_did_the_work() -> None:
    first = {"1": _task("fio", 100), "2": _task("kworker/0:1-dio/x", 50, nice=-20)}
    last = {
        "1": _task("fio", 900),
        "2": _task("kworker/0:1+dio/x", 75, nice=-20),
        # Made while the job ran: it has its pool's nice value.
        "3": _task("kworker/0:12-dio/x", 75),
        # Of the pool of high priority, and of no core.
        "4": _task("kworker/0:1H-kblockd", 5000, nice=-20),
        "5": _task("kworker/u2:1-flush", 5000),
    }
    assert _measures(first, last) == {"balance_weight": 800.0, "reniced_share": 0.25}


def test_without_a_worker_nothing_is_said() -> None:
    assert _measures({}, {"1": _task("fio", 900), "2": _task("kworker/0:1-events", 0)}) == {}


@pytest.mark.parametrize("name", ["study", "threshold", "full"])
def test_the_effect_is_measured_on_both_sides_of_where_it_begins(name: str) -> None:
    grids = get_pathology("dio_kworker").profiles[name].grids
    weights = [weight for weight in grids[0]["weight"] if isinstance(weight, int)]
    assert min(weights) < 500
    assert {1000, 9600} <= set(weights)


@pytest.mark.parametrize("name", ["full", "study"])
def test_the_preregistered_family_can_pass(name: str) -> None:
    pathology = get_pathology("dio_kworker")
    (declared,) = pathology.preregistered
    blocks = blocks_of(pathology, pathology.profiles[name], kernel="6.1", clock="virtual")
    levels = {factor: level for factor, level in declared.items() if factor != "kernel"}
    cells = [c for b in blocks for c in b.cells if not c.aa and not c.recorded]
    boots = sum(c.role == "treatment" and levels.items() <= c.condition.items() for c in cells)
    primary = [c for c in pathology.decided if levels.items() == c.condition.items()]
    assert len(primary) * 2 / 2**boots < 0.05


def test_the_map_has_the_same_numbers_in_flight_for_each_number_of_jobs() -> None:
    pathology = get_pathology("dio_kworker")
    for name in ("study", "region"):
        profile = pathology.profiles[name]
        # Several depths: a grid of the map.
        grids = [grid for grid in profile.grids if len(grid["iodepth"]) > 1]
        in_flight = {
            grid["numjobs"]: {int(depth) * grid["numjobs"][0] for depth in grid["iodepth"]}
            for grid in grids
        }
        # The published one's neighbours below and above, and where nothing is lost.
        assert set.intersection(*in_flight.values()) == {64, 192, 272, 384}
        assert len(in_flight) == len(grids) > 1
        assert all({400, 1000, 9600} <= set(grid["weight"]) for grid in grids)
