# SPDX-License-Identifier: MIT
"""A timeline of traces that zooms, pans and explains what is under the pointer."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from bokeh.embed import json_item
from bokeh.layouts import gridplot
from bokeh.models.ui import UIElement
from bokeh.resources import Resources

from iolab.figures.lane_plot import BINS, key, lane_plot, time_range
from iolab.figures.lanes import Scene, embedded_span, first_view, scene
from iolab.measure import wake_event
from iolab.paths import TEMPLATES
from iolab.shown import CAPTION, NO_MATH, SCRIPTS, rendered, terminal
from iolab_base import foreign
from iolab_base.errors import UserError
from iolab_base.files import write_output
from iolab_base.names import check_types
from tracedat import RequestError, Trace, perfetto_bytes

# Default length of the first view.
_VIEW_NS: Final = 1_000_000
# Most bars and wake-ups that a timeline embeds one by one: less than 100 bytes each.
_MOST: Final = 24_000

# A tooltip would be cut off at the end of a shorter frame.
_LEAST_PX: Final = 360


@dataclass(frozen=True, eq=False)
class Timeline:
    """A timeline, which a notebook displays and `save` writes as a page.

    ``inside`` is the HTML document of the timeline itself, ``links`` the HTML of the links to the
    same windows for Perfetto. ``caption`` says what it shows, and which part of the traces it
    contains.
    """

    inside: str
    title: str
    caption: str
    height_px: int
    links: str

    def __repr__(self) -> str:
        return f"<Timeline {self.title}: {self.caption}>"

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, list[str]]]:
        shown = _frame(self.inside, height_px=self.height_px, title=self.title)
        data = {
            "text/plain": repr(self),
            "text/html": (
                f'<div class="{NO_MATH}">{shown}\n{_below(self.caption, self.links)}</div>'
            ),
        }
        return data, {SCRIPTS: _script_hashes()}

    def save(self, path: str | Path) -> Path:
        """Write the timeline as one HTML page that asks for no other file, and return its path."""
        head = f'<main class="page"><h1>{html.escape(self.title)}</h1>'
        page = self.inside.replace("<main>", head, 1)
        page = page.replace("</main>", f"{_below(self.caption, self.links)}</main>", 1)
        write_output(Path(path), page)
        return Path(path)


def timeline(
    traces: Trace | Mapping[str, Trace],
    lanes: Mapping[str, str] | None = None,
    *,
    window: int | tuple[int, int] | Mapping[str, tuple[int, int]] | None = None,
    title: str = "",
    tasks: Mapping[str, Mapping[int, str]] | None = None,
) -> Timeline:
    """Show who ran, who waited, who slept and who woke whom; zoom with the wheel, drag to pan.

    Parameters
    ----------
    traces : Trace or mapping of str to Trace
        One trace, or several by their label, the control first: one above the other, with one time
        axis.
    lanes : mapping of str to str, optional
        Regular expressions for the names of tasks, by the name of their lane, from top to bottom,
        such as ``{"fio": "fio", "kworker": "kworker/.*"}``; by default the CPUs with most switches
        and the tasks that run longest.
    window : int, (int, int) or mapping of str to (int, int), optional
        The first view: its length in ns, by default a millisecond, which is put where most goes
        wrong (most preemptions, else the longest wait for a CPU); or its begin and end in ns of
        the trace, by the traces' label if there are several.
    title : str, optional
        The title of the page.
    tasks : mapping of str to mapping of int to str, optional
        Names of tasks by pid, by the traces' label, where their comms do not tell them apart.

    Returns
    -------
    Timeline
        It contains each interval around the first view, up to the limit of a page, and the shares
        of running and waiting in the rest of the trace; its caption says where each part begins and
        ends.

    Examples
    --------
    >>> from iolab.paths import REFERENCE
    >>> from tracedat import read
    >>> trace = read(REFERENCE / "traces" / "small_v7_mono.dat")
    >>> shown = timeline(trace, {"fio": "fio", "kworker": "kworker/.*"}, title="fio")
    >>> shown.title
    'fio'
    """
    check_types(timeline, {**locals(), "window": None})
    given = {"": traces} if isinstance(traces, Trace) else dict(traces)
    if not given:
        raise UserError("a timeline needs at least one trace")
    scenes = {
        label: scene(trace, lanes, (tasks or {}).get(label)) for label, trace in given.items()
    }
    views = {label: _view(label, shown, window) for label, shown in scenes.items()}
    exact = {
        label: embedded_span(shown, views[label], _MOST // len(scenes))
        for label, shown in scenes.items()
    }
    x_range = time_range(scenes, views)
    panels = [
        lane_plot(label, shown, views[label], exact[label], x_range, last=label == list(scenes)[-1])
        for label, shown in scenes.items()
    ]
    grid = gridplot([[panel] for panel in panels], merge_tools=True, sizing_mode="stretch_width")
    name = terminal(title) or "Timeline of " + ", ".join(
        terminal(label or trace.path.name) for label, trace in given.items()
    )
    inside = _document(grid, title=name, above=f"<main>{key()}", below="</main>")
    height = max(_LEAST_PX, sum(panel.height or 0 for panel in panels) + 100)
    links = ", ".join(
        # Of a view, what a page can embed.
        _perfetto_link(trace, (max(view[0], first), min(view[1], last + 1)), label)
        for (label, trace), view, (first, last) in zip(
            given.items(), views.values(), exact.values(), strict=True
        )
    )
    return Timeline(inside, name, _caption(scenes, views, exact), height, links)


def _perfetto_link(trace: Trace, window: tuple[int, int], label: str) -> str:
    """Return a link with a window (ns) for ui.perfetto.dev, or the name alone if that is empty."""
    try:
        made = base64.b64encode(perfetto_bytes(trace, between=window)).decode()
    except RequestError:
        return f"{html.escape(terminal(label or trace.path.name))} (no events in it)"
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", label or trace.path.stem)[: foreign.NAME]
    return (
        f'<a download="{name}.perfetto-trace" href="data:application/octet-stream;base64,{made}">'
        f"{html.escape(terminal(label or trace.path.name))}</a>"
    )


def _view(
    label: str, shown: Scene, window: int | tuple[int, int] | Mapping[str, tuple[int, int]] | None
) -> tuple[int, int]:
    if window is None or isinstance(window, int | np.integer):
        length = _VIEW_NS if window is None else int(window)
        if length <= 0:
            raise UserError(f"the length of the window must be positive, not {length} ns")
        return first_view(shown, length)
    if isinstance(window, Mapping):
        if label not in window:
            raise UserError(f"window= lacks a begin and an end for the trace {label!r}")
        window = window[label]
    try:
        begin, end = map(int, window)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"a window must be a length in ns, or a begin and an end, not {window!r:.60}"
        ) from error
    first, last = shown.trace.span
    if not (begin < end and begin < last and end > first):
        raise UserError(
            f"the window from {begin} to {end} ns lies outside {shown.trace.path}, which lasts "
            f"from {first} to {last} ns"
        )
    return begin, end


def _below(caption: str, links: str) -> str:
    return (
        f'<p class="{CAPTION}">{html.escape(caption)}</p>\n'
        f"<p>The first view as a file for ui.perfetto.dev: {links}.</p>"
    )


def _caption(
    scenes: Mapping[str, Scene],
    views: Mapping[str, tuple[int, int]],
    exact: Mapping[str, tuple[int, int]],
) -> str:
    """Return what is shown, and which part of each trace is embedded."""
    parts = [
        "Who ran, who waited, who slept and who woke whom. Scroll to zoom, drag to pan; the whole "
        "trace is the limit. Time 0 is the start of the first view."
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
                f"and waiting (pale) in each of {BINS} parts of the whole {whole:,.1f} ms."
            )
        if not wake_event(shown.trace):
            parts.append(
                f"{name}: no wake-ups were recorded (sched_waking), so a wait after one is part of "
                "the sleep before it, and nothing says who woke whom."
            )
        if len(shown.trace.losses):
            parts.append(f"{name} lost events while it was recorded.")
    return " ".join(parts)


def _document(model: UIElement, *, title: str, above: str = "", below: str = "") -> str:
    """Return a model as one HTML document, with HTML above and below it (`timeline.html.j2`)."""
    return rendered(
        "timeline.html.j2",
        title=title,
        above=above,
        below=below,
        # It cannot end the script element around it.
        models=json.dumps(json_item(model), separators=(",", ":")).replace("<", "\\u003c"),
        scripts=_scripts(),
        hashes=_script_hashes(),
    )


def _frame(inside: str, *, height_px: int, title: str) -> str:
    """Return a document as a sandboxed frame, isolated from the page's scripts and data."""
    # Scripts and JSON contain far more double quotes.
    quoted = inside.replace("&", "&amp;").replace("'", "&#39;")
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(title)}" '
        f'style="width: 100%; height: {height_px}px; border: 0; color-scheme: light dark" '
        f"srcdoc='{quoted}'></iframe>"
    )


def _script_hashes() -> list[str]:
    """Return ``sha256-…`` of each script of a document, for the policies of it and of its page."""
    return [_hash(script) for script in _scripts()]


def _hash(script: str) -> str:
    # A browser normalises every line end to \n.
    read = script.replace("\r\n", "\n").replace("\r", "\n")
    return f"sha256-{base64.b64encode(hashlib.sha256(read.encode()).digest()).decode()}"


@cache
def _scripts() -> tuple[str, str]:
    # The same for every document, so that a page of several timelines allows two scripts.
    bokeh = Resources(mode="inline", components=["bokeh"]).js_raw[0]
    return str(bokeh), (TEMPLATES / "timeline.js").read_text()
