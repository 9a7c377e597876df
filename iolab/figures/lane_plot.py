# SPDX-License-Identifier: MIT
"""The lanes of one trace as a Bokeh plot: bars, wake-ups and their tooltips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import seaborn as sns
from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    PlainText,
    Range1d,
)
from bokeh.models.annotations import Title
from bokeh.plotting import figure

from iolab.figures.lanes import WAITING, Scene, shares, work_names
from iolab.shown import terminal
from iolab_base import foreign

# Bins of a whole trace, used where its intervals are not embedded one by one.
BINS: Final = 600
_LANE_PX: Final = 36
_FRAME_PX: Final = 74
# Name of a task's state in a tooltip, and height of its bar; the last is on top.
_STATES: Final = {
    "sleeping": ("sleeps", 0.05),
    "blocked": ("sleeps, uninterruptible", 0.05),
    "stopped": ("stopped", 0.05),
    "dead": ("dead", 0.05),
    "other": ("idle", 0.05),
    "runnable": ("waits for a CPU", 0.34),
    "preempted": ("preempted, waits for a CPU", 0.34),
    "running": ("runs", 0.6),
}
_AWAKE: Final = ("running", *WAITING)
_GREY: Final = "#8a8f98"
_NOTHING: Final = "-"
_KEY: Final = (
    ("runs on a CPU", "height: 12px; background: #0173b2"),
    ("woken, waits for a CPU", "height: 8px; background: #0173b2; opacity: 0.35"),
    (
        "preempted, waits for a CPU",
        "height: 8px; box-sizing: border-box; border: 1px solid #0173b2; background: "
        "repeating-linear-gradient(135deg, #0173b2 0 1px, transparent 1px 4px)",
    ),
    ("sleeps", f"height: 2px; background: {_GREY}"),
    ("wakes", "width: 0; height: 14px; border-left: 2px solid currentColor"),
)


def time_range(scenes: Mapping[str, Scene], views: Mapping[str, tuple[int, int]]) -> Range1d:
    """Return the time axis of all traces in µs, 0 where each first view begins."""
    spans = [
        (shown.trace.span[0] - views[label][0], shown.trace.span[1] - views[label][0])
        for label, shown in scenes.items()
    ]
    end = max(end - begin for begin, end in views.values())
    bounds = (min(0, *(s[0] for s in spans)) / 1e3, max(end, *(s[1] for s in spans)) / 1e3)
    return Range1d(start=0, end=end / 1e3, bounds=bounds, min_interval=0.05)


def lane_plot(
    label: str,
    shown: Scene,
    view: tuple[int, int],
    exact: tuple[int, int],
    x_range: Range1d,
    *,
    last: bool,
) -> Any:
    """Return the figure of one trace."""
    count = len(shown.names)
    plot = figure(
        height=_LANE_PX * count + _FRAME_PX + 20 * last,
        sizing_mode="stretch_width",
        min_width=260,
        min_border_right=16,
        x_range=x_range,
        y_range=Range1d(start=-0.6, end=count - 0.4),
        tools="xpan,xwheel_zoom,xbox_zoom,xzoom_in,xzoom_out,reset,save",
        active_scroll="xwheel_zoom",
        toolbar_location="above",
    )
    plot.toolbar.logo = None
    for tool in plot.tools:
        if hasattr(tool, "maintain_focus"):
            # Zooming out continues to the whole trace when one end of it is reached.
            tool.maintain_focus = False
    if label:
        # Bokeh would typeset a formula in any other text.
        plot.title = Title(text=PlainText(text=terminal(label)))
    heights = range(count - 1, -1, -1)
    plot.yaxis.ticker = FixedTicker(ticks=list(range(count)))
    plot.yaxis.major_label_overrides = {
        height: PlainText(text=name) for height, name in zip(heights, shown.names, strict=True)
    }
    plot.ygrid.visible = False
    plot.yaxis.major_tick_line_color = None
    plot.xaxis.minor_tick_line_color = None
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    if last:
        plot.xaxis.axis_label = "time since the start of the first view (µs)"
    _draw_shares(plot, shown, view[0], exact)
    _draw_bars(plot, shown, view[0], exact)
    _draw_wakes(plot, shown, view[0], exact)
    return plot


def _draw_shares(plot: Any, shown: Scene, zero: int, exact: tuple[int, int]) -> None:
    binned = shares(shown, exact, BINS)
    if binned.empty:
        return
    base = len(shown.names) - 1.3 - binned["lane"].to_numpy()
    ran = 0.6 * binned["running"].clip(upper=1).to_numpy()
    source = ColumnDataSource(
        {
            "x": (binned["start_ns"].to_numpy() - zero) / 1e3,
            "width": (binned["end_ns"] - binned["start_ns"]).to_numpy() / 1e3,
            "y": base.astype(np.float32),
            "ran": ran.astype(np.float32),
            "above": (base + ran).astype(np.float32),
            "waited": (0.6 * binned["waiting"].to_numpy()).clip(max=0.6 - ran).astype(np.float32),
            "running": binned["running"].to_numpy(np.float32),
            "waiting": binned["waiting"].to_numpy(np.float32),
        }
    )
    style = {"fill_color": _GREY, "line_color": None, "source": source}
    renderers = [
        plot.block("x", "y", "width", "ran", **style),
        plot.block("x", "above", "width", "waited", fill_alpha=0.35, **style),
    ]
    rows = [
        ("part of", "the trace, not one interval"),
        ("running", "@running{0.0%}"),
        ("waiting for a CPU", "@waiting{0.0%}"),
        ("start", "@x{0,0.000} µs"),
        ("length", "@width{0,0.000} µs"),
    ]
    _hover(plot, renderers, rows)


def _draw_bars(plot: Any, shown: Scene, zero: int, exact: tuple[int, int]) -> None:
    bars = shown.bars
    bars = bars[(bars["end_ns"] > exact[0]) & (bars["start_ns"] < exact[1])]
    layers = bars["state"].cat.reorder_categories(list(_STATES))
    bars = bars.assign(work=work_names(shown.trace, bars), state=layers)
    colours = sns.color_palette("colorblind").as_hex()
    worked = bool((bars["work"] != "").any())
    drawn: dict[str, list[Any]] = {}
    # Sleeping is drawn below waiting, and waiting below running.
    for _, part in bars.groupby(["state", "lane", "group"], observed=True):
        of_all = part.iloc[0]
        state, lane, group = str(of_all["state"]), int(of_all["lane"]), int(of_all["group"])
        tall = _STATES[state][1]
        colour = _GREY if group < 0 or tall < 0.1 else colours[group % len(colours)]
        style: dict[str, Any] = {"fill_color": colour, "line_color": None}
        if state == "runnable":
            style["fill_alpha"] = 0.4
        elif state == "preempted":
            style |= {"fill_color": None, "line_color": colour, "line_width": 0.7}
            style |= {"hatch_pattern": "right_diagonal_line", "hatch_color": colour}
            style |= {"hatch_scale": 6, "hatch_weight": 0.8}
        renderer = plot.block(
            "x",
            len(shown.names) - 1 - lane - tall / 2,
            "width",
            tall,
            source=_source(part, zero, worked=worked),
            **style,
        )
        drawn.setdefault(state, []).append(renderer)
    for state, renderers in drawn.items():
        _hover(plot, renderers, _rows(state, worked=worked))


def _source(bars: pd.DataFrame, zero: int, *, worked: bool) -> ColumnDataSource:
    columns: dict[str, Any] = {
        "x": (bars["start_ns"].to_numpy() - zero) / 1e3,
        "width": (bars["end_ns"] - bars["start_ns"]).to_numpy() / 1e3,
        "task": _printable(bars["comm"]),
        "pid": bars["pid"].to_numpy(np.int32),
    }
    if bars["state"].iloc[0] in _AWAKE:
        columns["cpu"] = bars["cpu"].to_numpy(np.int16)
        columns["cause"] = [cause or _NOTHING for cause in bars["cause"]]
        columns["waited"] = _microseconds(bars["wait_ns"])
        if worked:
            columns["work"] = [name or _NOTHING for name in bars["work"]]
    return ColumnDataSource(columns)


def _rows(state: str, *, worked: bool) -> list[tuple[str, str]]:
    rows = [
        ("task", "@task"),
        ("pid", "@pid{0}"),
        ("state", _STATES[state][0]),
        ("start", "@x{0,0.000} µs"),
        ("length", "@width{0,0.000} µs"),
    ]
    if state in _AWAKE:
        rows += [("cause", "@cause"), ("waited", "@waited"), ("CPU", "@cpu")]
    if state in _AWAKE and worked:
        rows += [("kernel work", "@work")]
    return rows


def _draw_wakes(plot: Any, shown: Scene, zero: int, exact: tuple[int, int]) -> None:
    wakes = shown.wakes
    wakes = wakes[(wakes["woken_ns"] >= exact[0]) & (wakes["woken_ns"] < exact[1])]
    top = len(shown.names) - 1
    # A waker further down the page is drawn below the task that it wakes.
    upward = (wakes["by_lane"] > wakes["lane"]).to_numpy()
    renderers = []
    for sign, marker, part in (
        (1, "inverted_triangle", wakes[~upward]),
        (-1, "triangle", wakes[upward]),
    ):
        if part.empty:
            continue
        reach = (top - part["lane"] + 0.34 * sign).to_numpy(np.float32)
        known = (part["by_lane"] >= 0) & (part["by_lane"] != part["lane"])
        tail = (top - part["by_lane"] - 0.3 * sign).to_numpy(np.float32)
        source = ColumnDataSource(
            {
                "x": (part["woken_ns"].to_numpy() - zero) / 1e3,
                "reach": reach,
                "tail": np.where(known, tail, reach + np.float32(0.16 * sign)),
                "task": _printable(part["comm"]),
                "pid": part["pid"].to_numpy(np.int32),
                "cause": part["cause"].tolist(),
                "waited": _microseconds(part["wait_ns"]),
            }
        )
        plot.segment("x", "tail", "x", "reach", source=source, line_color=_GREY, line_width=1)
        style = {"size": 6, "marker": marker, "fill_color": _GREY, "line_color": None}
        renderers.append(plot.scatter("x", "reach", source=source, **style))
    rows = [
        ("wake-up of", "@task"),
        ("pid", "@pid{0}"),
        ("at", "@x{0,0.000} µs"),
        ("cause", "@cause"),
        ("then waits", "@waited"),
    ]
    if renderers:
        _hover(plot, renderers, rows)


def _hover(plot: Any, renderers: list[Any], rows: list[tuple[str, str]]) -> None:
    tool = HoverTool(
        renderers=renderers,
        tooltips=rows,
        limit=3,
        visible=False,
        point_policy="follow_mouse",
        # On a narrow screen there is no room beside the pointer.
        attachment="vertical",
    )
    plot.add_tools(tool)


def _printable(comms: Iterable[Any]) -> list[str]:
    return [foreign.line(str(comm), foreign.NAME) for comm in comms]


def _microseconds(times: pd.Series) -> list[str]:
    return [_NOTHING if pd.isna(t) else f"{t / 1e3:,.3f} µs" for t in times.tolist()]


def key() -> str:
    """Return the key to the bars and marks of a plot as HTML."""
    keys = [
        f'<span><i style="display: inline-block; width: 18px; {style}"></i>{words}</span>'
        for words, style in _KEY
    ]
    return f'<p class="key">{"".join(keys)}</p>'
