# SPDX-License-Identifier: MIT
"""What is made of the moves of a thread, with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab.pathology import get_pathology
from tests.measure.test_tasks import FIO, SOFTIRQ, moved, woken
from tests.support.results import result
from tests.support.story import story, waking

_PATHOLOGY = get_pathology("aio_migration")


def test_only_the_moves_of_the_jobs_threads_are_counted() -> None:
    cell = result()
    cell["last"]["at_ns"] = cell["first"]["at_ns"] + 2_000_000_000
    cell["first"]["tasks"]["10"]["migrations"] = 100
    cell["last"]["tasks"]["10"]["migrations"] = 130
    # It came after the first look, so all of its moves count.
    cell["last"]["tasks"]["11"]["migrations"] = 20
    cell["last"]["tasks"]["20"]["migrations"] = 7000
    assert _PATHOLOGY.from_counters(cell) == pytest.approx(
        {"migrations_per_s": 50 / 2, "migrations_per_1000_ios": 50 / 2}
    )


def test_moves_are_counted_by_their_path_and_timed(tmp_path: Path) -> None:
    lines = [
        waking(1000, 0, 20, FIO),
        moved(1010, 20),
        woken(1020, 20),
        moved(5000, 30, SOFTIRQ),
        moved(6000, 40),
        woken(11_000, 20),
    ]
    found = _PATHOLOGY.from_trace(story(tmp_path, lines))
    causes = {name: count for name, count in found.items() if name.startswith("by_") and count}
    assert causes == {
        "by_wake_up_placement": 1,
        "by_periodic_balance": 1,
        "by_newly_idle_balance": 1,
    }
    assert found["migrations_traced"] == 3
    assert found["window_ms"] == pytest.approx(0.01)
    assert found["every_median_ns"] == pytest.approx((3990 + 1000) / 2)
