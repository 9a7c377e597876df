# SPDX-License-Identifier: MIT
"""What happened in cells: a block as measured, the core's time, latencies, costs and paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, PercentFormatter

from iolab.figures.style import (
    DOUBLE_IN,
    MARKERS,
    Figure,
    curve_styles,
    grid_of,
    kernel_grid,
    label_empty_panel,
    legend,
    level_names,
    log_time_axis,
    name_categories,
    outer_labels,
    panels_of,
    share_axis,
    styled,
    tick_name,
    title_panel,
)
from iolab.stats.conditions import (
    cell_columns,
    comparable_cells,
    in_kernel_order,
    levels_of,
    pathology_of,
)
from iolab.stats.tables import mean_table
from iolab_base.errors import UserError

_BLUE, _ORANGE = sns.color_palette("colorblind")[:2]
# Uses of the measured core: column, name, colour, hatch.
_SHARES = (
    ("fio_cpu", "fio", _BLUE, ""),
    ("kworker_cpu", "kworker", _ORANGE, "////"),
    ("other", "other", "0.6", "...."),
    ("idle", "idle", "0.95", ""),
)


@styled
def cpu_split(cells: pd.DataFrame) -> Figure:
    """Draw what the measured core did, as stacked shares: fio, kworker, other, idle.

    There is a bar for the control and one for each level of the treatment, and a panel for each
    kernel and condition. The shares are means over boots.
    """
    kept = comparable_cells(cells)
    pathology, levels = pathology_of(kept), levels_of(kept)
    named = kept["fio_cpu"] + kept["kworker_cpu"] + kept["idle"]
    # Shares are measured one after the other and may add up to a little more than the core.
    kept = kept.assign(other=(1 - named).clip(lower=0))
    tables = {share: mean_table(kept, share) for share, *_ in _SHARES}
    figure, grid, panels = kernel_grid(tables["idle"], pathology)
    names = [pathology.control, *map(tick_name, levels)]
    for axes, (title, rows) in zip(grid.flat, panels, strict=True):
        title_panel(axes, title)
        name_categories(axes, names)
        if rows.empty:
            label_empty_panel(axes)
            continue
        style: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4}
        bars = [
            (
                tables[share].loc[rows.index, "mean"].clip(lower=0),
                {"color": colour, "hatch": hatch, **style},
            )
            for share, _, colour, hatch in _SHARES
        ]
        _stack(axes, rows[pathology.treatment], levels, bars, width=0.8)
        axes.set_ylim(0, 1.01)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    outer_labels(grid, pathology.factors[pathology.treatment].label, "share of the core")
    handles = [
        Patch(
            facecolor=colour,
            hatch=hatch,
            edgecolor="0.5" if name == "idle" else "white",
            linewidth=0.4,
            label=name,
        )
        for _, name, colour, hatch in _SHARES
    ]
    legend(figure, handles)
    return figure


def _stack(
    axes: Axes,
    of_level: pd.Series,
    levels: list[Any],
    bars: Sequence[tuple[pd.Series, dict[str, Any]]],
    *,
    width: float,
) -> None:
    """Draw stacked bars, the control's first, each part by its heights and its style."""
    x = [0 if pd.isna(level) else 1 + levels.index(level) for level in of_level]
    bottom = np.zeros(len(x))
    for heights, style in bars:
        height = heights.to_numpy(dtype=np.float64)
        axes.bar(x, height, width, bottom, **style)
        bottom += height


@styled
def latency_ecdf(cells: pd.DataFrame, latency: pd.DataFrame) -> Figure:
    """Draw the share of I/Os completed within a time, in the control and at each level.

    `latency` has histograms of completion latencies: cell, bin_ns, count. Those of a condition's
    valid cells are added up, so each I/O counts once. There is a panel for each kernel and
    condition.
    """
    kept = comparable_cells(cells)
    pathology = pathology_of(kept)
    bins = latency.merge(kept, on="cell")
    if bins.empty:
        raise UserError("no valid cell has a latency histogram")
    levels = levels_of(bins)
    keys = [*cell_columns(kept), "bin_ns"]
    counts = bins.groupby(keys, dropna=False, observed=True)["count"].sum().reset_index()
    styles = curve_styles(len(levels))
    figure, grid, panels = kernel_grid(counts, pathology)
    for axes, (title, rows) in zip(grid.flat, panels, strict=True):
        title_panel(axes, title)
        if rows.empty:
            label_empty_panel(axes)
            continue
        of_level = rows[pathology.treatment]
        for level, style in zip((None, *levels), styles, strict=True):
            curve = rows[of_level.isna() if level is None else of_level == level]
            share = curve["count"].cumsum() / curve["count"].sum()
            axes.step(curve["bin_ns"] / 1e6, share, where="post", **style)
        log_time_axis(axes, LogLocator(subs=(1, 2, 5)))
        share_axis(axes)
    outer_labels(grid, "completion latency (ms, log scale)", "I/Os completed")
    names = level_names(pathology, levels)
    handles = [
        Line2D([], [], label=name, **style) for name, style in zip(names, styles, strict=True)
    ]
    legend(figure, handles)
    return figure


@styled
def block_figure(cells: pd.DataFrame) -> Figure:
    """Draw one block's cells in the order measured: IOPS, pairs linked, invalid cells crossed out.

    Colour is the treatment's level, black the control; the marker is what else varies.
    """
    if cells.empty or cells["block"].nunique() != 1:
        raise UserError("this figure shows the cells of exactly one block")
    pathology, levels = pathology_of(cells), levels_of(cells)
    palette = sns.color_palette("viridis", len(levels))
    colours = {level: to_hex(colour) for level, colour in zip(levels, palette, strict=True)}
    conditions = dict(panels_of(cells, pathology))
    markers = {
        cell: MARKERS[index % len(MARKERS)]
        for index, rows in enumerate(conditions.values())
        for cell in rows["cell"]
    }
    figure = Figure(figsize=(DOUBLE_IN, 2.5), layout="constrained")
    axes = figure.add_subplot()
    for _, pair in cells.groupby("pair"):
        axes.plot(pair["position"], pair["iops"] / 1e3, color="0.75", zorder=1)
    for row in cells.sort_values("position").to_dict("records"):
        level = row[pathology.treatment]
        colour = "black" if pd.isna(level) else colours[level]
        _draw_cell(axes, row, markers[row["cell"]], colour)
    axes.set_ylim(0, 1.08 * float(cells["iops"].fillna(0).max()) / 1e3 or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position in the block, in the order measured")
    axes.set_ylabel("IOPS (thousands)")
    control, *names = level_names(pathology, levels)
    handles: list[Artist] = [Patch(color="black", label=control)]
    if cells["aa"].any():
        handles.append(Patch(fc="white", ec="black", lw=0.8, label=f"{control} (A/A)"))
    handles += [Patch(color=colours[x], label=n) for x, n in zip(levels, names, strict=True)]
    if len(conditions) > 1:
        handles += [
            Line2D([], [], marker=MARKERS[i % len(MARKERS)], ls="", color="0.5", label=label)
            for i, label in enumerate(conditions)
        ]
    if not cells["valid"].all():
        handles.append(Line2D([], [], marker="x", ls="", color="#d55e00", mew=1.6, label="invalid"))
    figure.legend(handles=handles, loc="outside right upper", handlelength=1.2, handletextpad=0.5)
    return figure


def _draw_cell(axes: Axes, row: dict[Any, Any], marker: str, colour: str) -> None:
    x, y = row["position"], row["iops"] / 1e3
    hollow = row["aa"] and row["role"] == "treatment"
    axes.plot(x, y, marker, mec=colour, mfc="white" if hollow else colour, zorder=2)
    if not row["valid"]:
        # An invalid cell may have no IOPS: its cross is then on the axis.
        where = 0.0 if pd.isna(y) else y
        axes.plot(x, where, "x", color="#d55e00", ms=9, mew=1.6, zorder=3, clip_on=False)


# The parts of an I/O's path as drawn: sums of the segments of `iolab.measure.io_path`.
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "submission": ("queue_ns",),
    "device": ("device_ns",),
    "worker not yet running": ("defer_ns", "worker_wait_ns"),
    "behind other work items": ("dispatch_ns",),
    "its work": ("work_ns",),
    "submitter asleep": ("gather_ns",),
    "submitter not yet running": ("submitter_wait_ns",),
}
_HATCHES: Final = ("", "", "////", "....", "", "xxxx", "\\\\\\\\")
_PART_STYLES: Final[Mapping[str, dict[str, Any]]] = {
    part: {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.3}
    for part, colour, hatch in zip(_PARTS, sns.color_palette("colorblind"), _HATCHES, strict=False)
}


@styled
def path_breakdown(cells: pd.DataFrame, mechanism: pd.DataFrame) -> Figure:
    """Draw where an I/O's time went, in the control and at each level, as stacked means.

    `mechanism` has the measures of the cells: cell, measure, value; those of the path are named
    ``path_…_ns``. The means are over the I/Os whose whole path is in a trace, then over the
    recorded cells in which these are a hundredth of all. There is a panel for each kernel and what
    else varies.
    """
    wide = mechanism.pivot(index="cell", columns="measure", values="value")
    recorded = cells[cells["valid"] & cells["recorded"]].merge(
        wide, left_on="cell", right_index=True
    )
    segments = [f"path_{name}" for names in _PARTS.values() for name in names]
    if recorded.empty or not set(segments) <= set(recorded.columns):
        raise UserError("no cell was recorded: there is no path to draw")
    # Single I/Os go through a worker on a kernel that completes the others without one.
    recorded.loc[recorded["ios_whole"] < recorded["ios_traced"] / 100, segments] = np.nan
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
        bars = [
            (rows[[f"path_{name}" for name in _PARTS[part]]].sum(axis=1) / 1e6, style)
            for part, style in _PART_STYLES.items()
        ]
        _stack(axes, rows[pathology.treatment], levels, bars, width=0.75)
        drawn = set(rows.loc[rows[segments].notna().any(axis=1), pathology.treatment].dropna())
        for place, level in enumerate(levels, start=1):
            if level not in drawn:
                axes.text(place, 0, "no valid trace", ha="center", va="bottom", color="0.4")
    outer_labels(grid, pathology.factors[pathology.treatment].label, "mean time of an I/O (ms)")
    legend(figure, [Patch(label=part, **style) for part, style in _PART_STYLES.items()])
    return figure
