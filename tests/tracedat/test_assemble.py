# SPDX-License-Identifier: MIT
"""Decoded columns: their names, their types, and the parts that threads decode."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest

from tests.support.trace_writer import EVENTS, Page, encode, event, trace_v7
from tracedat import TraceError, _assemble, read
from tracedat._assemble import columns_of
from tracedat._formats import parse_formats

WIDE, WORK = EVENTS["wide"], EVENTS["workqueue_queue_work"]


def test_the_columns_of_an_event_begin_with_time_and_cpu() -> None:
    (made,) = parse_formats(Path("t"), [("workqueue", WORK.text())]).values()
    common = ["timestamp_ns", "common_cpu", "common_flags", "common_preempt_count", "common_pid"]
    own = ["work", "function", "workqueue", "req_cpu", "cpu"]
    assert [column.name for column in columns_of(made, several=False)] == common + own
    several = [column.name for column in columns_of(made, several=True)]
    assert several == [*common[:2], "common_buffer", *common[2:], *own]


def _file(path: Path, count: int, names: int) -> Path:
    """Write events of two CPUs with so many names, each event's number as its pid."""
    one = event("demo", "one", 7, "loc name")
    cpus = [[Page(0)], [Page(0)]]
    for number in range(count):
        pages, cpu_time = cpus[number % 2], 10 * number
        data = encode(one, number, {"name": f"n{number % names}"})
        if not pages[-1].room(60):
            pages.append(Page(cpu_time))
        gap = 0 if not pages[-1].data and len(pages) > 1 else 20 if pages[-1].data else cpu_time
        pages[-1].event(gap, data)
    path.write_bytes(trace_v7([one], cpus))
    return path


@pytest.mark.parametrize("names", [126, 127, 128])
def test_codes_have_the_type_of_pandas(names: int, tmp_path: Path) -> None:
    trace = read(_file(tmp_path / "t.dat", 300, names))
    known = pd.Categorical([f"n{number}" for number in range(names)]).codes.dtype
    assert trace.array("one", "name").dtype == known
    codes = cast("pd.Categorical", trace.frame("one")["name"].array).codes
    assert np.shares_memory(codes, trace.array("one", "name"))
    assert trace.frame("one")["name"].tolist() == [f"n{n % names}" for n in range(300)]


@pytest.mark.parametrize("part", [1, 70, 500])
def test_parts_of_the_time_make_one_frame(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_assemble, "_PART", part)
    monkeypatch.setattr(_assemble, "thread_count", lambda: 2)
    frame = read(_file(tmp_path / "t.dat", 2000, 300)).frame("one")
    assert frame["common_pid"].tolist() == [*range(2000)]
    assert frame["timestamp_ns"].tolist() == [*range(0, 20_000, 10)]
    assert frame["name"].tolist() == [f"n{number % 300}" for number in range(2000)]
    window = read(tmp_path / "t.dat", between=(5005, 15_000)).frame("one")
    assert window["common_pid"].tolist() == [*range(501, 1500)]


def test_columns_that_do_not_fit_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path / "t.dat", 10, 2)

    def none(size: int) -> bytes:
        raise MemoryError(size)

    monkeypatch.setattr(_assemble, "reserve", none)
    with pytest.raises(TraceError, match="memory"):
        read(path)


def test_an_events_own_cpu_stays(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = encode(WORK, 3, {"cpu": 5, "workqueue": "events"})
    path.write_bytes(trace_v7([WORK], [[], [Page(7).event(1, data)]]))
    frame = read(path).frame("workqueue_queue_work")
    assert frame["cpu"].tolist() == [5]
    assert frame["common_cpu"].tolist() == [1]
    assert frame["workqueue"].tolist() == ["events"]


def test_more_names_than_narrow_codes(tmp_path: Path) -> None:
    count = 40_000
    pages = [Page(0)]
    for i in range(count):
        data = encode(WIDE, 1, {"args": b"", "raw": b"", "tail": f"a long text of number {i}"})
        if not pages[-1].room(len(data) + 8):
            pages.append(Page(i))
        pages[-1].event(int(len(pages[-1].data) > 0), data)
    path = tmp_path / "t.dat"
    path.write_bytes(trace_v7([WIDE], [pages], compression="zstd"))
    tail = read(path).frame("wide")["tail"]
    assert tail.tolist() == [f"a long text of number {i}" for i in range(count)]
    assert tail.cat.codes.dtype == np.int32
