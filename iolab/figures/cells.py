# SPDX-License-Identifier: MIT
"""One function per figure, each from the tidy cells, drawn at the size it is printed.

Colours come from a palette that colour-blind readers can tell apart, and nothing is told by colour
alone. Intervals are those of `iolab.stats.tables`, never bootstraps over rows. Figures are plain
`matplotlib.figure.Figure` objects: no global state, nothing to close.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
)

from iolab.errors import UserError
from iolab.figures.save import caption, save_figure
from iolab.figures.style import (
    DOUBLE_IN,
    LINES,
    MARKERS,
    OUTSIDE,
    WeightAxis,
    grid_of,
    kernel_grid,
    kernel_handles,
    label_empty_panel,
    legend,
    level_styles,
    number,
    outer_labels,
    panels_of,
    styled,
)
from iolab.stats.conditions import (
    cell_columns,
    comparable_cells,
    kernels_of,
    levels_of,
    pathology_of,
    shared_columns,
    weights_of,
)
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.tables import mean_table, ratio_table

__all__ = [
    "Reference",
    "block_figure",
    "by_kernel",
    "caption",
    "cpu_split_by_weight",
    "iops_heatmap",
    "iops_ratio_by_weight",
    "latency_ecdf",
    "save_figure",
    "switches_per_io_by_weight",
]


@dataclass(frozen=True, slots=True)
class Reference:
    """A published point to compare with: its cpu.weight, its ratio inside/outside, and its name."""

    weight: int
    ratio: float
    label: str


@styled
def iops_ratio_by_weight(
    cells: pd.DataFrame, *, reference: Reference | None = None, confidence: float = CONFIDENCE
) -> Figure:
    """Draw IOPS inside/outside against cpu.weight; the A/A pairs stand at the left as the control.

    One panel per iodepth (and what else varies), one colour and marker per kernel, bars are t
    intervals on the boots' means. Errors: UserError if there is nothing to draw, or if the cells
    mix what may not be pooled.
    """
    table = ratio_table(comparable_cells(cells), confidence=confidence)
    kernels = kernels_of(table)
    panels = panels_of(table, ["iodepth"], shared_columns(cells))
    figure, grid = grid_of(len(panels), 1, height_in=2.1)
    weights = weights_of(table)
    for axes, (label, panel) in zip(grid.flat, panels, strict=True):
        scale = WeightAxis(axes, weights, "A/A")
        axes.axhline(1, color="0.35", linewidth=0.8, zorder=1)
        for index, kernel in enumerate(kernels):
            rows = panel[panel["kernel"] == kernel]
            scale.draw(rows, "ratio", kernel, kernels, index)
        if reference is not None:
            x = np.log10(reference.weight)
            axes.plot(x, reference.ratio, "*", ms=8, mfc="none", mec="black", zorder=5)
        axes.set_title(label)
    outer_labels(grid, "cpu.weight of the cgroup (log scale)", "IOPS inside / outside")
    handles = kernel_handles(kernels)
    if reference is not None:
        star: dict[str, Any] = {"marker": "*", "ms": 8, "mfc": "none", "mec": "black", "ls": ""}
        handles.append(Line2D([], [], label=reference.label, **star))
    legend(figure, handles)
    return figure


@styled
def switches_per_io_by_weight(cells: pd.DataFrame, *, confidence: float = CONFIDENCE) -> Figure:
    """Draw the core's context switches per I/O against cpu.weight, with outside as a category.

    Two per I/O, the dashed line, is the ping-pong: to the process and back for every completion.
    Panels, colours, bars and errors as in `iops_ratio_by_weight`.
    """
    table = mean_table(comparable_cells(cells), "switches_per_io", confidence=confidence)
    kernels = kernels_of(table)
    panels = panels_of(table, ["iodepth"], shared_columns(cells))
    figure, grid = grid_of(len(panels), 1, height_in=2.1)
    weights = weights_of(table)
    for axes, (label, panel) in zip(grid.flat, panels, strict=True):
        scale = WeightAxis(axes, weights, OUTSIDE)
        axes.axhline(2, color="0.35", linewidth=0.8, linestyle="--", zorder=1)
        for index, kernel in enumerate(kernels):
            scale.draw(panel[panel["kernel"] == kernel], "mean", kernel, kernels, index)
        axes.set_title(label)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    outer_labels(grid, "cpu.weight of the cgroup (log scale)", "context switches per I/O")
    legend(figure, kernel_handles(kernels))
    return figure


@styled
def iops_heatmap(cells: pd.DataFrame) -> Figure:
    """Draw IOPS inside/outside for each iodepth and weight, one panel per kernel.

    Red is slower inside, blue faster, white alike; a dash was not measured. Errors as in
    `iops_ratio_by_weight`.
    """
    table = ratio_table(comparable_cells(cells))
    weights = weights_of(table)
    depths = sorted(table["iodepth"].unique())
    columns = [*(["A/A"] if table["aa"].any() else []), *map(number, weights)]
    table = table.assign(column=["A/A" if aa else number(w) for aa, w in _aa_weight(table)])
    reach = max(0.05, float((table["ratio"] - 1).abs().max()))
    panels = panels_of(table, ["kernel"], [])
    height = 0.55 + 0.26 * len(depths)
    figure, grid = grid_of(len(panels), 1, height_in=height, columns=2 if len(columns) > 4 else 3)
    for axes, (label, panel) in zip(grid.flat, panels, strict=True):
        ratios = panel.pivot(index="iodepth", columns="column", values="ratio")
        ratios = ratios.reindex(index=depths, columns=columns)
        sns.heatmap(
            ratios,
            ax=axes,
            cmap="RdBu",
            vmin=1 - reach,
            vmax=1 + reach,
            annot=True,
            fmt=".2f",
            annot_kws={"fontsize": 7},
            linewidths=1,
            cbar=False,
        )
        for (row, column), ratio in np.ndenumerate(ratios.to_numpy()):
            if np.isnan(ratio):
                axes.text(column + 0.5, row + 0.5, "-", ha="center", va="center", color="0.4")
        axes.set(title=label, xlabel="", ylabel="", facecolor="0.94")
        axes.grid(visible=False)
        axes.tick_params(axis="x", length=0, rotation=90 if len(columns) > 8 else 0)
        axes.tick_params(axis="y", length=0, rotation=0)
    outer_labels(grid, "cpu.weight of the cgroup", "iodepth")
    bar = figure.colorbar(grid.flat[0].collections[0], ax=grid, aspect=12, pad=0.02)
    bar.set_label("inside / outside")
    bar.outline.set_visible(False)
    return figure


@styled
def cpu_split_by_weight(cells: pd.DataFrame) -> Figure:
    """Draw what the measured core did, as stacked shares: fio, kworker, other, idle.

    One bar outside and one per weight, a panel per kernel and iodepth; the shares are means over
    boots. Errors as in `iops_ratio_by_weight`.
    """
    kept = comparable_cells(cells)
    shares = ["fio_cpu", "kworker_cpu", "other", "idle"]
    named = kept["fio_cpu"] + kept["kworker_cpu"] + kept["idle"]
    # Shares are measured one after the other and may add up to a little more than the core.
    kept = kept.assign(other=(1 - named).clip(lower=0))
    tables = {share: mean_table(kept, share) for share in shares}
    first = tables["idle"]
    weights = weights_of(first)
    categories = [OUTSIDE, *map(number, weights)]
    blue, orange, *_ = sns.color_palette("colorblind")
    styles = [
        ("fio", blue, ""),
        ("kworker", orange, "////"),
        ("other", "0.6", "...."),
        ("idle", "0.95", ""),
    ]
    figure, grid, panels = kernel_grid(first, shared_columns(cells), height_in=1.5)
    for axes, (title, rows) in zip(grid.flat, panels, strict=True):
        axes.set_title(title)
        if rows.empty:
            label_empty_panel(axes)
            continue
        x = [0 if pd.isna(weight) else 1 + weights.index(weight) for weight in rows["weight"]]
        bottom = np.zeros(len(rows))
        for (_, colour, hatch), share in zip(styles, shares, strict=True):
            height = tables[share].loc[rows.index, "mean"].to_numpy(dtype=np.float64)
            axes.bar(
                x, height, 0.8, bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4
            )
            bottom += height
        axes.set_xticks(range(len(categories)), categories)
        axes.tick_params(axis="x", length=0, pad=2)
        if grid.shape[1] > 2 or len(categories) > 7:
            axes.tick_params(axis="x", rotation=90)
        axes.set_ylim(0, 1.01)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    outer_labels(grid, "cpu.weight of the cgroup", "share of the core")
    handles = [
        Patch(
            facecolor=colour,
            hatch=hatch,
            edgecolor="0.5" if name == "idle" else "white",
            linewidth=0.4,
            label=name,
        )
        for name, colour, hatch in styles
    ]
    legend(figure, handles)
    return figure


@styled
def latency_ecdf(cells: pd.DataFrame, latency: pd.DataFrame) -> Figure:
    """Draw the share of I/Os completed within a time, outside and at each weight.

    The histograms of a condition's valid cells are added up, so each I/O counts once. A panel per
    kernel and iodepth. Errors as in `iops_ratio_by_weight`, and UserError if no valid cell has a
    histogram.
    """
    kept = comparable_cells(cells)
    counts = latency.merge(kept, on="cell")
    if counts.empty:
        raise UserError("no valid cell has a latency histogram")
    keys = [*cell_columns(kept), "bin_ns"]
    counts = counts.groupby(keys, dropna=False, observed=True)["count"].sum().reset_index()
    weights = weights_of(counts)
    colours = sns.color_palette("viridis", len(weights))
    styles: dict[int, dict[str, Any]] = {
        weight: {"color": colour, "linestyle": LINES[1:][index % (len(LINES) - 1)]}
        for index, (weight, colour) in enumerate(zip(weights, colours, strict=True))
    }
    figure, grid, panels = kernel_grid(counts, shared_columns(cells), height_in=1.5)
    for axes, (title, rows) in zip(grid.flat, panels, strict=True):
        axes.set_title(title)
        if rows.empty:
            label_empty_panel(axes)
            continue
        # Outside first and widest: what lies exactly on it stays visible.
        for weight in (None, *weights):
            bins = rows[rows["weight"].isna() if weight is None else rows["weight"] == weight]
            share = bins["count"].cumsum() / bins["count"].sum()
            look = {"color": "0.2", "linewidth": 2.0} if weight is None else styles[weight]
            axes.step(bins["bin_ns"] / 1e6, share, where="post", **look)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    outer_labels(grid, "completion latency (ms, log scale)", "I/Os completed")
    handles = [Line2D([], [], color="0.2", linewidth=2.0, label=OUTSIDE)]
    handles += [
        Line2D([], [], label=f"weight {number(weight)}", **styles[weight]) for weight in weights
    ]
    legend(figure, handles)
    return figure


@styled
def block_figure(cells: pd.DataFrame) -> Figure:
    """Draw one block's cells in the order measured: IOPS, pairs linked, invalid cells crossed out.

    Colour is the treatment's level, the marker what else varies. Errors: UserError if there is no
    cell, or more than one block.
    """
    if cells.empty or cells["block"].nunique() != 1:
        raise UserError("this figure shows the cells of exactly one block")
    treatment = pathology_of(cells).treatment
    levels = levels_of(cells)
    palette = sns.color_palette("viridis", len(levels))
    colours = {level: to_hex(colour) for level, colour in zip(levels, palette, strict=True)}
    conditions = dict(panels_of(cells, [], shared_columns(cells)))
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
        control = pd.isna(row[treatment])
        colour = "black" if control else colours[row[treatment]]
        x, y = row["position"], row["iops"] / 1e3
        hollow = row["aa"] and row["role"] == "treatment"
        axes.plot(
            x, y, markers[row["cell"]], mec=colour, mfc="white" if hollow else colour, zorder=2
        )
        if not row["valid"]:
            # An invalid cell may have no IOPS at all: its cross then stands on the axis.
            where = 0.0 if pd.isna(y) else y
            axes.plot(x, where, "x", color="#d55e00", ms=9, mew=1.6, zorder=3, clip_on=False)
    axes.set_ylim(0, 1.08 * float(cells["iops"].fillna(0).max()) / 1e3 or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position in the block, in the order measured")
    axes.set_ylabel("IOPS (thousands)")
    handles: list[Artist] = [Patch(color="black", label="control")]
    if cells["aa"].any():
        handles.append(Patch(fc="white", ec="black", lw=0.8, label="control (A/A)"))
    handles += [Patch(color=colours[x], label=f"{treatment} {_say_level(x)}") for x in levels]
    if len(conditions) > 1:
        handles += [
            Line2D([], [], marker=MARKERS[i % len(MARKERS)], ls="", color="0.5", label=label)
            for i, label in enumerate(conditions)
        ]
    if not cells["valid"].all():
        handles.append(Line2D([], [], marker="x", ls="", color="#d55e00", mew=1.6, label="invalid"))
    figure.legend(handles=handles, loc="outside right upper", handlelength=1.2, handletextpad=0.5)
    return figure


@styled
def by_kernel(
    cells: pd.DataFrame,
    value: str,
    label: str,
    *,
    contrast: Literal["mean", "ratio"] = "mean",
    line: tuple[float, str] | None = None,
    confidence: float = CONFIDENCE,
) -> Figure:
    """Draw a value, or its ratio to the control, kernel by kernel: the control, then each level.

    A panel for each condition that varies besides; bars are t intervals on the boots' means. With
    ``contrast="ratio"`` the control is the A/A pair. `line` is a value to compare with, and its
    name. Errors: UserError if there is nothing to draw, or if the cells mix what may not be pooled.
    """
    kept = comparable_cells(cells)
    treatment = pathology_of(kept).treatment
    make = ratio_table if contrast == "ratio" else mean_table
    table = make(kept, value, confidence=confidence).rename(columns={contrast: "y"})
    kernels, levels = kernels_of(table), levels_of(kept)
    styles = level_styles(levels)
    panels = panels_of(table, [], shared_columns(kept))
    figure, grid = grid_of(len(panels), 1, height_in=2.1)
    step = 0.8 / (len(levels) + 1)
    for axes, (title, panel) in zip(grid.flat, panels, strict=True):
        for index, (key, look) in enumerate(zip([None, *levels], styles, strict=True)):
            rows = panel[panel[treatment].isna() if key is None else panel[treatment] == key]
            x = [kernels.index(k) + step * (index - len(levels) / 2) for k in rows["kernel"]]
            y, low, high = (rows[name].to_numpy(np.float64) for name in ("y", "low", "high"))
            reach = [np.maximum(y - low, 0), np.maximum(high - y, 0)]
            axes.errorbar(x, y, reach, fmt="none", color=look["color"], elinewidth=1, capsize=2)
            axes.plot(x, y, linestyle="", zorder=4, **look)
        if contrast == "ratio":
            axes.axhline(1, color="0.35", linewidth=0.8, zorder=1)
        if line is not None:
            axes.axhline(line[0], color="0.35", linewidth=0.8, linestyle="--", zorder=1)
        axes.set_xticks(range(len(kernels)), kernels)
        axes.set_xlim(-0.6, len(kernels) - 0.4)
        axes.set_title(title)
    if contrast == "mean":
        # The panels share their axis: only now it is known how far it reaches.
        grid.flat[0].set_ylim(bottom=min(0.0, grid.flat[0].get_ylim()[0]))
    outer_labels(grid, "kernel", label)
    names = ["A/A" if contrast == "ratio" else "control", *map(_say_level, levels)]
    handles: list[Artist] = [
        Line2D([], [], ls="", label=name, **look) for name, look in zip(names, styles, strict=True)
    ]
    if line is not None:
        handles.append(Line2D([], [], color="0.35", lw=0.8, ls="--", label=line[1]))
    legend(figure, handles)
    return figure


def _say_level(level: object) -> str:
    return number(float(level)) if isinstance(level, int | np.integer) else str(level)


def _aa_weight(table: pd.DataFrame) -> Iterator[tuple[bool, int]]:
    return zip(table["aa"], table["weight"].fillna(0), strict=True)
