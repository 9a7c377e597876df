# SPDX-License-Identifier: MIT
"""What moved a task, in a story with one move of each cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab import measure
from tests.support.story import Line, story, waking, write
from tracedat import MissingEventError, read

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
