# SPDX-License-Identifier: MIT
"""What the figures share: their style and sizes, panels, the axis of weights, kernels' looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Final, ParamSpec

import matplotlib.style
import numpy as np
import numpy.typing as npt
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from iolab.stats.conditions import kernels_of

__all__ = [
    "COLUMN_IN",
    "DOUBLE_IN",
    "LINES",
    "MARKERS",
    "OUTSIDE",
    "STYLE",
    "WeightAxis",
    "grid_of",
    "kernel_grid",
    "kernel_handles",
    "label_empty_panel",
    "legend",
    "level_styles",
    "number",
    "outer_labels",
    "panels_of",
    "styled",
]

P = ParamSpec("P")

# Widths of one and of two columns of a paper, in inches.
COLUMN_IN: Final = 3.33
DOUBLE_IN: Final = 7.0

STYLE: Final[Mapping[str, Any]] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "figure.dpi": 150,
    "font.size": 8,
    "grid.color": "0.88",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.0,
    "lines.markersize": 4.0,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
    "svg.fonttype": "path",
    "svg.hashsalt": "iolab",
    # Labels hold text of measured machines; no formula is drawn.
    "text.parse_math": False,
    "xtick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 7,
    "ytick.major.width": 0.6,
}

MARKERS: Final = "osD^vPX*"
LINES: Final[tuple[Any, ...]] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
OUTSIDE: Final = "outside"


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Give a drawing function our style, from matplotlib's defaults.

    So a figure looks the same whatever the session has set.
    """

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.style.context(["default", dict(STYLE)]):
            figure = draw(*args, **kwargs)
            # Ticks take their style when they are made: make them here.
            figure.draw_without_rendering()
        return figure

    return drawn


class WeightAxis:
    """An x axis of log10(cpu.weight) with one category apart at its left."""

    def __init__(self, axes: Axes, weights: Sequence[int], left: str) -> None:
        self.axes = axes
        x = [float(np.log10(weight)) for weight in weights] or [0.0]
        span = max(1.0, x[-1] - x[0])
        self.left = x[0] - 0.27 * span
        self.gap = min([b - a for a, b in pairwise(x)], default=span)
        self.step = 0.022 * span
        axes.axvline(x[0] - 0.135 * span, color="0.7", linewidth=0.6, linestyle=":")
        axes.set_xlim(self.left - 0.1 * span, x[-1] + 0.08 * span)
        labels = [left, *map(number, weights)]
        if self.gap < 0.11 * span:
            axes.tick_params(axis="x", rotation=90)
            self._thin_out(labels, x, 0.042 * span)
        axes.set_xticks([self.left, *x[: len(weights)]], labels)

    @staticmethod
    def _thin_out(labels: list[str], x: list[float], room: float) -> None:
        # Every weight keeps its tick; a label that would run into the one before is left away.
        last = -np.inf
        for index, here in enumerate(x, start=1):
            if here - last < room:
                labels[index] = ""
            else:
                last = here

    def draw(
        self, rows: pd.DataFrame, value: str, kernel: str, kernels: Sequence[str], index: int
    ) -> None:
        """Draw one kernel's points with their bars, moved aside so that kernels do not overlap."""
        rows = rows.sort_values("weight", na_position="first")
        apart = rows["weight"].isna().to_numpy()
        logs = np.log10(rows["weight"].astype("Float64").to_numpy(dtype=np.float64, na_value=1.0))
        step = min(self.step, 0.6 * self.gap / len(kernels))
        x = np.where(apart, self.left, logs) + step * (index - (len(kernels) - 1) / 2)
        y, low, high = (rows[name].to_numpy(np.float64) for name in (value, "low", "high"))
        look = _kernel_style(kernel, kernels)
        self.axes.plot(x[~apart], y[~apart], linestyle=look["linestyle"], color=look["color"])
        # Rounding may put an end of a collapsed interval a hair beyond its centre.
        reach = [np.maximum(y - low, 0), np.maximum(high - y, 0)]
        self.axes.errorbar(
            x, y, reach, fmt="none", color=look["color"], elinewidth=1.0, capsize=2, zorder=3
        )
        self.axes.plot(x, y, look["marker"], color=look["color"], mec="white", mew=0.3, zorder=4)


def number(value: float) -> str:
    """Return a number as an axis shows it."""
    # A thin space from 10 000 on, where digits are no longer read at a glance.
    return f"{value:,.0f}".replace(",", "\u2009") if value >= 10_000 else f"{value:.0f}"


def panels_of(
    table: pd.DataFrame, always: Sequence[str], factors: Sequence[str]
) -> list[tuple[str, pd.DataFrame]]:
    """Split a table by the columns `always` and by each of `factors` that varies besides."""
    varying = [
        name
        for name in factors
        if name not in ("kernel", *always) and table[name].nunique(dropna=False) > 1
    ]
    keys = [*always, *varying]
    if not keys:
        return [("", table)]
    return [
        (", ".join(_say(name, value) for name, value in zip(keys, values, strict=True)), group)
        for values, group in table.groupby(keys, sort=False)
    ]


def _say(name: str, value: object) -> str:
    return {
        "numjobs": f"{value} jobs",
        "extents": f"{value} extents" if value == "unwritten" else f"{value}",
        "clumping": f"{value} completions",
        "size": f"{value} B",
        "cgroup": f"{value} cgroup",
        "filesystem": f"{value}",
        "writes": f"{value} writes",
        "io": f"{value}",
        "layout": f"{value}",
        "cpus": f"{value} CPUs" if value != 1 else "1 CPU",
        "engine": f"{value}",
        "workers": f"{value} workers",
        "tuning": "own tuning" if value == "default" else f"tuned as {value}",
        "batch_min": f"waits for {value}",
    }.get(name, f"{name} {value}")


def kernel_grid(
    table: pd.DataFrame, factors: Sequence[str], *, height_in: float
) -> tuple[Figure, npt.NDArray[Any], list[tuple[str, pd.DataFrame]]]:
    """Return a grid with a column per kernel and a row per iodepth and what else varies."""
    kernels = kernels_of(table)
    rows = panels_of(table, ["iodepth"], factors)
    figure, grid = grid_of(len(kernels) * len(rows), len(rows), height_in=height_in)
    prefix = "kernel " if len(kernels) <= 3 else ""
    panels = [
        (f"{prefix}{kernel}, {label}", group[group["kernel"] == kernel])
        for label, group in rows
        for kernel in kernels
    ]
    return figure, grid, panels


def grid_of(
    count: int, rows: int, *, height_in: float, columns: int = 3
) -> tuple[Figure, npt.NDArray[Any]]:
    """Return `count` panels: in `rows` full rows, or in one row that breaks after `columns`."""
    wide = count // rows
    if rows == 1 and wide > columns:
        rows = -(-count // columns)
        # As even as it goes: four are two and two, not three and one.
        wide = -(-count // rows)
    width = COLUMN_IN if wide == 1 else DOUBLE_IN
    figure = Figure(figsize=(width, 0.55 + height_in * rows), layout="constrained")
    grid = figure.subplots(rows, wide, sharex=True, sharey=True, squeeze=False)
    for index in range(count, grid.size):
        grid.flat[index].remove()
        # The panel above is now its column's lowest.
        grid.flat[index - wide].tick_params(labelbottom=True)
    return figure, grid if count == grid.size else grid.flat[:count].reshape(1, -1)


def outer_labels(grid: npt.NDArray[Any], x: str, y: str) -> None:
    """Label the whole figure's axes once."""
    first = grid.flat[0]
    if grid.size == 1:
        first.set(xlabel=x, ylabel=y)
    else:
        first.figure.supxlabel(x, fontsize=8)
        first.figure.supylabel(y, fontsize=8)


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Put a legend above the panels, unless it would have a single entry."""
    if len(handles) < 2:
        return
    names = [str(handle.get_label()) for handle in handles]
    for per_row in range(min(6, len(names)), 0, -1):
        rows = -(-len(names) // per_row)
        columns = [names[start : start + rows] for start in range(0, len(names), rows)]
        # A handle with its gaps takes half an inch, a letter of 7 points about 0.06.
        if sum(0.5 + 0.06 * max(map(len, column)) for column in columns) < figure.get_figwidth():
            break
    figure.legend(handles, names, loc="outside upper center", ncols=len(columns))


def _kernel_style(kernel: str, kernels: Sequence[str]) -> dict[str, Any]:
    palette = sns.color_palette("colorblind")
    index = kernels.index(kernel)
    return {
        "color": palette[index % len(palette)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index % len(LINES)],
    }


def kernel_handles(kernels: Sequence[str]) -> list[Artist]:
    """Return the legend's entries for kernels."""
    return [
        Line2D(
            [], [], label=f"kernel {kernel}", mec="white", mew=0.4, **_kernel_style(kernel, kernels)
        )
        for kernel in kernels
    ]


def level_styles(levels: Sequence[Any]) -> list[dict[str, Any]]:
    """Return colour and marker for the control, in black, and for each level of a treatment."""
    palette = sns.color_palette("colorblind")
    return [
        {"color": "black", "marker": "_", "ms": 7, "mew": 1.4},
        *(
            {"color": palette[i % len(palette)], "marker": MARKERS[i % len(MARKERS)]}
            for i in range(len(levels))
        ),
    ]


def label_empty_panel(axes: Axes, why: str = "not measured") -> None:
    """Write into an empty panel why it is empty."""
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color="0.4")
