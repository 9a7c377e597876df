# SPDX-License-Identifier: MIT
"""Sizes, style, colours and legends that the figures share, and the figure that shows itself."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import matplotlib.figure
import matplotlib.style
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.lines import Line2D

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
    # Labels contain text of measured machines: no formula is typeset.
    "text.parse_math": False,
    "xtick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 7,
    "ytick.major.width": 0.6,
}

MARKERS: Final = "osD^vPX*"
LINES: Final[tuple[Any, ...]] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))


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
