# SPDX-License-Identifier: MIT
"""Panels of a figure: their rows, layout and labels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final

import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from iolab.figures.figure import Figure
from iolab.figures.style import COLUMN_IN, DOUBLE_IN
from iolab.figures.words import condition_text
from iolab.pathology.base import Pathology
from iolab.stats.conditions import kernels_of

__all__ = [
    "grid_of",
    "kernel_grid",
    "label_empty_panel",
    "name_categories",
    "outer_labels",
    "panels_of",
    "title_panel",
]

# Approximate widths of letters of 8 and 7 points, and of a panel's y axis.
_TITLE_LETTER_IN: Final = 0.066
_TICK_LETTER_IN: Final = 0.057
_MARGIN_IN: Final = 0.5


def panels_of(
    table: pd.DataFrame,
    pathology: Pathology,
    *,
    always: Sequence[str] = (),
    without: Sequence[str] = (),
) -> list[tuple[str, pd.DataFrame]]:
    """Split a table into titled panels, one for each condition besides kernel and treatment.

    The columns `always` make panels even if they do not vary, the factors `without` never do. If
    nothing varies, the whole table is one panel without a title.
    """
    skipped = {pathology.treatment, *always, *without}
    names = [
        *always,
        *(
            name
            for name in pathology.factors
            if name not in skipped and table[name].nunique(dropna=False) > 1
        ),
    ]
    if not names:
        return [("", table)]
    return [
        (condition_text(pathology, dict(zip(names, levels, strict=True))), group)
        for levels, group in table.groupby(names, sort=False)
    ]


def kernel_grid(
    table: pd.DataFrame, pathology: Pathology, *, height_in: float
) -> tuple[Figure, npt.NDArray[Any], list[tuple[str, pd.DataFrame]]]:
    """Return a grid with a column for each kernel and a row for each condition.

    Panels (title and rows) have no rows where a kernel lacks the condition.
    """
    kernels = kernels_of(table)
    rows = panels_of(table, pathology)
    figure, grid = grid_of(len(kernels) * len(rows), len(rows), height_in=height_in)
    prefix = "kernel " if len(kernels) <= 3 or len(rows) == 1 else ""
    panels = [
        (f"{prefix}{kernel}{', ' if title else ''}{title}", group[group["kernel"] == kernel])
        for title, group in rows
        for kernel in kernels
    ]
    return figure, grid, panels


def grid_of(
    count: int, rows: int, *, height_in: float, columns: int = 3
) -> tuple[Figure, npt.NDArray[Any]]:
    """Return a figure with `count` panels that share their axes, in so many full rows.

    It is one column of a paper wide, or two. A single row breaks after `columns` panels.
    """
    wide = count // rows
    if rows == 1 and wide > columns:
        rows = -(-count // columns)
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


def title_panel(axes: Axes, title: str) -> None:
    """Put a title above a panel, in as many lines as it takes."""
    axes.set_title(textwrap.fill(title, int(_width_in(axes) / _TITLE_LETTER_IN)))


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
