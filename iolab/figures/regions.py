# SPDX-License-Identifier: MIT
"""Maps of a treatment crossed with another factor, on logarithmic axes of both numbers.

Tiles reach halfway to the next measured level, so their size shows which levels they represent. A
line marks where the effect begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullFormatter, NullLocator

from iolab.figures.style import (
    COLUMN_IN,
    DOUBLE_IN,
    PUBLISHED,
    Figure,
    axis_number,
    check_numeric,
    legend,
    star,
    styled,
)
from iolab.pathology.factors import IntegerFactor
from iolab.stats.conditions import kernels_of, levels_of, pathology_of
from iolab.stats.tables import IOPS_LOST, region_table
from iolab_base.errors import UserError

Floats = npt.NDArray[np.float64]

# Red down to dark below 1, lighter blue above: in grey, dark is slow.
_RATIOS: Final = LinearSegmentedColormap.from_list(
    "ratios", ["#67001f", "#c2493d", "#f4b79b", "#ffffff", "#b5d5ea", "#7fb2d6", "#5a97c4"]
)
_COUNTS: Final = LinearSegmentedColormap.from_list(
    "counts", ["#ffffff", "#d9d4ea", "#a79ac9", "#6f57a3", "#3d1a70"]
)
_UNKNOWN: Final[dict[str, Any]] = {
    "facecolor": "0.96",
    "edgecolor": "0.6",
    "hatch": "//////",
    "linewidth": 0,
}
_BORDER: Final[dict[str, Any]] = {"color": "black", "linewidth": 1.6, "solid_capstyle": "round"}
# In decades: extent of a lone level's tile, the control's gap and height.
_LONE, _GAP, _CONTROL = 0.12, 0.06, 0.3
_LETTER_PT: Final = 6.5
# More kernels than this side by side leave no room for the numbers.
_MOST_COLUMNS: Final = 3


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """A published point on a map: its kernel, its place, and its name in the legend.

    ``x`` and ``level`` are its levels of the x axis's factor and of the treatment, ``row`` that of
    the factor that makes the panels.
    """

    kernel: str
    x: int
    level: int
    row: int
    label: str


@dataclass(frozen=True, slots=True)
class _Map:
    """What is drawn: factors of the x axis and of the panels, colours, name of the colour bar."""

    x: str
    by: str
    colours: Colormap
    norm: Normalize
    label: str
    border: str


@styled
def region_iops(
    cells: pd.DataFrame, x: str, by: str, published: PublishedPoint | None = None
) -> Figure:
    """Map the ratio of IOPS to the control's over the treatment and another factor.

    The line separates tiles whose whole interval lies below `IOPS_LOST` from the others. The strip
    below compares the control with itself.

    `cells` are without side experiments, such as `iolab.stats.tables.crossed_cells` returns. `x` is
    the numeric factor of the x axis; the y axis is the treatment's. Each level of the factor `by`
    has panels of its own, as each kernel has. A published point is marked in its panel.
    """
    table = region_table(cells, "iops", "ratio", limit=IOPS_LOST)
    reach = max(0.1, np.ceil(10 * float((table["y"] - 1).abs().max())) / 10)
    label = f"IOPS, relative to {pathology_of(cells).control}"
    border = f"IOPS lost: interval below {IOPS_LOST:g}"
    norm = Normalize(1 - reach, 1 + reach)
    return _draw(cells, table, _Map(x, by, _RATIOS, norm, label, border), published)


@styled
def region_switches(
    cells: pd.DataFrame, x: str, by: str, published: PublishedPoint | None = None
) -> Figure:
    """Map context switches per I/O over the treatment and another factor; else as `region_iops`.

    The line separates tiles of more than one switch per I/O from the others. The strip below is the
    control.
    """
    table = region_table(cells, "switches_per_io", "mean")
    most = max(2.0, float(table["y"].max()))
    label, border = "context switches per I/O", "more than 1 switch per I/O"
    return _draw(cells, table, _Map(x, by, _COUNTS, Normalize(0, most), label, border), published)


def _draw(
    cells: pd.DataFrame, table: pd.DataFrame, chosen: _Map, published: PublishedPoint | None
) -> Figure:
    pathology, weights = pathology_of(cells), levels_of(cells)
    for name in (chosen.x, chosen.by):
        if not isinstance(pathology.factors.get(name), IntegerFactor):
            raise UserError(f"{pathology.name} has no numeric factor {name}")
    check_numeric(pathology, [*weights, *table[chosen.x]])
    kernels, rows = kernels_of(table), sorted(table[chosen.by].unique())
    # The longer list runs down the page.
    across = len(kernels) <= max(_MOST_COLUMNS, len(rows))
    places = {
        (kernel, row): (rows.index(row), kernels.index(kernel))[:: 1 if across else -1]
        for kernel in kernels
        for row in rows
    }
    high, wide = (len(rows), len(kernels))[:: 1 if across else -1]
    width = COLUMN_IN if wide == 1 else DOUBLE_IN
    figure = Figure(figsize=(width, 0.75 + 1.45 * high), layout="constrained")
    grid = figure.subplots(high, wide, squeeze=False)
    words = pathology.factors[chosen.by]
    below: dict[int, list[int]] = {}
    boots = table.loc[table["n"] > 0, "n"]
    fewest = boots.min()
    for (kernel, row), (down, right) in sorted(places.items(), key=lambda item: -item[1][0]):
        axes = grid[down, right]
        of_row = table[table[chosen.by] == row]
        depths = sorted(int(level) for level in of_row[chosen.x].unique())
        plane = _Plane(axes, depths, weights, pathology.control)
        plane.fill(of_row[of_row["kernel"] == kernel], pathology.treatment, chosen, fewest)
        title, side = [f"kernel {kernel}", words.in_words(row)][:: 1 if across else -1]
        if down == 0:
            axes.set_title(title)
        if right == 0 and high > 1:
            axes.set_ylabel(side)
        # Label ticks once if the neighbour has the same ones.
        axes.tick_params(labelleft=right == 0, labelbottom=below.get(right) != plane.depths)
        below[right] = plane.depths
        if published is not None and (published.kernel, published.row) == (kernel, row):
            plane.mark(published)
    figure.supxlabel(f"{pathology.factors[chosen.x].label} (log scale)", fontsize=8)
    figure.supylabel(f"{pathology.factors[pathology.treatment].label} (log scale)", fontsize=8)
    colours = ScalarMappable(chosen.norm, chosen.colours)
    bar = figure.colorbar(colours, ax=grid, aspect=16 * high, pad=0.02)
    bar.set_label(chosen.label)
    bar.ax.set_ylim(top=min(bar.ax.get_ylim()[1], 1.05 * float(table["y"].max())))
    bar.outline.set_visible(False)
    begins = Line2D([], [], label=f"effect begins ({chosen.border})", **_BORDER)
    handles: list[Artist] = [begins, Patch(label="not measured, or invalid", **_UNKNOWN)]
    if published is not None:
        handles.append(Line2D([], [], label=published.label, **PUBLISHED))
    if boots.max() > fewest:
        handles.append(Line2D([], [], ls="", label=f"bold: n > {fewest}"))
    legend(figure, handles)
    return figure


def _edges(levels: Sequence[int]) -> Floats:
    """Return the edges of tiles: halfway between levels on a logarithmic axis."""
    at = np.log10(np.asarray(levels, np.float64))
    if len(at) == 1:
        return np.asarray(10 ** np.array([at[0] - _LONE, at[0] + _LONE]), np.float64)
    middle = (at[1:] + at[:-1]) / 2
    ends = [2 * at[0] - middle[0]], [2 * at[-1] - middle[-1]]
    return np.asarray(10 ** np.concatenate([ends[0], middle, ends[1]]), np.float64)


class _Plane:
    """A panel: a tile for each level of the x axis and of the treatment, the control below."""

    def __init__(
        self, axes: Axes, depths: Sequence[int], weights: Sequence[int], control: str
    ) -> None:
        self.axes = axes
        self.depths, self.weights = list(depths), list(weights)
        self.x, self.y = _edges(depths), _edges(weights)
        top = self.y[0] / 10**_GAP
        self.strip = (float(top / 10**_CONTROL), float(top))
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(self.x[0], self.x[-1]), ylim=(self.strip[0], self.y[-1]))
        middle = float(np.sqrt(self.strip[0] * self.strip[1]))
        axes.set_xticks(self.depths, [axis_number(depth) for depth in self.depths])
        axes.set_yticks([middle, *self.weights], [control, *map(axis_number, self.weights)])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
            axis.set_minor_formatter(NullFormatter())
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)

    def fill(self, table: pd.DataFrame, treatment: str, chosen: _Map, fewest: float) -> None:
        """Draw tiles, bold where more boots than the fewest are behind them, and the border."""
        effect: dict[tuple[int, int], bool] = {}
        for column, depth in enumerate(self.depths):
            here = table[table[chosen.x] == depth]
            found = here[treatment]
            for row, weight in enumerate([None, *self.weights]):
                of_tile = here[found.isna() if weight is None else found == weight]
                value = float(of_tile["y"].iloc[0]) if len(of_tile) else float("nan")
                more = len(of_tile) > 0 and int(of_tile["n"].iloc[0]) > fewest
                self._tile(column, row - 1, value, chosen, "bold" if more else "normal")
                if row and of_tile["effect"].notna().any():
                    effect[column, row - 1] = bool(of_tile["effect"].iloc[0])
        # One line with gaps, so that no piece's white rim lies on another piece.
        pieces = [
            np.array([*zip(*ends, strict=True), (np.nan, np.nan)]) for ends in self._border(effect)
        ]
        if pieces:
            (line,) = self.axes.plot(*np.concatenate(pieces).T, zorder=5, **_BORDER)
            line.set_path_effects([withStroke(linewidth=2.8, foreground="white")])

    def _tile(self, column: int, row: int, value: float, chosen: _Map, weight: str) -> None:
        left, right = self.x[column], self.x[column + 1]
        low, high = self.strip if row < 0 else (self.y[row], self.y[row + 1])
        place = ((left, low), right - left, high - low)
        if not np.isfinite(value):
            self.axes.add_patch(Rectangle(*place, **_UNKNOWN))
            return
        colour = chosen.colours(chosen.norm(value))
        self.axes.add_patch(Rectangle(*place, facecolor=colour, edgecolor="0.8", linewidth=0.4))
        luminance = float(np.dot(colour[:3], (0.2126, 0.7152, 0.0722)))
        x, y = float(np.sqrt(left * right)), float(np.sqrt(low * high))
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": _LETTER_PT}
        style |= {"color": "white" if luminance < 0.45 else "black", "fontweight": weight}
        self.axes.text(x, y, f"{value:.2f}", zorder=6, **style)

    def _border(self, effect: dict[tuple[int, int], bool]) -> Iterator[tuple[Floats, Floats]]:
        """Yield the edges between tiles that show the effect and tiles that do not."""
        for (column, row), shown in effect.items():
            if effect.get((column + 1, row), shown) != shown:
                x = self.x[column + 1]
                yield np.array([x, x]), self.y[row : row + 2]
            if effect.get((column, row + 1), shown) != shown:
                y = self.y[row + 1]
                yield self.x[column : column + 2], np.array([y, y])

    def mark(self, published: PublishedPoint) -> None:
        """Draw a published point where it lies, if the panel reaches there."""
        (left, *_, right), (low, *_, high) = self.x, self.y
        if left <= published.x <= right and low <= published.level <= high:
            star(self.axes, published.x, published.level)
