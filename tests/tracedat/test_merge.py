# SPDX-License-Identifier: MIT
"""Events of all CPUs in the order of their times."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.support.trace_writer import EVENTS, Page, encode, trace_v6, trace_v7
from tracedat import TraceError, read
from tracedat._merge import group_block, new_progress

WAKING, WORK = EVENTS["sched_waking"], EVENTS["workqueue_execute_start"]


def test_a_block_is_sorted_by_event_and_stays_in_order() -> None:
    state = new_progress(sources=1, slots=3)
    slots = [2, 0, 2, 2, 0]
    state.pending[1] = len(slots)
    state.block_slot[:5] = slots
    state.block_time[:5] = [10, 11, 12, 13, 14]
    state.block_data[:5] = [100, 110, 120, 130, 140]
    state.block_length[:5] = [1, 2, 3, 4, 5]
    state.block_source[:5] = [5, 6, 7, 8, 9]
    group_block(state)
    assert state.group_start.tolist() == [0, 2, 2, 5]
    assert state.group_time[:5].tolist() == [11, 14, 10, 12, 13]
    assert state.group_data[:5].tolist() == [110, 140, 100, 120, 130]
    assert state.group_length[:5].tolist() == [2, 5, 1, 3, 4]
    assert state.group_source[:5].tolist() == [6, 9, 5, 7, 8]


def test_many_cpus_are_merged_over_blocks_and_pages(tmp_path: Path) -> None:
    draw = random.Random(5)
    count, cpus = 20_000, 7
    pages = [[Page(1000)] for _ in range(cpus)]
    last = [1000] * cpus
    truth: dict[str, list[tuple[int, int, int]]] = {WAKING.name: [], WORK.name: []}
    time = 1000
    for number in range(count):
        time += draw.choice((0, 0, 1, 7))
        cpu, kind = draw.randrange(cpus), draw.choice((WAKING, WORK))
        page = pages[cpu][-1]
        if not page.room(60):
            page = Page(time)
            pages[cpu].append(page)
            last[cpu] = time
        page.event(time - last[cpu], encode(kind, number, {"comm": "x"}))
        last[cpu] = time
        truth[kind.name].append((time, cpu, number))
    (tmp_path / "t.dat").write_bytes(trace_v7([WAKING, WORK], pages))
    trace = read(tmp_path / "t.dat")
    for name, events in truth.items():
        frame = trace.frame(name)
        found = frame[["timestamp_ns", "common_cpu", "common_pid"]].to_numpy()
        # Events of one time come in the order of their CPUs.
        assert np.array_equal(found, sorted(events))


def test_a_cpu_without_events_is_passed_over(tmp_path: Path) -> None:
    event = encode(WAKING, 1, {"comm": "x"})
    cpus = [[], [Page(5)], [Page(1), Page(9).event(0, event)], [Page(3).event(0, event)]]
    (tmp_path / "t.dat").write_bytes(trace_v7([WAKING], cpus))
    frame = read(tmp_path / "t.dat").frame("sched_waking")
    assert frame["timestamp_ns"].tolist() == [3, 9]
    assert frame["common_cpu"].tolist() == [3, 2]


def test_equal_times_are_ordered_by_cpu(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    cpus = [
        [
            Page(100)
            .event(0, encode(WAKING, cpu, {"comm": "x"}))
            .event(0, encode(WAKING, cpu, {"comm": "y"}))
        ]
        for cpu in range(5)
    ]
    path.write_bytes(trace_v7([WAKING], cpus))
    frame = read(path).frame("sched_waking")
    assert frame["common_cpu"].tolist() == sorted([*range(5)] * 2)
    assert frame["comm"].tolist() == ["x", "y"] * 5


def test_pages_must_be_in_order(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = encode(WAKING, 1, {"comm": "x"})
    pages = [Page(2000).event(5, data), Page(1000).event(5, data)]
    path.write_bytes(trace_v6([WAKING], [pages]))
    with pytest.raises(TraceError, match="time goes backwards before page 1"):
        read(path)
