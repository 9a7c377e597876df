# SPDX-License-Identifier: MIT
"""The lanes of a trace as Bokeh draws them: places, times and words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bokeh.models import HoverTool

from iolab.figures.lane_plot import key, lane_plot, time_range
from iolab.figures.lanes import Scene, scene
from tests.support.turns import LANES, turning

VIEW = (101_000, 201_000)


@pytest.fixture
def shown(tmp_path: Path) -> Scene:
    return scene(turning(tmp_path), LANES)


def drawn(shown: Scene, exact: tuple[int, int], *, last: bool = True) -> Any:
    return lane_plot("a", shown, VIEW, exact, time_range({"a": shown}, {"a": VIEW}), last=last)


def sources(plot: Any, column: str) -> list[Any]:
    found = {id(r.data_source): r.data_source for r in plot.renderers}
    return [source for source in found.values() if column in source.data]


def test_the_axis_begins_with_the_view_and_reaches_over_the_trace(shown: Scene) -> None:
    axis = time_range({"a": shown}, {"a": VIEW})
    first, last = shown.trace.span
    assert (axis.start, axis.end) == (0, 100)
    assert axis.bounds == ((first - 101_000) / 1e3, (last - 101_000) / 1e3)


def test_bars_are_where_the_tasks_were(shown: Scene) -> None:
    """In the turn of the view the worker runs 40 us, and fio waits 30 and runs 60."""
    plot = drawn(shown, shown.trace.span)
    bars = {
        (str(task), round(float(x), 3), round(float(width), 3))
        for source in sources(plot, "pid")
        if "width" in source.data
        for task, x, width in zip(
            source.data["task"], source.data["x"], source.data["width"], strict=True
        )
    }
    assert {
        *(("kworker/0:1", 0, 40), ("kworker/0:1", 40, 60)),
        *(("fio", 10, 30), ("fio", 40, 60), ("fio", 0, 10)),
    } <= bars
    wakes = [source.data["x"] for source in sources(plot, "reach")]
    assert [float(x) for xs in wakes for x in xs] == [100.0 * turn - 90 for turn in range(9)]


def test_what_is_not_exact_is_drawn_as_shares(shown: Scene) -> None:
    whole = drawn(shown, shown.trace.span)
    assert not sources(whole, "ran")
    part = drawn(shown, VIEW)
    (shares,) = sources(part, "ran")
    outside = [x < 0 or x >= 100 for x in shares.data["x"]]
    assert all(outside)
    assert len(outside) > 0
    (wakes,) = sources(part, "reach")
    assert [float(x) for x in wakes.data["x"]] == [10.0]


def test_lanes_and_axes_have_names(shown: Scene) -> None:
    plot = drawn(shown, VIEW)
    names = {at: text.text for at, text in plot.yaxis[0].major_label_overrides.items()}
    assert names == {1: "fio", 0: "kworker"}
    assert plot.title.text.text == "a"
    assert "µs" in str(plot.xaxis[0].axis_label)
    above = drawn(shown, VIEW, last=False)
    assert above.xaxis[0].axis_label is None
    assert plot.height - above.height == 20


def test_the_pointer_tells_causes_only_of_what_is_awake(shown: Scene) -> None:
    tools: list[Any] = [t for t in drawn(shown, VIEW).tools if isinstance(t, HoverTool)]
    tips = [dict(tool.tooltips) for tool in tools]
    by_state = {tip["state"]: tip for tip in tips if "state" in tip}
    assert set(by_state) == {
        *("sleeps", "runs", "waits for a CPU", "preempted, waits for a CPU"),
    }
    assert "cause" not in by_state["sleeps"]
    assert by_state["runs"]["kernel work"] == "@work"
    assert sum("wake-up of" in tip for tip in tips) == 1


def test_a_name_of_control_characters_is_printable(shown: Scene, tmp_path: Path) -> None:
    evil = "\x1b[31mfio\x07"
    plot = lane_plot(evil, shown, VIEW, VIEW, time_range({evil: shown}, {evil: VIEW}), last=True)
    assert plot.title.text.text.isprintable()


def test_the_key_has_an_entry_for_each_mark() -> None:
    assert key().count("<span>") == key().count("</span>") == 5
