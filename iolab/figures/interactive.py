# SPDX-License-Identifier: MIT
"""A timeline of traces that zooms, pans and explains what lies under the pointer."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import seaborn as sns
from bokeh.layouts import gridplot
from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    GlyphRenderer,
    HoverTool,
    NumeralTickFormatter,
    PlainText,
    Range1d,
    Title,
)
from bokeh.plotting import figure

from iolab import foreign
from iolab.errors import UserError
from iolab.figures.lanes import (
    WAITING,
    Scene,
    embedded_span,
    first_view,
    scene,
    shares,
    work_names,
)
from iolab.figures.standalone import document, frame, script_hashes
from iolab.files import atomic_write
from iolab.shown import terminal
from iolab.trace import Trace
from iolab.trace.export.perfetto import perfetto_file

__all__ = ["Timeline", "perfetto_link", "script_hashes", "timeline"]

# The length of the first view, unless another one is asked for.
_VIEW_NS: Final = 1_000_000
# The most bars and wake-ups of a timeline that are embedded one by one: about 100 bytes each.
_MOST: Final = 12_000
# Outside of them the whole trace has this many bins for each lane.
_BINS: Final = 600
_LANE_PX: Final = 36
_FRAME_PX: Final = 74
# What the state of a task is called under the pointer, and how tall its bar is; the last is on top.
_STATES: Final = {
    "sleeping": ("sleeps", 0.05),
    "blocked": ("sleeps, uninterruptible", 0.05),
    "stopped": ("stopped", 0.05),
    "dead": ("dead", 0.05),
    "other": ("idle", 0.05),
    "runnable": ("woken, waits for a CPU", 0.34),
    "preempted": ("preempted, waits for a CPU", 0.34),
    "running": ("runs", 0.6),
}
_AWAKE: Final = ("running", *WAITING)
_GREY: Final = "#8a8f98"
_NOTHING: Final = "–"
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


@dataclass(frozen=True, eq=False)
class Timeline:
    """A timeline, which a notebook displays and `save` writes as a page.

    Parameters
    ----------
    inside : str
        The HTML document of the timeline itself.
    title : str
        What it is called.
    caption : str
        What it shows, and which part of the traces it holds.
    height_px : int
        Its height.
    links : str
        HTML of the links to the same windows for Perfetto.
    """

    inside: str
    title: str
    caption: str
    height_px: int
    links: str

    def __repr__(self) -> str:
        return f"<Timeline {self.title}: {self.caption}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        shown = frame(self.inside, height_px=self.height_px, title=self.title)
        return {
            "text/plain": repr(self),
            "text/html": (
                f'<div class="tex2jax_ignore mathjax_ignore">{shown}\n'
                f"{_below(self.caption, self.links)}</div>"
            ),
        }

    def save(self, path: str | Path) -> Path:
        """Write the timeline as one HTML page that asks for no other file.

        Parameters
        ----------
        path : str or Path
            The page.

        Returns
        -------
        Path
            The page.

        Raises
        ------
        IolabError
            If it cannot be written.
        """
        head = f'<main class="page"><h1>{html.escape(self.title)}</h1>'
        page = self.inside.replace("<main>", head, 1)
        page = page.replace("</main>", f"{_below(self.caption, self.links)}</main>", 1)
        atomic_write(Path(path), page)
        return Path(path)


def timeline(
    traces: Trace | Mapping[str, Trace],
    lanes: Mapping[str, str] | None = None,
    *,
    window: int | tuple[int, int] | Mapping[str, tuple[int, int]] | None = None,
    title: str = "",
) -> Timeline:
    """Show who ran, who waited, who slept and who woke whom; zoom with the wheel, drag to pan.

    Parameters
    ----------
    traces : Trace or mapping of str to Trace
        One trace, or several by their label, the control first: one above the other, with one time
        axis.
    lanes : mapping of str to str, optional
        Patterns for the comm of tasks, by the name of their lane, from top to bottom, such as
        ``{"fio": "fio", "kworker": "kworker/.*"}``; by default the CPUs with most switches and the
        tasks that run longest.
    window : int, (int, int) or mapping of str to (int, int), optional
        The first view: its length in ns, by default a millisecond, which is put where most goes
        wrong (most preemptions, else the longest wait for a CPU); or its begin and end in ns of
        the trace, by the traces' label if there are several.
    title : str, optional
        What it is called.

    Returns
    -------
    Timeline
        It holds each interval around the first view, as many as a page can carry, and the shares
        of running and waiting in the rest of the trace; its caption says which part is which.

    Raises
    ------
    UserError
        If the window is outside of its trace, a pattern is wrong, or no task fits one.
    MissingEventError
        If a trace lacks sched_switch or sched_waking.

    Examples
    --------
    >>> from iolab.paths import REFERENCE
    >>> from iolab.trace import read
    >>> trace = read(REFERENCE / "traces" / "small_v7_mono.dat")
    >>> shown = timeline(trace, {"fio": "fio", "kworker": "kworker/.*"}, title="fio")
    >>> shown.title
    'fio'
    """
    given = {"": traces} if isinstance(traces, Trace) else dict(traces)
    if not given:
        raise UserError("there is no timeline without a trace")
    scenes = {label: scene(trace, lanes) for label, trace in given.items()}
    views = {label: _view(label, shown, window) for label, shown in scenes.items()}
    exact = {
        label: embedded_span(shown, views[label], _MOST // len(scenes))
        for label, shown in scenes.items()
    }
    x_range = _time_range(scenes, views)
    panels = [
        _panel(label, shown, views[label], exact[label], x_range, last=label == list(scenes)[-1])
        for label, shown in scenes.items()
    ]
    grid = gridplot([[panel] for panel in panels], merge_tools=True, sizing_mode="stretch_width")  # type: ignore[call-overload]
    name = terminal(title) or "Timeline of " + ", ".join(
        terminal(label or trace.path.name) for label, trace in given.items()
    )
    inside = document(grid, title=name, above=f"<main>{_key()}", below="</main>")
    height = sum(panel.height or 0 for panel in panels) + 100
    links = " ".join(
        perfetto_link(trace, views[label], label=label) for label, trace in given.items()
    )
    return Timeline(inside, name, _caption(scenes, views, exact), height, links)


def perfetto_link(trace: Trace, window: tuple[int, int], *, label: str = "") -> str:
    """Return an HTML link that holds a window of a trace as a file for ui.perfetto.dev.

    Parameters
    ----------
    trace : Trace
        As for `iolab.trace.export.perfetto.write_perfetto`.
    window : (int, int)
        Begin and end in ns of the trace.
    label : str, optional
        What the trace is called.
    """
    made = base64.b64encode(perfetto_file(trace, between=window)).decode()
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", label or trace.path.stem)[: foreign.NAME]
    return (
        f'<a download="{name}.perfetto-trace" href="data:application/octet-stream;base64,{made}">'
        f"{html.escape(terminal(label or trace.path.name))}</a>"
    )


def _view(
    label: str, shown: Scene, window: int | tuple[int, int] | Mapping[str, tuple[int, int]] | None
) -> tuple[int, int]:
    if window is None or isinstance(window, int):
        length = _VIEW_NS if window is None else window
        if length <= 0:
            raise UserError(f"a window of {length} ns: its length must be positive")
        return first_view(shown, length)
    if isinstance(window, tuple):
        begin, end = window
    elif label in window:
        begin, end = window[label]
    else:
        raise UserError(f"window= names no begin and end for the trace {label!r}")
    first, last = shown.trace.span
    if not (begin < end and begin < last and end > first):
        raise UserError(
            f"the window from {begin} to {end} ns is outside of {shown.trace.path}, which lasts "
            f"from {first} to {last} ns"
        )
    return int(begin), int(end)


def _time_range(scenes: Mapping[str, Scene], views: Mapping[str, tuple[int, int]]) -> Range1d:
    """Return the time axis of all traces in µs, 0 where each first view begins."""
    spans = [
        (shown.trace.span[0] - views[label][0], shown.trace.span[1] - views[label][0])
        for label, shown in scenes.items()
    ]
    end = max(end - begin for begin, end in views.values())
    bounds = (min(0, *(s[0] for s in spans)) / 1e3, max(end, *(s[1] for s in spans)) / 1e3)
    return Range1d(0, end / 1e3, bounds=bounds, min_interval=0.05)


def _panel(
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
        y_range=Range1d(-0.6, count - 0.4),
        tools="xpan,xwheel_zoom,xbox_zoom,xzoom_in,xzoom_out,reset,save",
        active_scroll="xwheel_zoom",
        toolbar_location="above",
    )
    plot.toolbar.logo = None
    for tool in plot.tools:
        if hasattr(tool, "maintain_focus"):
            # Zooming out goes on to the whole trace when one end of it is reached.
            tool.maintain_focus = False
    if label:
        # Any other text may hold a formula, which Bokeh would set.
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
        plot.xaxis.axis_label = "time since the begin of the first view (µs)"
    _draw_shares(plot, shown, view[0], exact)
    _draw_bars(plot, shown, view[0], exact)
    _draw_wakes(plot, shown, view[0], exact)
    return plot


def _draw_shares(plot: Any, shown: Scene, zero: int, exact: tuple[int, int]) -> None:
    binned = shares(shown, exact, _BINS)
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
    layers = pd.CategoricalDtype(list(_STATES))
    bars = bars.assign(work=work_names(shown.trace, bars), state=bars["state"].astype(layers))
    colours = sns.color_palette("colorblind").as_hex()
    worked = bool((bars["work"] != "").any())
    drawn: dict[str, list[GlyphRenderer]] = {}
    # Who sleeps lies under who waits, and that under who runs.
    for (state, lane, group), part in bars.groupby(["state", "lane", "group"], observed=True):
        tall = _STATES[state][1]
        colour = _GREY if group < 0 or tall < 0.1 else colours[group % len(colours)]
        style: dict[str, Any] = {"fill_color": colour, "line_color": None}
        if state == "runnable":
            style["fill_alpha"] = 0.35
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


def _hover(plot: Any, renderers: list[GlyphRenderer], rows: list[tuple[str, str]]) -> None:
    tool = HoverTool(
        renderers=renderers, tooltips=rows, limit=3, visible=False, point_policy="follow_mouse"
    )
    plot.add_tools(tool)


def _printable(comms: Iterable[Any]) -> list[str]:
    return [foreign.line(str(comm), foreign.NAME) for comm in comms]


def _microseconds(times: pd.Series) -> list[str]:
    return [_NOTHING if pd.isna(t) else f"{t / 1e3:,.3f} µs" for t in times.tolist()]


def _key() -> str:
    keys = [
        f'<span><i style="display: inline-block; width: 18px; {style}"></i>{words}</span>'
        for words, style in _KEY
    ]
    return f'<p class="key">{"".join(keys)}</p>'


def _below(caption: str, links: str) -> str:
    return (
        f"<p>{html.escape(caption)}</p>\n"
        f"<p>The first view as a file for ui.perfetto.dev: {links}.</p>"
    )


def _caption(
    scenes: Mapping[str, Scene],
    views: Mapping[str, tuple[int, int]],
    exact: Mapping[str, tuple[int, int]],
) -> str:
    """Say what is shown, and which part of each trace is embedded."""
    parts = [
        "Who ran, who waited, who slept and who woke whom. The wheel zooms, dragging pans, and "
        "zooming out ends at the whole trace. 0 is where the first view begins."
    ]
    for label, shown in scenes.items():
        name = terminal(label) or "The trace"
        first, last = shown.trace.span
        begin, end = exact[label]
        whole = (last - first) / 1e6
        if (begin, end) == (first, last):
            parts.append(f"{name}: each interval of its {whole:,.1f} ms is here.")
        else:
            zero = views[label][0]
            parts.append(
                f"{name}: each interval from {(begin - zero) / 1e6:,.2f} to "
                f"{(end - zero) / 1e6:,.2f} ms is here; grey bars are the shares of running (full) "
                f"and waiting (pale) in each of {_BINS} parts of the whole {whole:,.1f} ms."
            )
        if len(shown.trace.losses):
            parts.append(f"{name} lost events while it was recorded.")
    return " ".join(parts)
