# SPDX-License-Identifier: MIT
"""What a trace shows of the place of the effect: in small stories, and in a measured one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from iolab.store.dataset import Dataset
from iolab_mail.events import trace_words
from tests.support.story import PREEMPTED, Line, story, switch, waking, work, write
from tests.support.turns import FIO, IDLE, KALLSYMS, WORKER, turning
from tracedat import read


def numbers(words: Sequence[str]) -> list[list[float]]:
    return [[float(n) for n in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", word)] for word in words]


def test_a_kworker_that_is_preempted_between_its_items(tmp_path: Path) -> None:
    """Nine turns: an item ends at 12 us of a turn, and fio preempts the worker at 40.

    The last preemption has no end in the trace, and does not count.
    """
    words = trace_words(turning(tmp_path))
    assert len(words) == 3
    assert numbers(words) == [[9, 9], [8], [28.0]]
    assert "iomap_dio_complete_work()" in words[0]
    assert "fio" in words[1]


def test_a_kworker_that_is_preempted_within_an_item(tmp_path: Path) -> None:
    lines: list[Line] = [work(500, 0, 10, "queue", 0xA)]
    for t in range(1000, 401_000, 100_000):
        lines += [
            switch(t, 0, FIO, 1, WORKER),
            work(t + 2_000, 0, 20, "start", 0xA),
            waking(t + 10_000, 0, 20, FIO),
            switch(t + 40_000, 0, WORKER, PREEMPTED, FIO),
            switch(t + 60_000, 0, FIO, 1, WORKER),
            work(t + 70_000, 0, 20, "end", 0xA),
            switch(t + 80_000, 0, WORKER, PREEMPTED, FIO),
        ]
    words = trace_words(read(write(tmp_path / "t.dat", lines, kallsyms=KALLSYMS)))
    said = numbers(words)
    assert said[:2] == [[4, 4], [7]]
    assert said[2] == [4]


def test_what_preempts_nothing_shows_nothing(tmp_path: Path) -> None:
    lines = [
        line
        for t in range(1000, 9000, 1000)
        for line in (
            switch(t, 0, FIO, 1, IDLE),
            waking(t + 100, 0, 0, FIO),
            switch(t + 500, 0, IDLE, 0, FIO),
        )
    ]
    assert trace_words(story(tmp_path, lines)) == []


@pytest.mark.parametrize("kept", ["work", "sched"])
def test_a_trace_without_some_events_tells_what_the_others_show(kept: str, tmp_path: Path) -> None:
    queued = work(500, 0, 10, "queue", 0xA)
    lines = [queued]
    for t in range(1000, 101_000, 50_000):
        lines += [
            *(switch(t, 0, FIO, 1, WORKER), work(t + 2_000, 0, 20, "start", 0xA)),
            *(waking(t + 10_000, 0, 20, FIO), work(t + 12_000, 0, 20, "end", 0xA)),
            switch(t + 40_000, 0, WORKER, PREEMPTED, FIO),
        ]
    some = [line for line in lines if line[3].startswith(kept)]
    words = trace_words(read(write(tmp_path / "t.dat", some, kallsyms=KALLSYMS)))
    assert numbers(words) == ([[2, 2]] if kept == "work" else [[1]])


def test_the_trace_says_where_the_kworker_is_preempted(measured: Dataset) -> None:
    cells = measured.cells
    chosen = cells[(cells["kernel"] == "6.1") & (cells["role"] == "treatment")]
    cell = next(c for c in chosen["cell"] if c in measured.traces)
    trace = read(measured.traces[cell])
    words = " ".join(trace_words(trace))
    assert "run iomap_dio_complete_work()" in words
    assert "None of them is inside a work item" in words
    # By hand: what fio switched out, in the state that the kernel prints as R+.
    switch = trace.frame("sched_switch")
    worker = switch["prev_comm"].astype("str").str.startswith("kworker/")
    flagged = (switch["prev_state"].to_numpy() & 0x100) != 0
    by_hand = int((worker & flagged & (switch["next_comm"] == "fio")).sum())
    counted = re.search(r"R\+\) (\d+) times", words)
    assert counted is not None
    # The last one may have no end in the trace.
    assert by_hand - 1 <= int(counted[1]) <= by_hand
