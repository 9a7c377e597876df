# SPDX-License-Identifier: MIT
"""Lanes of a trace: bars, wake-ups, the first view, and the part that a page embeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab.figures.lanes import embedded_span, first_view, scene, shares, work_names
from tests.support.story import story, switch, waking
from tests.support.turns import FIO, IDLE, LANES, turning, turns


def test_bars_say_what_happened_and_why(tmp_path: Path) -> None:
    shown = scene(turning(tmp_path), LANES)
    bars = shown.bars[shown.bars["start_ns"].between(101_000, 200_000)]
    said = {
        (row["comm"], row["state"]): (
            row["start_ns"] - 101_000,
            row["end_ns"] - 101_000,
            row["cause"],
            row["wait_ns"],
        )
        for row in bars.to_dict("records")
    }
    by_worker, by_fio = "woken by kworker/0:1 (20)", "preempted by fio (10)"
    assert said[("kworker/0:1", "running")] == (0, 40_000, by_fio, 60_000)
    assert said[("kworker/0:1", "preempted")] == (40_000, 100_000, by_fio, 60_000)
    assert said[("fio", "runnable")] == (10_000, 40_000, by_worker, 30_000)
    assert said[("fio", "running")] == (40_000, 100_000, by_worker, 30_000)
    assert said[("fio", "sleeping")][:3] == (0, 10_000, "")
    wakes = shown.wakes
    assert set(zip(wakes["lane"], wakes["by_lane"], strict=True)) == {(0, 1)}
    assert wakes["woken_ns"].tolist() == [11_000 + 100_000 * turn for turn in range(9)]


def test_work_has_the_name_of_its_kernel_function(tmp_path: Path) -> None:
    shown = scene(turning(tmp_path), LANES)
    bars = shown.bars.assign(work=work_names(shown.trace, shown.bars))
    at = bars.set_index(["comm", "state"])["work"]
    assert set(at["kworker/0:1", "running"]) == {"iomap_dio_complete_work"}
    # It was preempted between two items, and fio executes none.
    assert set(at["kworker/0:1", "preempted"]) == {""}
    assert set(at["fio"]) == {""}


def test_an_interrupt_wakes_from_no_lane(tmp_path: Path) -> None:
    hardirq = 0x08
    lines = [
        switch(0, 0, FIO, 1, IDLE),
        waking(1000, 0, 0, FIO, flags=hardirq),
        switch(3000, 0, IDLE, 0, FIO),
        switch(9000, 0, FIO, 1, IDLE),
    ]
    shown = scene(story(tmp_path, lines), {"fio": "fio"})
    (wake,) = shown.wakes.to_dict("records")
    assert wake["cause"] == "woken by an interrupt of swapper/0 (0)"
    assert (wake["by_lane"], wake["wait_ns"]) == (-1, 2000)


def test_the_first_view_is_where_most_is_preempted(tmp_path: Path) -> None:
    few, many = turns(20, every=1_000_000), turns(12, start=20_200_000)
    shown = scene(story(tmp_path, few + many + turns(20, 22_001_000, 1_000_000)), LANES)
    assert first_view(shown, 1_000_000) == (20_190_000, 21_190_000)
    # Without a preemption it is the longest wait.
    lines = [
        line
        for t in range(0, 50_000_000, 1_000_000)
        for line in (
            switch(t, 0, FIO, 1, IDLE),
            waking(t + 100_000, 0, 0, FIO),
            switch(t + (900_000 if t == 30_000_000 else 110_000), 0, IDLE, 0, FIO),
        )
    ]
    shown = scene(story(tmp_path, lines), {"fio": "fio"})
    assert first_view(shown, 1_000_000) == (30_050_000, 31_050_000)
    assert first_view(shown, 10**12) == shown.trace.span


def test_what_is_not_embedded_has_its_share(tmp_path: Path) -> None:
    shown = scene(turning(tmp_path, 100), LANES)
    first, last = shown.trace.span
    view = (5_001_000, 6_001_000)
    assert embedded_span(shown, view, 10**6) == (first, last)
    begin, end = embedded_span(shown, view, 120)
    bars, wakes = shown.bars, shown.wakes
    touching = (bars["end_ns"] > begin) & (bars["start_ns"] < end)
    count = touching.sum() + wakes["woken_ns"].between(begin, end - 1).sum()
    assert 100 < count <= 120
    assert begin < view[0] < view[1] < end
    # A view of more than a page can carry is embedded in its middle.
    inner = embedded_span(shown, view, 30)
    assert view[0] < inner[0] < inner[1] < view[1]
    outside = shares(shown, (begin, end), 100)
    assert ((outside["end_ns"] <= begin) | (outside["start_ns"] >= end)).all()
    whole = outside[(outside["start_ns"] > 500_000) & (outside["end_ns"] < 9_000_000)]
    mean = whole.groupby("lane")[["running", "waiting"]].mean()
    # fio runs 60 of 100 µs and waits 30 for it; the worker is the other way round.
    assert list(mean.loc[0]) == pytest.approx([0.6, 0.3], abs=0.02)
    assert list(mean.loc[1]) == pytest.approx([0.4, 0.6], abs=0.02)


def test_default_lanes_are_cpus_and_the_busiest_tasks(tmp_path: Path) -> None:
    shown = scene(turning(tmp_path), None)
    assert shown.names == ("CPU 0", "fio 10", "kworker/0:1 20")
    of_cpu = shown.bars[shown.bars["lane"] == 0]
    assert set(of_cpu["state"]) == {"running"}
    assert of_cpu.groupby("comm", observed=True)["group"].unique().explode().to_dict() == {
        "fio": 0,
        "kworker/0:1": 1,
    }
    assert set(shown.wakes["lane"]) == {1}
    assert set(shown.wakes["by_lane"]) == {2}


def test_two_tasks_of_one_name_are_told_apart(tmp_path: Path) -> None:
    other = (30, "fio")
    lines = [
        line
        for t in range(1000, 9000, 2000)
        for line in (switch(t, 0, FIO, 1, other), switch(t + 1000, 0, other, 1, FIO))
    ]
    trace = story(tmp_path, lines)
    shown = scene(trace, None, {30: "fio (antagonist)"})
    assert {"fio 10", "fio (antagonist) 30"} <= set(shown.names)
    beside = scene(trace, {"fio": "fio", "beside": r"fio \(antagonist\)"}, {30: "fio (antagonist)"})
    assert beside.bars.groupby("lane")["pid"].unique().map(list).tolist() == [[10], [30]]
