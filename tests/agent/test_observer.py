# SPDX-License-Identifier: MIT
"""What runs beside a cell's work starts when it is due, and its samples tell who is who."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from iolab_agent import observer as module
from iolab_agent.antagonist import RunningAntagonist
from iolab_agent.journal import Journal
from iolab_agent.observer import Observer
from iolab_agent.plan import Program
from iolab_agent.program import Output, RunningProgram
from iolab_agent.workplace import Workplace
from tests.support.processes import PATIENCE_S

_Beside = Callable[[int], RunningAntagonist]


def _observer(beside: RunningAntagonist | None, **different: Any) -> Observer:
    given: dict[str, Any] = {
        "cpu": 0,
        "cores": [0],
        "groups": {},
        "device": None,
        "calls": dict,
        "recorder": None,
        "antagonist": beside,
        "threads": False,
    }
    return Observer(**{**given, **different})


@pytest.fixture
def beside(antagonist: Callable[..., RunningAntagonist]) -> _Beside:
    """Makes antagonists that sleep, by when they start in ms."""
    return lambda start_ms: antagonist(program=Program(["/bin/sleep", "1000"]), start_ms=start_ms)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Until when it would sleep, and how many outputs it would read meanwhile."""
    asked: list[tuple[float, int]] = []

    def pause(until: float, outputs: Sequence[Output] = (), end: int | None = None) -> bool:
        asked.append((until, len(outputs)))
        return False

    monkeypatch.setattr(module, "pause", pause)
    return asked


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it would sleep, by a clock that stands still."""
    asked: list[float] = []
    monkeypatch.setattr(time, "sleep", asked.append)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    return asked


def test_an_antagonist_that_comes_first_runs_before_the_work(
    beside: _Beside, pauses: list[tuple[float, int]], sleeps: list[float]
) -> None:
    first = beside(-250)
    _observer(first).before_work(delay_us=1500)
    assert first.pid is not None
    # Its output is read while the work waits.
    assert pauses == [(100.25, 1)]
    assert sleeps == [0.0015]


def test_one_that_comes_later_does_not_run_before_the_work(
    beside: _Beside, pauses: list[tuple[float, int]], sleeps: list[float]
) -> None:
    later = beside(1)
    _observer(later).before_work(delay_us=0)
    _observer(None).before_work(delay_us=0)
    assert (later.pid, pauses, sleeps) == (None, [], [])


def test_it_starts_when_it_is_due_and_once(
    beside: _Beside, pauses: list[tuple[float, int]]
) -> None:
    later = beside(200)
    made = _observer(later)
    made.wait_from(10.0, 0.1)
    assert (later.pid, pauses) == (None, [(10.1, 0)])
    pauses.clear()
    made.wait_from(10.0, 0.5)
    pid = later.pid
    assert pid is not None
    assert pauses == [(10.2, 0), (10.5, 1)]
    pauses.clear()
    made.wait_from(10.0, 0.9)
    assert (later.pid, pauses) == (pid, [(10.9, 1)])


@pytest.mark.parametrize(("argv", "ends"), [(["/bin/true"], True), (["/bin/sleep", "9"], False)])
def test_the_end_of_a_program_ends_the_wait(
    journal: Journal, place: Workplace, argv: list[str], ends: bool
) -> None:
    running = RunningProgram(journal, Program(argv), place=place)
    try:
        assert _observer(None).wait_for(running, PATIENCE_S if ends else 0.0) is ends
    finally:
        running.kill()


def test_a_sample_tells_the_antagonist_from_the_job(beside: _Beside, tmp_path: Path) -> None:
    other = beside(0)
    made = _observer(other, calls=lambda: {"vfs_read": 5})
    assert not any(task.get("antagonist") for task in made.sample(None)["tasks"].values())
    other.start()
    look = made.sample(os.getpid())
    assert look["tasks"][str(os.getpid())]["job"]
    assert look["tasks"][str(other.pid)]["antagonist"]
    assert look["calls"] == {"vfs_read": 5}


def test_samples_are_the_observers_cost() -> None:
    made = _observer(None)
    made.sample(os.getpid())
    made.sample(os.getpid())
    assert made.cost.spent()["with_looks_cpu_ns"] > 0
