# SPDX-License-Identifier: MIT
"""What is made of a cell of dd and of its trace, with known answers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from iolab.pathology import get_pathology
from tests.measure.test_intervals import DD, JOURNAL, request
from tests.support.results import copied
from tests.support.story import story

_MS = 1_000_000
_PATHOLOGY = get_pathology("bfq_idling")


def test_throughput_is_bytes_for_each_second_that_dd_wrote() -> None:
    assert _PATHOLOGY.from_counters(copied()) == pytest.approx(
        {"kb_per_s": 40 * 512 / 0.05 / 1e3, "device_ios_per_write": 2000 / 40}
    )


def test_gaps_are_counted_by_who_waits(tmp_path: Path) -> None:
    lines = [
        *request(DD, 8, (0, 1000, _MS)),
        # 8 ms for dd, which waits for its journal.
        *request(JOURNAL, 16, (_MS // 2, 9 * _MS, 10 * _MS)),
        # 4 ms the other way round.
        *request(DD, 24, (11 * _MS, 15 * _MS, 16 * _MS)),
        # Dispatching takes its time, and is no gap.
        *request(JOURNAL, 32, (17 * _MS, 17 * _MS + 1000, 18 * _MS)),
    ]
    found = _PATHOLOGY.from_trace(story(tmp_path, lines))
    busy_ms = (_MS - 1000) / _MS + 1 + 1 + (_MS - 1000) / _MS
    assert found == pytest.approx(
        {
            "ios_traced": 4,
            "ios_inserted": 4,
            "gaps": 2,
            "gaps_per_write": 1,
            "gaps_per_100_ios": 50,
            "gap_share": 12 / (12 + busy_ms),
            "gap_median_ms": 6,
            "gaps_jbd2_waits": 1,
            "gaps_dd_waits": 1,
        }
    )


def test_without_a_scheduler_there_are_none(tmp_path: Path) -> None:
    lines = [*request(DD, 8, (None, 0, 100)), *request(JOURNAL, 16, (None, 5 * _MS, 6 * _MS))]
    found = _PATHOLOGY.from_trace(story(tmp_path, lines))
    assert (found["gaps"], found["gap_share"], found["ios_inserted"]) == (0, 0, 0)
    assert math.isnan(found["gap_median_ms"])
