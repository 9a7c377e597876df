# SPDX-License-Identifier: MIT
"""Figures of traces: who ran, who waited, who migrated, which tasks alternated.

A *lane* is the tasks whose comm matches a regular expression: ``{"kworker": "kworker/.*"}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator

from iolab import measure
from iolab.figures.lanes import WAITING, any_of, densest, fits
from iolab.figures.style import (
    DOUBLE_IN,
    LINES,
    Figure,
    curve_styles,
    grid_of,
    label_empty_panel,
    legend,
    log_time_axis,
    outer_labels,
    share_axis,
    styled,
)
from iolab_base.errors import UserError
from tracedat import Trace

Times = npt.NDArray[np.int64]


def busiest(trace: Trace, length_ns: int, lanes: Mapping[str, str]) -> int:
    """Return the start (ns) of the window with the most switches into the last lane that runs.

    A kernel may complete I/O without a kworker; then the lane above counts. The window starts a
    twentieth of its length before its first switch.
    """
    first, last = trace.span
    if last - first < length_ns:
        raise UserError(f"{trace.path} is shorter than {length_ns / 1e6:g} ms")
    trace.require("timeline", "sched_switch")
    switch = trace.frame("sched_switch")
    at = switch["timestamp_ns"].to_numpy()
    # Whole windows in the middle of the trace: states at its edges are only partly known.
    margin = min(length_ns, (last - first - length_ns) // 2)
    whole = (at >= first + margin) & (at <= last - length_ns - margin // 2)
    for pattern in reversed(list(lanes.values())):
        times = at[whole & fits(switch["next_comm"], pattern)]
        if times.size:
            return densest(times, length_ns) - length_ns // 20
    raise UserError(f"no task called {any_of(lanes)} runs in {trace.path}")


def _refuse_nothing(*given: Mapping[str, object]) -> None:
    if not all(given):
        raise UserError("there is nothing to draw without a trace and a lane")


@styled
def timeline(
    traces: Mapping[str, Trace],
    lanes: Mapping[str, str],
    *,
    length_ns: int = 1_000_000,
    starts_ns: Mapping[str, int] | None = None,
) -> Figure:
    """Draw who ran, who waited and who woke whom in a window of each trace, one above the other.

    A full bar is a task on a CPU, a pale one a task that waits for a CPU after a wake-up, a hatched
    one a task that was preempted while runnable. An arrow goes from the waker to the task it wakes.
    Each window begins at its label's `starts_ns`, in ns of its trace; by default at `busiest`.
    """
    _refuse_nothing(traces, lanes)
    if length_ns <= 0:
        raise UserError(f"the length of the window must be positive, not {length_ns} ns")
    if starts_ns is not None and (missing := traces.keys() - starts_ns):
        raise UserError(f"starts_ns lacks {', '.join(sorted(missing))}")
    figure = Figure(figsize=(DOUBLE_IN, 0.75 + 1.05 * len(traces)), layout="constrained")
    panels = figure.subplots(len(traces), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, trace) in zip(panels, traces.items(), strict=True):
        start = busiest(trace, length_ns, lanes) if starts_ns is None else starts_ns[label]
        window = (start, start + length_ns)
        _draw_lanes(axes, trace, window, lanes)
        _draw_wakeups(axes, trace, window, lanes)
        axes.set_title(label, loc="left")
        axes.set_yticks(range(len(lanes)), list(lanes)[::-1])
        axes.set_ylim(-0.6, len(lanes) - 0.4)
        axes.set_xlim(0, length_ns / 1e3)
        axes.grid(visible=False)
        axes.tick_params(axis="y", length=0)
    panels[-1].set_xlabel("time in the window (µs)")
    grey: dict[str, Any] = {"linewidth": 0.4, "edgecolor": "0.4"}
    handles: list[Artist] = [
        Patch(facecolor="0.45", label="on the CPU", **grey),
        Patch(facecolor="0.85", label="woken, waits for the CPU", **grey),
        Patch(facecolor="0.85", hatch="/////", label="preempted while runnable", **grey),
        Line2D([], [], color="black", lw=0.8, marker="v", ms=3, label="wakes"),
    ]
    legend(figure, handles)
    return figure


def _draw_lanes(
    axes: Axes, trace: Trace, window: tuple[int, int], lanes: Mapping[str, str]
) -> None:
    start, end = window
    colours = dict(zip(lanes, sns.color_palette("colorblind"), strict=False))
    intervals = measure.intervals(trace)
    intervals = intervals[(intervals["end_ns"] > start) & (intervals["start_ns"] < end)]
    for height, (lane, pattern) in enumerate(reversed(list(lanes.items()))):
        of_lane = intervals[fits(intervals["comm"], pattern)]
        styles = {
            "running": {"facecolor": colours[lane]},
            "runnable": {"facecolor": colours[lane], "alpha": 0.3},
            "preempted": {"facecolor": "white", "hatch": "/////", "edgecolor": colours[lane]},
        }
        for state, fill in styles.items():
            bars = of_lane[of_lane["state"] == state]
            left = bars["start_ns"].clip(lower=start).to_numpy()
            width = bars["end_ns"].clip(upper=end).to_numpy() - left
            spans = list(zip((left - start) / 1e3, width / 1e3, strict=True))
            tall = 0.6 if state == "running" else 0.36
            style: dict[str, Any] = {"linewidth": 0, **fill}
            axes.broken_barh(spans, (height - tall / 2, tall), **style)


def _draw_wakeups(
    axes: Axes, trace: Trace, window: tuple[int, int], lanes: Mapping[str, str]
) -> None:
    start, end = window
    waits = measure.waits_after_wakes(trace)
    waits = waits[(waits["woken_ns"] >= start) & (waits["woken_ns"] < end)]
    heights = {lane: height for height, lane in enumerate(reversed(list(lanes)))}
    waits = waits[waits["waker_comm"].notna() & ~waits["interrupt"]]
    for waker, by in lanes.items():
        for wakee, of in lanes.items():
            if waker == wakee:
                continue
            chosen = waits[fits(waits["comm"], of) & fits(waits["waker_comm"], by)]
            sign = 1 if heights[wakee] > heights[waker] else -1
            x = (chosen["woken_ns"].to_numpy() - start) / 1e3
            tail = np.full(x.size, heights[waker] + 0.3 * sign)
            reach = np.full(x.size, heights[wakee] - 0.3 * sign) - tail
            arrows: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1}
            arrows |= {"headwidth": 5, "headlength": 6, "headaxislength": 5, "zorder": 4}
            axes.quiver(x, tail, np.zeros(x.size), reach, width=0.0011, **arrows)


def _waits_of_each(traces: Mapping[str, Trace], pattern: str) -> dict[str, Times]:
    """Return every wait (ns) for a CPU of the matching tasks in each trace; {} if none has one."""
    found = {}
    for label, trace in traces.items():
        intervals = measure.intervals(trace)
        waits = intervals[fits(intervals["comm"], pattern) & intervals["state"].isin(WAITING)]
        found[label] = (waits["end_ns"] - waits["start_ns"]).to_numpy()
    return found if any(waits.size for waits in found.values()) else {}


def _draw_ecdf(axes: Axes, times: Times, per: float, style: dict[str, Any]) -> None:
    """Draw the share of times that are over within a time, in units of `per` ns."""
    share = np.arange(1, times.size + 1) / max(1, times.size)
    axes.step(np.sort(times) / per, share, where="post", **style)
    share_axis(axes)


@styled
def waits_ecdf(traces: Mapping[str, Trace], lanes: Mapping[str, str]) -> Figure:
    """Draw the share of waits for a CPU that ended within a given time, a panel for each lane.

    A wait begins with a wake-up or a preemption, and ends on a CPU.
    """

    def draw(axes: Axes, waits: Times, trace: Trace, style: dict[str, Any]) -> None:
        _draw_ecdf(axes, waits, 1e3, style)

    labels = ("wait for the CPU (µs, log scale)", "waits that ended")
    return _figure_of_waits(traces, lanes, draw, labels)


@styled
def waits_histogram(traces: Mapping[str, Trace], lanes: Mapping[str, str]) -> Figure:
    """Draw how many waits for a CPU of each power of two there were per 1000 completed I/Os.

    Both axes are logarithmic; there is a panel for each lane.
    """
    edges = 2.0 ** np.arange(8, 31)

    def draw(axes: Axes, waits: Times, trace: Trace, style: dict[str, Any]) -> None:
        ios = max(1, trace.events.get("block_rq_complete", 0))
        count, _ = np.histogram(waits, edges)
        axes.stairs(np.where(count, 1e3 * count / ios, np.nan), edges / 1e3, **style)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))

    labels = ("wait for the CPU (µs, bins of a power of two)", "waits per 1000 I/Os")
    return _figure_of_waits(traces, lanes, draw, labels)


def _figure_of_waits(
    traces: Mapping[str, Trace],
    lanes: Mapping[str, str],
    draw: Callable[[Axes, Times, Trace, dict[str, Any]], None],
    labels: tuple[str, str],
) -> Figure:
    _refuse_nothing(traces, lanes)
    figure, grid = grid_of(len(lanes), 1, height_in=1.8)
    styles = dict(zip(traces, curve_styles(len(traces) - 1), strict=True))
    for axes, (lane, pattern) in zip(grid.flat, lanes.items(), strict=True):
        axes.set_title(lane)
        if not (found := _waits_of_each(traces, pattern)):
            label_empty_panel(axes, "no waits")
            continue
        for label, waits in found.items():
            draw(axes, waits, traces[label], styles[label])
        log_time_axis(axes, LogLocator(numticks=12))
    outer_labels(grid, *labels)
    legend(figure, [Line2D([], [], label=label, **styles[label]) for label in traces])
    return figure


@styled
def migration_intervals(traces: Mapping[str, Trace], *, task: str = "fio") -> Figure:
    """Draw how long a task, named by its comm, stayed on a CPU before it moved, by what moved it.

    There is a panel for each trace. A curve is the share of a cause's moves that came within a
    given time after the last move.
    """
    _refuse_nothing(traces)
    figure, grid = grid_of(len(traces), 1, height_in=1.8)
    colours = sns.color_palette("colorblind", len(measure.CAUSES))
    styles = {
        cause: {"color": colour, "linestyle": line}
        for cause, colour, line in zip(measure.CAUSES, colours, LINES, strict=False)
    }
    for axes, (label, trace) in zip(grid.flat, traces.items(), strict=True):
        moved = measure.migration_causes(trace)
        moved = moved[moved["comm"] == task].dropna(subset=["interval_ns"])
        axes.set_title(f"{label}: {len(moved)} moves")
        if moved.empty:
            label_empty_panel(axes, "never moved")
            continue
        for cause, style in styles.items():
            times = moved.loc[moved["cause"] == cause, "interval_ns"].to_numpy("int64")
            _draw_ecdf(axes, times, 1e6, style)
        log_time_axis(axes, LogLocator(numticks=12))
    outer_labels(grid, "time since the last move (ms, log scale)", "moves of that cause")
    legend(figure, [Line2D([], [], label=cause, **style) for cause, style in styles.items()])
    return figure


@styled
def turns_by_clump(traces: Mapping[str, Trace], one: str, other: str) -> Figure:
    """Draw the switches between two tasks, a point for each clump of completions.

    `one` and `other` are regular expressions for the whole names of the tasks. A panel says so
    where no such `other` runs: a kernel may complete I/O without a kworker.
    """
    _refuse_nothing(traces)
    figure, grid = grid_of(len(traces), 1, height_in=1.8)
    colour = sns.color_palette("colorblind")[0]
    most = [1.0]
    for axes, (label, trace) in zip(grid.flat, traces.items(), strict=False):
        axes.set_title(label)
        trace.require("turns", "sched_switch")
        tasks = trace.frame("sched_switch")["next_comm"].cat.categories
        if not tasks.str.fullmatch(other).any():
            label_empty_panel(axes, f"no task {other} runs")
            continue
        clumps = measure.turns_by_clump(trace, one, other)
        at_ms = (clumps["start_ns"] - clumps["start_ns"].min()) / 1e6
        axes.plot(at_ms, clumps["switches"], "o", markersize=3, color=colour, alpha=0.7)
        most.append(clumps["switches"].max())
    top = np.nanmax(most)
    for axes in grid.flat:
        axes.set_ylim(-0.05 * top, 1.1 * top)
    outer_labels(grid, "time in the trace (ms)", "switches in a clump")
    return figure
