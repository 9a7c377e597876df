# SPDX-License-Identifier: MIT
"""Figure of where an I/O's time went, from the block layer to its submitter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.patches import Patch

from iolab.figures.figure import Figure
from iolab.figures.panels import (
    grid_of,
    label_empty_panel,
    name_categories,
    outer_labels,
    panels_of,
    title_panel,
)
from iolab.figures.style import legend, styled
from iolab.figures.words import tick_name
from iolab.stats.conditions import cell_columns, in_kernel_order, levels_of, pathology_of
from iolab_base.errors import UserError

__all__ = ["path_breakdown"]

# The parts of an I/O's path as drawn: sums of the segments of `iolab.measure.io_path`.
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "submission": ("queue_ns",),
    "device": ("device_ns",),
    "worker not yet running": ("defer_ns", "worker_wait_ns"),
    "behind other works": ("dispatch_ns",),
    "its work": ("work_ns",),
    "submitter asleep": ("gather_ns",),
    "submitter not yet running": ("submitter_wait_ns",),
}


@styled
def path_breakdown(cells: pd.DataFrame, mechanism: pd.DataFrame) -> Figure:
    """Draw where an I/O's time went, in the control and at each level, as stacked means.

    The means are over the I/Os whose whole path is in a trace, then over the recorded cells. There
    is a panel for each kernel and what else varies.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    mechanism : DataFrame
        Measures of the cells: cell, measure, value; those of the path are named ``path_…_ns``.

    Returns
    -------
    Figure
        One or two columns of a paper wide.

    Raises
    ------
    UserError
        If nothing was recorded.
    """
    wide = mechanism.pivot(index="cell", columns="measure", values="value")
    recorded = cells[cells["valid"] & cells["recorded"]].merge(
        wide, left_on="cell", right_index=True
    )
    segments = [f"path_{name}" for names in _PARTS.values() for name in names]
    if recorded.empty or not set(segments) <= set(recorded.columns):
        raise UserError("no cell was recorded: there is no path to draw")
    pathology, levels = pathology_of(recorded), levels_of(recorded)
    by = cell_columns(recorded)
    means = recorded.groupby(by, dropna=False)[segments].mean().reset_index()
    panels = panels_of(in_kernel_order(means, by), pathology, always=["kernel"])
    figure, grid = grid_of(len(panels), 1, height_in=1.9)
    names = [pathology.control, *map(tick_name, levels)]
    for axes, (title, rows) in zip(grid.flat, panels, strict=True):
        title_panel(axes, title)
        name_categories(axes, names)
        if rows[segments].isna().all(axis=None):
            # A kernel that completes these writes without a worker has no such path.
            label_empty_panel(axes, "no path through a worker")
            continue
        x = [0 if pd.isna(v) else 1 + levels.index(v) for v in rows[pathology.treatment]]
        bottom = np.zeros(len(rows))
        for part, style in _part_styles().items():
            columns = [f"path_{name}" for name in _PARTS[part]]
            height = rows[columns].sum(axis=1).to_numpy() / 1e6
            axes.bar(x, height, 0.75, bottom, **style)
            bottom += height
    outer_labels(grid, pathology.factors[pathology.treatment].label, "mean time of an I/O (ms)")
    legend(figure, [Patch(label=part, **style) for part, style in _part_styles().items()])
    return figure


def _part_styles() -> dict[str, dict[str, Any]]:
    colours = sns.color_palette("colorblind", len(_PARTS))
    hatches = ("", "", "////", "....", "", "xxxx", "\\\\\\\\")
    return {
        part: {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.3}
        for part, colour, hatch in zip(_PARTS, colours, hatches, strict=True)
    }
