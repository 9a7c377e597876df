# SPDX-License-Identifier: MIT
"""Turns of two tasks, with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iolab import measure
from iolab_base.errors import UserError
from tests.support.story import PREEMPTED, Line, block, story, switch
from tracedat import Trace

FIO, WORKER = (10, "fio"), (20, "kworker/0:1")


def test_ping_pong(trace: Trace) -> None:
    found = measure.ping_pong(trace, "fio", r"kworker/.*")
    assert found.switches == 2
    assert found.runs[["start_ns", "end_ns", "switches"]].to_numpy().tolist() == [[2050, 2300, 2]]
    assert found.share == 250 / 1600
    assert np.isnan(found.switches_per_io)
    with pytest.raises(UserError, match="no task"):
        measure.ping_pong(trace, "fio", "nobody")
    with pytest.raises(UserError, match="'nobody\\(' is not a regular expression"):
        measure.ping_pong(trace, "fio", "nobody(")
    with pytest.raises(UserError, match="both match"):
        measure.ping_pong(trace, "fio", ".*")


def test_turns_are_counted_for_each_clump(tmp_path: Path) -> None:
    def clump(start: int, ios: int, turns: int) -> list[Line]:
        lines = [block(start + n, 0, 0, "block_rq_complete", n) for n in range(ios)]
        for n in range(turns):
            sides = (FIO, WORKER) if n % 2 else (WORKER, FIO)
            lines.append(switch(start + 1000 + 100 * n, 0, sides[0], PREEMPTED, sides[1]))
        return lines

    ms = 1_000_000
    ticks = [(4, 1), (5, 10), (6, 0), (5, 7), (3, 2)]
    lines = [line for n, tick in enumerate(ticks) for line in clump((1 + 4 * n) * ms, *tick)]
    found = measure.turns_by_clump(story(tmp_path, lines), "fio", "kworker/.*")
    # The first and the last clump may be cut off by the recording.
    assert found["start_ns"].tolist() == [5 * ms, 9 * ms, 13 * ms]
    assert found["ios"].tolist() == [5, 6, 5]
    assert found["switches"].tolist() == [10, 0, 7]
    assert found["switches_per_io"].tolist() == [2, 0, 1.4]
