# SPDX-License-Identifier: MIT
"""Work items and one I/O's path, with known answers and on a real trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iolab import measure
from iolab.measure.io_path import SEGMENTS
from iolab.measure.join import first_after, last_before
from tests.support.story import Line, block, story, switch, waking, work, write
from tracedat import read

IDLE, FIO, WORKER = (0, "swapper"), (10, "fio"), (20, "kworker/0:1")


def one_io(t: int, sector: int, address: int) -> list[Line]:
    return [
        block(t, 0, 10, "block_io_start", sector),
        block(t + 3, 0, 54, "block_rq_issue", sector),
        switch(t + 5, 0, FIO, 1, IDLE),
        block(t + 100, 0, 0, "block_rq_complete", sector),
        work(t + 107, 0, 0, "queue", address),
        waking(t + 109, 0, 0, WORKER, flags=0x10),
        switch(t + 120, 0, IDLE, 0, WORKER),
        work(t + 131, 0, 20, "start", address),
        waking(t + 150, 0, 20, FIO),
        work(t + 160, 0, 20, "end", address),
        switch(t + 177, 0, WORKER, 1, FIO),
    ]


def test_whole_path(tmp_path: Path) -> None:
    found = measure.io_path(story(tmp_path, one_io(1000, 800, 0xA) + one_io(2000, 808, 0xA)))
    assert len(found.whole) == 2
    assert found.unjoined.empty
    for _, row in found.ios.iterrows():
        assert [row[s] for s in SEGMENTS] == [3, 97, 7, 13, 11, 19, 0, 27]
        assert (row["submitter"], row["worker"]) == (10, 20)
        assert row["total_ns"] == 177
        assert row["block_ns"] == 100
    parts = found.breakdown()
    assert parts["mean"].to_dict() == dict(
        zip(SEGMENTS, [3, 97, 7, 13, 11, 19, 0, 27], strict=True)
    )
    assert parts["share"].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ("block_rq_complete", "not completed in the trace"),
        ("workqueue_queue_work", "completion queued no work"),
        ("workqueue_execute_start", "work was not executed in the trace"),
    ],
)
def test_a_missing_link_is_counted(tmp_path: Path, gone: str, reason: str) -> None:
    lines = one_io(1000, 800, 0xA) + [x for x in one_io(2000, 808, 0xB) if x[3] != gone]
    found = measure.io_path(story(tmp_path, lines))
    assert found.unjoined.to_dict() == {reason: 1}
    assert found.ios["reason"].tolist() == ["", reason]
    ended = found.ios.iloc[1]
    known = ended[list(SEGMENTS)].dropna()
    assert known.sum() == ended["total_ns"]


def test_wakeups_and_edges(tmp_path: Path) -> None:
    whole = one_io(1000, 800, 0xA)
    lines = [x for x in whole if x[3] != "sched_waking"]
    found = measure.io_path(story(tmp_path, lines))
    assert found.whole[["work_ns", "gather_ns", "submitter_wait_ns"]].values.tolist() == [
        [29, 0, 17]
    ]
    lines = [x for x in lines if x[3] != "workqueue_execute_end"]
    found = measure.io_path(story(tmp_path, lines))
    assert found.unjoined.to_dict() == {"work's end is not in the trace": 1}
    found = measure.io_path(story(tmp_path, whole[:-1]))
    assert found.unjoined.to_dict() == {"submitter was not switched in in the trace": 1}
    found = measure.io_path(story(tmp_path, whole[3:]))
    assert found.unjoined.to_dict() == {"completed, issued before the trace": 1}
    lines = [x for x in whole if not (x[3] == "sched_switch" and x[4]["next_pid"] == 20)]
    found = measure.io_path(story(tmp_path, lines))
    assert found.unjoined.to_dict() == {"worker's switch in is not in the trace": 1}


def test_a_running_worker_waits_for_nothing(tmp_path: Path) -> None:
    lines = [x for x in one_io(1000, 800, 0xA) if x[0] != 1120]
    lines.append(switch(990, 1, IDLE, 0, WORKER))
    found = measure.io_path(story(tmp_path, lines)).whole
    assert found["worker_wait_ns"].tolist() == [0]
    assert found["dispatch_ns"].tolist() == [24]
    assert found["total_ns"].tolist() == [177]


def test_a_batch_wakes_its_submitter_once(tmp_path: Path) -> None:
    """Three works in a row: one wakes nobody, one the submitter, one finds it awake."""
    lines = [
        *(block(1000 + n, 0, 10, "block_rq_issue", 800 + 8 * n) for n in range(3)),
        switch(1010, 0, FIO, 1, IDLE),
        *(block(1100 + n, 0, 0, "block_rq_complete", 800 + 8 * n) for n in range(3)),
    ]
    # Each completion queues its work before the next one.
    lines += [work(1100 + n, 0, 0, "queue", 0xA + n) for n in range(3)]
    lines.append(switch(1110, 0, IDLE, 0, WORKER))
    for n in range(3):
        lines += [work(1120 + 10 * n, 0, 20, "start", 0xA + n)]
        lines += [work(1126 + 10 * n, 0, 20, "end", 0xA + n)]
    lines += [waking(1133, 0, 20, FIO), switch(1160, 0, WORKER, 1, FIO)]
    found = measure.io_path(story(tmp_path, lines))
    assert found.unjoined.empty
    assert found.ios["woke"].tolist() == [False, True, False]
    assert found.ios["work_ns"].tolist() == [6, 3, 6]
    assert found.ios["gather_ns"].tolist() == [7, 0, 0]
    assert found.ios["submitter_wait_ns"].tolist() == [27, 27, 14]
    assert (found.ios[list(SEGMENTS)].sum(axis=1) == found.ios["total_ns"]).all()


def test_a_running_submitter_sees_it_at_once(tmp_path: Path) -> None:
    lines = [x for x in one_io(1000, 800, 0xA) if x[3] != "sched_waking" and x[0] != 1005]
    lines = [x for x in lines if x[0] != 1177] + [switch(900, 1, IDLE, 0, FIO)]
    found = measure.io_path(story(tmp_path, lines)).whole
    assert found[["gather_ns", "submitter_wait_ns"]].to_numpy().tolist() == [[0, 0]]


def test_choice_of_ios(tmp_path: Path) -> None:
    lines = [*one_io(1000, 800, 0xA), block(5000, 0, 10, "block_rq_issue", 8, dev=9)]
    trace = story(tmp_path, lines)
    assert len(measure.io_path(trace, dev=7).ios) == 1
    assert len(measure.io_path(trace, rwbs="R.*").ios) == 0
    assert len(measure.io_path(trace, workqueue="dio/.*").whole) == 1
    assert len(measure.io_path(trace, workqueue="events").whole) == 0


def test_work_items(tmp_path: Path) -> None:
    trace = story(
        tmp_path,
        [
            work(10, 0, 1, "start", 0xC),  # queued before the trace
            work(15, 0, 1, "end", 0xC),
            work(20, 0, 1, "queue", 0xA),
            work(30, 1, 2, "start", 0xA),
            work(35, 0, 1, "queue", 0xA),  # again, while it executes
            work(40, 1, 2, "end", 0xA),
            work(50, 1, 2, "start", 0xA),
            work(55, 1, 2, "end", 0xA),
            work(60, 0, 1, "queue", 0xB),  # never executed
        ],
    )
    found = measure.work_items(trace)
    assert found["wait_ns"].astype(object).where(found["wait_ns"].notna(), None).tolist() == [
        None,
        10,
        15,
        None,
    ]
    assert found["run_ns"].dropna().tolist() == [5, 10, 5]
    assert found["worker"].tolist() == [1, 2, 2, -1]
    assert set(found["function_name"]) == {"0xf00"}


def test_work_items_have_the_names_of_their_functions(tmp_path: Path) -> None:
    lines = [work(10, 0, 1, "queue", 0xA), work(20, 0, 2, "start", 0xA), work(30, 0, 2, "end", 0xA)]
    kallsyms = b"0000000000000f00 t iomap_dio_complete_work\n0000000000001000 T schedule\n"
    trace = read(write(tmp_path / "t.dat", lines, kallsyms=kallsyms))
    assert measure.work_items(trace)["function_name"].tolist() == ["iomap_dio_complete_work"]


times = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=40)


@given(times, times)
def test_joins(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    one, two = sorted(one), sorted(two)
    a, at = (np.array([x[0] for x in side], np.int64) for side in (one, two))
    ka, kat = (np.array([x[1] for x in side], np.int64) for side in (one, two))
    before = last_before(a, at, (ka,), (kat,))
    after = first_after(a, at, (ka,), (kat,))
    for j, (time, key) in enumerate(two):
        past = [i for i, (t, k) in enumerate(one) if k == key and t <= time]
        future = [i for i, (t, k) in enumerate(one) if k == key and t >= time]
        assert before[j] == (past[-1] if past else -1)
        assert after[j] == (future[0] if future else -1)
