# SPDX-License-Identifier: MIT
"""Stretches of writing back, with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab import measure
from tests.support.story import story, switch, write, writeback
from tracedat import MissingEventError, read

IDLE, FIO = (0, "swapper/0"), (10, "fio")
ONE, OTHER = (20, "kworker/u4:0"), (30, "kworker/u4:1")
_COLUMNS = ["pid", "start_ns", "end_ns", "run_ns"]


def test_a_stretch_has_the_cpu_time_of_its_task_alone(tmp_path: Path) -> None:
    trace = story(
        tmp_path,
        [
            switch(1000, 0, IDLE, 0, ONE),  # the worker runs 1000..1500 and 1800..2400
            writeback(1100, 0, 20, "start"),
            switch(1500, 0, ONE, 0, FIO),
            switch(1800, 0, FIO, 1, ONE),
            writeback(2000, 0, 20, "written"),
            writeback(2100, 0, 20, "start"),
            writeback(2300, 0, 20, "written"),
            switch(2400, 0, ONE, 1, IDLE),
        ],
    )
    found = measure.flushes(trace)
    assert found[_COLUMNS].to_numpy().tolist() == [[20, 1100, 2000, 600], [20, 2100, 2300, 200]]
    assert measure.max_overlap(found) == 1


def test_what_the_edges_cut_reaches_to_them(tmp_path: Path) -> None:
    trace = story(
        tmp_path,
        [
            switch(1000, 0, IDLE, 0, ONE),
            writeback(1200, 0, 20, "written"),
            writeback(1300, 0, 20, "start"),
            switch(1500, 0, ONE, 1, IDLE),
            switch(2000, 0, IDLE, 0, FIO),
        ],
    )
    found = measure.flushes(trace)
    assert found[_COLUMNS].to_numpy().tolist() == [[20, 1000, 1200, 200], [20, 1300, 2000, 200]]


@pytest.mark.parametrize(("second_begins", "at_once"), [(1400, 2), (1500, 1), (1600, 1)])
def test_two_workers_overlap_or_do_not(tmp_path: Path, second_begins: int, at_once: int) -> None:
    trace = story(
        tmp_path,
        [
            switch(1000, 0, IDLE, 0, ONE),
            switch(1000, 1, IDLE, 0, OTHER),
            writeback(1100, 0, 20, "start"),
            writeback(1500, 0, 20, "written"),
            writeback(second_begins, 1, 30, "start"),
            writeback(1900, 1, 30, "written"),
            switch(2000, 0, ONE, 1, IDLE),
            switch(2000, 1, OTHER, 1, IDLE),
        ],
    )
    found = measure.flushes(trace)
    assert measure.max_overlap(found) == at_once
    assert found.set_index("pid")["run_ns"].to_dict() == {20: 400, 30: 1900 - second_begins}


def test_a_trace_without_writing_back(tmp_path: Path) -> None:
    found = measure.flushes(story(tmp_path, [switch(1000, 0, IDLE, 0, FIO)]))
    assert found.columns.tolist() == _COLUMNS
    assert (len(found), measure.max_overlap(found)) == (0, 0)


def test_the_events_it_needs_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "story.dat", [switch(1000, 0, IDLE, 0, FIO)])
    with pytest.raises(MissingEventError, match=r"flushes needs .*writeback_start"):
        measure.flushes(read(path, ["sched_switch"]))
