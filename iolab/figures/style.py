# SPDX-License-Identifier: MIT
"""What figures share: sizes, style, colours, legends, panels with their labels, their display."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Final, ParamSpec, TypeVar

import matplotlib.figure
import matplotlib.style
import numpy as np
import numpy.typing as npt
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from iolab.pathology.base import Pathology
from iolab.pathology.factors import IntegerFactor
from iolab.stats.conditions import kernels_of
from iolab_base.errors import UserError

# Widths of one and of two columns of a paper, in inches.
COLUMN_IN: Final = 3.33
DOUBLE_IN: Final = 7.0

STYLE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("axes.labelsize", "axes.titlesize", "font.size"), 8),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("grid.linewidth", "hatch.linewidth"), 0.5),
    **dict.fromkeys(("axes.spines.right", "axes.spines.top", "legend.frameon"), False),
    **dict.fromkeys(("axes.axisbelow", "axes.grid"), True),
    "axes.grid.axis": "y",
    "figure.dpi": 150,
    "grid.color": "0.88",
    "lines.linewidth": 1.0,
    "lines.markersize": 4.0,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
    "svg.fonttype": "path",
    "svg.hashsalt": "iolab",
    # Labels contain text of measured machines: no formula is typeset.
    "text.parse_math": False,
}

MARKERS: Final = "osD^vPXp"
LINES: Final[tuple[Any, ...]] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
PUBLISHED: Final[dict[str, Any]] = {
    "marker": "*",
    "ms": 8,
    "mfc": "white",
    "mec": "black",
    "ls": "",
}


# An inch of paper is 120 CSS pixels on a page, so that letters of 8 points have 13 pixels; two
# dots for each, for dense screens.
_PIXELS_PER_INCH: Final = 120
_DOTS_PER_PIXEL: Final = 2


class Figure(matplotlib.figure.Figure):
    """A matplotlib figure that a notebook shows as one image, without ``%matplotlib inline``.

    It is made without pyplot. No backend knows it, so nothing shows it a second time.
    """

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
        buffer = io.BytesIO()
        dots = _PIXELS_PER_INCH * _DOTS_PER_PIXEL
        with matplotlib.style.context(["default", dict(STYLE)]):
            self.savefig(buffer, format="png", dpi=dots, metadata={"Software": None})
        image = base64.b64encode(buffer.getvalue()).decode("ascii")
        width, height = (round(_PIXELS_PER_INCH * inches) for inches in self.get_size_inches())
        return (
            {"image/png": image, "text/plain": repr(self)},
            {"image/png": {"width": width, "height": height}},
        )


P = ParamSpec("P")
F = TypeVar("F", bound=matplotlib.figure.Figure)


def styled(draw: Callable[P, F]) -> Callable[P, F]:
    """Draw with our style on matplotlib's defaults, whatever the session has set."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> F:
        with matplotlib.style.context(["default", dict(STYLE)]):
            figure = draw(*args, **kwargs)
            # Ticks take their style when they are created: rendering once creates them all.
            figure.draw_without_rendering()
        return figure

    return drawn


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """Put a legend above the panels of a figure of known width, unless it has a single entry."""
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


def kernel_style(kernel: str, kernels: Sequence[str]) -> dict[str, Any]:
    """Return colour, marker and line style of a kernel among `kernels`."""
    palette = sns.color_palette("colorblind")
    index = kernels.index(kernel)
    return {
        "color": palette[index % len(palette)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index % len(LINES)],
    }


def kernel_handles(kernels: Sequence[str]) -> list[Artist]:
    """Return the legend's entry for each kernel, in the style of `kernel_style`."""
    return [
        Line2D(
            [], [], label=f"kernel {kernel}", mec="white", mew=0.4, **kernel_style(kernel, kernels)
        )
        for kernel in kernels
    ]


def level_styles(levels: Sequence[Any]) -> list[dict[str, Any]]:
    """Return arguments of ``Axes.plot`` for the control, in black, then for each level."""
    palette = sns.color_palette("colorblind")
    return [
        {"color": "black", "marker": "_", "ms": 7, "mew": 1.4},
        *(
            {"color": palette[i % len(palette)], "marker": MARKERS[i % len(MARKERS)]}
            for i in range(len(levels))
        ),
    ]


def curve_styles(others: int) -> list[dict[str, Any]]:
    """Return arguments of ``Axes.step`` for the control, then for so many other curves."""
    colours = sns.color_palette("viridis", others)
    styles = [
        {"color": colour, "linestyle": LINES[1:][index % (len(LINES) - 1)]}
        for index, colour in enumerate(colours)
    ]
    # The control is dark and wide, so that a curve exactly on it stays visible.
    return [{"color": "0.2", "linewidth": 2.0}, *styles]


def axis_number(value: float) -> str:
    """Return an axis's number, rounded to an integer; from 10 000 on, thin spaces group digits."""
    # Ticks are integers, and short: up to four digits can be read at a glance. `iolab.shown`
    # rounds measured values in tables.
    return f"{value:,.0f}".replace(",", "\u2009") if value >= 10_000 else f"{value:.0f}"


def tick_name(level: Any) -> str:
    """Return a treatment's level as an axis tick shows it: a grouped number, or its name."""
    return level if isinstance(level, str) else axis_number(level)


def level_names(pathology: Pathology, levels: Sequence[Any]) -> list[str]:
    """Return the control's name, then each level in words, as legends show them."""
    factor = pathology.factors[pathology.treatment]
    return [pathology.control, *(factor.in_words(level) for level in levels)]


def condition_text(pathology: Pathology, levels: Mapping[str, Any]) -> str:
    """Return a condition in words, such as ``"kernel 6.1, iodepth 272, 1 job"``."""
    words = (
        f"kernel {level}" if name == "kernel" else pathology.factors[name].in_words(level)
        for name, level in levels.items()
    )
    return ", ".join(word for word in words if word)


# Approximate widths of letters of 8 and 7 points, and of a panel's y axis.
_TITLE_LETTER_IN: Final = 0.066
_TICK_LETTER_IN: Final = 0.057
_MARGIN_IN: Final = 0.5


def panels_of(
    table: pd.DataFrame, pathology: Pathology, *, always: Sequence[str] = ()
) -> list[tuple[str, pd.DataFrame]]:
    """Split a table into titled panels by `always` and by what else varies but the treatment."""
    varying = [n for n in pathology.factors if table[n].nunique(dropna=False) > 1]
    names = [*always, *(n for n in varying if n not in (pathology.treatment, *always))]
    if not names:
        return [("", table)]
    return [
        (condition_text(pathology, dict(zip(names, levels, strict=True))), group)
        for levels, group in table.groupby(names, sort=False)
    ]


def kernel_grid(
    table: pd.DataFrame, pathology: Pathology
) -> tuple[Figure, npt.NDArray[Any], list[tuple[str, pd.DataFrame]]]:
    """Return a grid of kernels across and conditions down, with panels: title, rows or none."""
    kernels = kernels_of(table)
    rows = panels_of(table, pathology)
    figure, grid = grid_of(len(kernels) * len(rows), len(rows), height_in=1.5)
    prefix = "kernel " if len(kernels) <= 3 or len(rows) == 1 else ""
    panels = [
        (f"{prefix}{kernel}{', ' if title else ''}{title}", group[group["kernel"] == kernel])
        for title, group in rows
        for kernel in kernels
    ]
    return figure, grid, panels


def grid_of(count: int, rows: int, *, height_in: float) -> tuple[Figure, npt.NDArray[Any]]:
    """Return a figure of `count` panels that share axes; a single row breaks after three."""
    wide = count // rows
    if rows == 1 and wide > 3:
        rows = -(-count // 3)
        # As even as possible: four are two and two, not three and one.
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
    """Label the axes of a figure once."""
    first = grid.flat[0]
    if grid.size == 1:
        first.set(xlabel=x, ylabel=y)
    else:
        first.figure.supxlabel(x, fontsize=8)
        first.figure.supylabel(y, fontsize=8)


def _width_in(axes: Axes) -> float:
    """Return the width that a panel has in its figure, in inches."""
    figure, place = axes.get_figure(root=True), axes.get_subplotspec()
    columns = 1 if place is None else place.get_gridspec().ncols
    return (DOUBLE_IN if figure is None else figure.get_figwidth()) / columns


def title_panel(axes: Axes, title: str, *, bold: bool = False) -> None:
    """Put a title above a panel, in as many lines as it takes."""
    letter_in = _TITLE_LETTER_IN * (1.15 if bold else 1)
    lines = textwrap.fill(title, int(_width_in(axes) / letter_in))
    axes.set_title(lines, fontweight="bold" if bold else "normal")


def name_categories(axes: Axes, names: Sequence[str]) -> None:
    """Put a name below each category (at 0, 1, …): broken if long, else upright."""
    room = int((_width_in(axes) - _MARGIN_IN) / len(names) / _TICK_LETTER_IN)
    lines = [textwrap.wrap(name, max(1, room), break_long_words=False) for name in names]
    fits = max(len(line) for name in lines for line in name) <= room
    labels = ["\n".join(name) for name in lines] if fits else names
    axes.set_xticks(range(len(names)), labels)
    axes.tick_params(axis="x", length=0, pad=2, rotation=0 if fits else 90)


def label_empty_panel(axes: Axes, why: str = "not measured") -> None:
    """Write into an empty panel why it is empty."""
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color="0.4")


def draw_intervals(axes: Axes, x: npt.ArrayLike, rows: pd.DataFrame, **style: Any) -> None:
    """Draw a bar from low to high through each row's y, and a dot for each of its ``boots``."""
    y, low, high = (rows[name].to_numpy(np.float64) for name in ("y", "low", "high"))
    # Rounding may put an end of a collapsed interval a hair beyond its centre.
    reach = [np.maximum(y - low, 0), np.maximum(high - y, 0)]
    axes.errorbar(x, y, reach, fmt="none", elinewidth=1, capsize=2, **style)
    for place, boots in zip(np.asarray(x), rows.get("boots", ()), strict=False):
        if isinstance(boots, list):
            at = [place] * len(boots)
            axes.plot(at, boots, ".", ms=4.5, mew=0, alpha=0.55, color=style["color"], zorder=2)


def star(axes: Axes, x: float, y: float) -> None:
    """Mark a published value, above all else in the panel."""
    axes.plot(x, y, zorder=7, **PUBLISHED)


def share_axis(axes: Axes) -> None:
    """Let a panel's y axis run from nothing to the whole, in percent."""
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def log_time_axis(axes: Axes, locator: LogLocator) -> None:
    """Make a panel's x axis logarithmic, with plain numbers where the locator puts ticks."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def check_numeric(pathology: Pathology, levels: Sequence[int]) -> None:
    """Raise UserError unless the treatment's levels have a place on a logarithmic axis."""
    name = pathology.treatment
    if not isinstance(pathology.factors[name], IntegerFactor):
        raise UserError(f"{name} is not a number: draw it with figures.by_kernel")
    if levels and (least := min(levels)) <= 0:
        raise UserError(f"{name} {least} has no logarithm: draw it with figures.by_kernel")


class TreatmentAxis:
    """An x axis of log10 of ascending levels above 0, with a category apart at its left."""

    def __init__(self, axes: Axes, treatment: str, levels: Sequence[int], left: str) -> None:
        self.axes = axes
        self.treatment = treatment
        x = [float(np.log10(level)) for level in levels] or [0.0]
        span = max(1.0, x[-1] - x[0])
        self.left = x[0] - 0.27 * span
        self.gap = min([b - a for a, b in pairwise(x)], default=span)
        self.step = 0.022 * span
        axes.axvline(x[0] - 0.135 * span, color="0.7", linewidth=0.6, linestyle=":")
        axes.set_xlim(self.left - 0.1 * span, x[-1] + 0.08 * span)
        labels = [left, *map(axis_number, levels)]
        if self.gap < 0.11 * span:
            axes.tick_params(axis="x", rotation=90)
            self._thin_out(labels, x, 0.042 * span)
        axes.set_xticks([self.left, *x[: len(levels)]], labels)

    @staticmethod
    def _thin_out(labels: list[str], x: list[float], room: float) -> None:
        # Every level keeps its tick; a label that would overlap the one before is left out.
        last = -np.inf
        for index, here in enumerate(x, start=1):
            if here - last < room:
                labels[index] = ""
            else:
                last = here

    def draw(self, rows: pd.DataFrame, kernel: str, kernels: Sequence[str]) -> None:
        """Draw one kernel's y, low and high by treatment (missing in the control)."""
        rows = rows.sort_values(self.treatment, na_position="first")
        apart = rows[self.treatment].isna().to_numpy()
        levels = rows[self.treatment].astype("Float64").to_numpy(dtype=np.float64, na_value=1.0)
        step = min(self.step, 0.6 * self.gap / len(kernels))
        aside = step * (kernels.index(kernel) - (len(kernels) - 1) / 2)
        x = np.where(apart, self.left, np.log10(levels)) + aside
        y = rows["y"].to_numpy(np.float64)
        style = kernel_style(kernel, kernels)
        colour = style["color"]
        guide = {"linestyle": style["linestyle"], "linewidth": 0.6, "alpha": 0.6}
        self.axes.plot(x[~apart], y[~apart], color=colour, **guide)
        draw_intervals(self.axes, x, rows, color=colour, zorder=3)
        self.axes.plot(x, y, style["marker"], color=colour, mec="white", mew=0.3, zorder=4)
