# SPDX-License-Identifier: MIT
"""States, waits, preemptions and migrations of tasks, with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab import measure
from tests.support.story import PREEMPTED, Line, story, switch, waking, write
from tracedat import MissingEventError, RequestError, Trace, read

IDLE, FIO, WORKER = (0, "swapper/0"), (10, "fio"), (20, "kworker/0:1")


def test_slices(trace: Trace) -> None:
    found = measure.slices(trace)
    assert found[["pid", "start_ns", "end_ns"]].to_numpy().tolist() == [
        [10, 1000, 1500],
        [0, 1500, 1800],
        [20, 1800, 2050],
        [10, 2050, 2300],
        [20, 2300, 2600],
    ]
    assert found["state"].tolist() == ["sleeping", "runnable", "preempted", "sleeping", "sleeping"]
    share = measure.occupancy(trace).set_index("pid")["share"]
    assert share.to_dict() == {0: 300 / 1600, 10: 750 / 1600, 20: 550 / 1600}


def test_time_in_state(trace: Trace) -> None:
    table = measure.time_in_state(trace)
    fio, worker = (table.xs(pid, level="pid").iloc[0].to_dict() for pid in (10, 20))
    assert fio["running"] == 750
    assert fio["sleeping"] == 500 + 400
    assert fio["runnable"] == 50
    assert worker["preempted"] == 250
    assert worker["running"] == 550
    assert worker["runnable"] == 100
    assert 0 not in table.index.get_level_values("pid")


def test_waits(trace: Trace) -> None:
    found = measure.waits(trace)
    rows = found[["pid", "woken_ns", "in_ns", "wait_ns", "waker_pid", "interrupt"]]
    assert rows.to_numpy().tolist() == [
        [20, 1700, 1800, 100, 0, True],
        [10, 2000, 2050, 50, 20, False],
    ]
    pairs = measure.waits_by_pair(trace)
    assert pairs.index.tolist() == [("kworker/0:1", "fio")]
    assert pairs["sum"].tolist() == [50]
    assert len(measure.waits_by_pair(trace, interrupts=True)) == 2


def test_preemptions(trace: Trace) -> None:
    found = measure.preemptions(trace)
    assert found["pid"].tolist() == [20]
    row = found.iloc[0]
    assert (row["start_ns"], row["wait_ns"], row["by_pid"], row["ran_ns"]) == (2050, 250, 10, 250)
    assert row["by_comm"] == "fio"


def test_migrations(trace: Trace) -> None:
    found = measure.migrations(trace)
    assert found["to_cpu"].tolist() == [1, 0]
    assert found["interval_ns"].isna().tolist() == [True, False]
    assert found["interval_ns"].iloc[1] == 190


def test_a_reused_pid_is_two_tasks(tmp_path: Path) -> None:
    trace = story(
        tmp_path,
        [
            switch(100, 0, IDLE, 0, (5, "old")),
            switch(200, 0, (5, "old"), 0x10, IDLE),  # dead
            waking(900, 0, 0, (5, "new")),
            switch(950, 0, IDLE, 0, (5, "new")),
            switch(990, 0, (5, "new"), 1, IDLE),
        ],
    )
    table = measure.time_in_state(trace)
    old, new = (table.xs(name, level="comm").iloc[0].to_dict() for name in ("old", "new"))
    assert old["running"] == 100
    assert (new["running"], new["runnable"]) == (40, 50)
    assert not new.get("sleeping", 0)


def test_a_gap_makes_no_interval(tmp_path: Path) -> None:
    # The switch that put fio on the CPU the second time is lost.
    trace = story(
        tmp_path,
        [
            switch(100, 0, IDLE, 0, FIO),
            switch(200, 0, FIO, 1, IDLE),
            switch(900, 0, FIO, 1, IDLE),
            switch(950, 0, IDLE, 0, FIO),
        ],
    )
    found = measure.intervals(trace)
    assert found[["start_ns", "end_ns", "state"]].to_numpy().tolist() == [
        [100, 200, "running"],
        [900, 950, "sleeping"],
    ]
    assert measure.slices(trace)["pid"].tolist() == [10, 0]


def test_missing_events_name_the_analysis(tmp_path: Path) -> None:
    path = write(tmp_path / "t.dat", [waking(1, 0, 0, FIO)])
    trace = read(path, ["sched_waking"])
    with pytest.raises(MissingEventError, match=r"waits needs .* sched_switch was not read"):
        measure.waits(trace)
    with pytest.raises(RequestError, match="did you mean sched_switch"):
        read(path, ["sched_swich"])


def _without(path: Path, lines: list[Line], how: str) -> Trace:
    """Return switches alone: of a file that lists sched_waking, or that was read without it."""
    if how == "listed":
        return read(write(path, [line for line in lines if line[3] == "sched_switch"]))
    return read(write(path, lines), ["sched_switch"])


_TURN = [
    switch(1000, 0, IDLE, 0, FIO),
    waking(1200, 0, 10, WORKER),
    switch(1500, 0, FIO, PREEMPTED, WORKER),  # fio is put off for 300
    switch(1800, 0, WORKER, 1, FIO),
    switch(2000, 0, FIO, 1, IDLE),
    waking(2300, 0, 0, FIO, flags=0x08),
    switch(2400, 0, IDLE, 0, FIO),
]


@pytest.mark.parametrize("how", ["listed", "not read"])
def test_switches_alone_say_who_ran_and_who_was_put_off(tmp_path: Path, how: str) -> None:
    whole = story(tmp_path, _TURN)
    alone = _without(tmp_path / "t.dat", _TURN, how)
    assert measure.preemptions(alone).equals(measure.preemptions(whole))
    assert measure.preemptions(alone)["wait_ns"].tolist() == [300]
    fio = measure.time_in_state(alone).xs(10, level="pid").iloc[0].to_dict()
    # The wait of 100 after the wake-up is part of the sleep.
    assert fio == {"running": 500 + 200, "preempted": 300, "sleeping": 400}
    with pytest.raises(MissingEventError, match="record and read sched_waking"):
        measure.waits(alone)


def test_wakeups_stand_in_for_wakings(tmp_path: Path) -> None:
    lines: list[Line] = [
        (*line[:3], line[3].replace("waking", "wakeup"), line[4]) for line in _TURN
    ]
    (tmp_path / "other").mkdir()
    assert measure.waits(story(tmp_path / "other", lines)).equals(
        measure.waits(story(tmp_path, _TURN))
    )
    # Through its CPU's queue a task is woken by the idle task there, outside of any interrupt.
    queued: list[Line] = [
        *lines[:5],
        (2300, 0, 0, "sched_wakeup", {"pid": 10, "comm": "fio"}),
        lines[6],
    ]
    assert measure.waits(story(tmp_path, queued))["interrupt"].tolist() == [False, True]


def test_empty_trace(tmp_path: Path) -> None:
    trace = story(tmp_path, [])
    assert measure.intervals(trace).empty
    assert measure.waits(trace).empty
    assert measure.preemptions(trace).empty
    assert measure.slices(trace).empty
    assert measure.occupancy(trace).empty
    assert measure.work_items(trace).empty
    assert measure.migrations(trace).empty
    assert measure.io_path(trace).ios.empty
    assert measure.io_path(trace).unjoined.empty


FIO = (10, "fio")
SOFTIRQ = 0x10


def moved(time: int, by: int, flags: int = 0) -> Line:
    fields: dict[str, int | str | bytes] = {"pid": 10, "comm": "fio", "flags": flags}
    return time, 0, by, "sched_migrate_task", fields | {"orig_cpu": 0, "dest_cpu": 1}


def woken(time: int, by: int) -> Line:
    return time, 0, by, "sched_wakeup", {"pid": 10, "comm": "fio"}


def test_each_move_is_given_to_the_path_that_made_it(tmp_path: Path) -> None:
    lines = [
        waking(1000, 0, 20, FIO),
        moved(1010, 20),  # the waker looks for a CPU
        woken(1020, 20),
        moved(5000, 30, SOFTIRQ),  # the softirq, on top of any task
        moved(6000, 40),  # a task that is about to leave its CPU idle
        waking(7000, 0, 20, (11, "other")),
        moved(7010, 12),  # another task is being woken: not this one
        woken(8000, 20),
        waking(9000, 0, 20, FIO),
        woken(9010, 20),
    ]
    path = write(tmp_path / "t.dat", lines, comms={12: "migration/0", 20: "kworker/0:1"})
    found = measure.migration_causes(read(path))
    assert found["cause"].tolist() == [
        "wake-up placement",
        "periodic balance",
        "newly idle balance",
        "active balance",
    ]
    assert found["interval_ns"].dropna().tolist() == [3990, 1000, 1010]


def test_a_task_that_never_moves_has_no_cause(tmp_path: Path) -> None:
    trace = story(tmp_path, [waking(1000, 0, 20, FIO), woken(1010, 20)])
    assert measure.migration_causes(trace).empty


def test_it_names_the_event_that_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "t.dat", [moved(1000, 0)])
    with pytest.raises(MissingEventError, match="sched_wakeup"):
        measure.migration_causes(read(path, events=["sched_migrate_task", "sched_waking"]))
