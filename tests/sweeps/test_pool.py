# SPDX-License-Identifier: MIT
"""The time left, on made-up jobs whose lengths are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from iolab.sweeps import pool
from iolab.sweeps.pool import Progress, run_jobs_in


@dataclass(frozen=True)
class MadeUpJob:
    """A job that takes so many seconds for so many cells."""

    seconds: float
    cells: int
    expected_s: float
    name: str = ""


@dataclass
class MadeUpPlace:
    """Runs one job at a time, on a clock of its own."""

    now: float = 0.0
    running_job: MadeUpJob | None = None
    began: float = 0.0
    told: list[tuple[float, float | None]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def fits(self, job: MadeUpJob) -> bool:
        return self.running_job is None

    def start(self, job: MadeUpJob) -> None:
        self.running_job, self.began = job, self.now

    def ended(self) -> list[tuple[Any, str]]:
        job = self.running_job
        if job is None or self.now - self.began < job.seconds:
            return []
        self.running_job = None
        return [(job, "")]

    def running(self) -> int:
        return int(self.running_job is not None)

    def cells_done(self) -> list[tuple[Any, int]]:
        job = self.running_job
        if job is None:
            return []
        return [(job, int(job.cells * (self.now - self.began) / job.seconds))]

    def stop(self) -> None:
        assert self.running_job is None

    def look(self, state: Progress) -> None:
        self.told.append((self.now, state.seconds_left))


def told(monkeypatch: pytest.MonkeyPatch, jobs: list[MadeUpJob]) -> list[tuple[float, float]]:
    """Return what was said to be left, by the time of saying it."""
    place = MadeUpPlace()
    monkeypatch.setattr(pool, "time", place)
    assert run_jobs_in(place, jobs, on_progress=place.look) == {}
    return [(now, left) for now, left in place.told if left is not None]


def test_the_time_left_follows_the_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    # A cell of the first takes a hundred times as long as one of the others.
    jobs = [MadeUpJob(300, 30, 100.0), *(MadeUpJob(6, 60, 2.0) for _ in range(10))]
    found = told(monkeypatch, jobs)
    # The machine is three times as slow as forecast, which the first cells show. Nobody knows how
    # much of a running cell is done.
    late = [(now, left) for now, left in found if now > 60]
    assert all(left == pytest.approx(360 - now, abs=60) for now, left in late)
    assert found[-1][1] == pytest.approx(0, abs=1e-6)


def test_without_a_forecast_a_cell_is_as_long_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [MadeUpJob(100, 10, 0.0), MadeUpJob(100, 10, 5.0)]
    found = told(monkeypatch, jobs)
    late = [(now, left) for now, left in found if now > 60]
    assert all(left == pytest.approx(200 - now, abs=40) for now, left in late)
