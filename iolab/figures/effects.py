# SPDX-License-Identifier: MIT
"""Effects: of a treatment against its level and kernel by kernel, of interventions on a claim."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from iolab.figures.style import (
    DOUBLE_IN,
    PUBLISHED,
    Figure,
    TreatmentAxis,
    check_numeric,
    draw_intervals,
    grid_of,
    kernel_handles,
    legend,
    level_names,
    level_styles,
    outer_labels,
    panels_of,
    star,
    styled,
    title_panel,
)
from iolab.pathology.base import Claim, Pathology
from iolab.pathology.claims import CONTRASTS
from iolab.stats.attribution import change_of
from iolab.stats.conditions import (
    boot_means,
    cell_columns,
    comparable_cells,
    kernels_of,
    levels_of,
    matches,
    pair_columns,
    pathology_of,
)
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.tables import mean_table, pair_ratios, ratio_table
from iolab_base.errors import UserError

_LINE: dict[str, Any] = {"color": "0.35", "linewidth": 0.8, "linestyle": "--"}
_RANGE: dict[str, Any] = {"facecolor": "0.92", "edgecolor": "0.7", "linewidth": 0.8}

Contrast = Literal["mean", "ratio"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A published point: the treatment's level, the value in the figure's unit, its legend."""

    level: int
    value: float
    label: str


def _table(kept: pd.DataFrame, value: str, contrast: Contrast, confidence: float) -> pd.DataFrame:
    """Return a row for each kernel and condition: the drawn value ``y``, and those of its boots."""
    ratio = contrast == "ratio"
    by = pair_columns(kept) if ratio else cell_columns(kept)
    table = (ratio_table if ratio else mean_table)(kept, value, confidence=confidence)
    table = table.rename(columns={contrast: "y"})
    if ratio:
        rows = kept[kept["aa"]] if pathology_of(kept).apart else kept
    else:
        rows = kept[~kept["recorded"] & kept[value].notna()]
    if rows.empty:
        return table
    boots = pair_ratios(rows, value, by) if ratio else boot_means(rows, value, by, log=False)
    drawn = boots.assign(boots=np.exp(boots["y"]) if ratio else boots["y"])
    grouped = drawn.groupby(by, dropna=False, observed=True)["boots"].agg(list)
    return table.merge(grouped.reset_index(), on=by, how="left")


def _control_name(pathology: Pathology, table: pd.DataFrame, contrast: Contrast) -> str:
    """Return the name for the control: itself, or its A/A pairs, which a profile may lack."""
    if contrast != "ratio":
        return pathology.control
    return "A/A" if table[pathology.treatment].isna().any() else "A/A: none"


def _guides(axes: Axes, contrast: Contrast, line: tuple[float, str] | None) -> None:
    """Draw the line of no effect, and the line to compare with."""
    if contrast == "ratio":
        axes.axhline(1, color="0.35", linewidth=0.8, zorder=1)
    if line is not None:
        axes.axhline(line[0], zorder=1, **_LINE)


@styled
def by_treatment(
    cells: pd.DataFrame,
    value: str,
    label: str,
    *,
    contrast: Contrast = "mean",
    line: tuple[float, str] | None = None,
    reference: Reference | None = None,
    confidence: float = CONFIDENCE,
) -> Figure:
    """Draw a value, or its ratio to the control, against the level of a numeric treatment.

    The control is apart at the left, the axis of the levels is logarithmic. There is a panel for
    each condition that varies besides, and a colour and marker for each kernel. Bars are t
    intervals on the boots' means, at `confidence` (0..1), dots boots; lines only guide the eye.

    `value` is a column of the cells, `label` that of the y axis, with the unit. The contrast is the
    mean in each condition, or the ratio treated/control of the pairs; of ratios the A/A pairs stand
    for the control. `line` is a value to compare with and its name in the legend, `reference` a
    published point.
    """
    kept = comparable_cells(cells)
    pathology, levels = pathology_of(kept), levels_of(kept)
    check_numeric(pathology, levels)
    table = _table(kept, value, contrast, confidence)
    kernels = kernels_of(table)
    panels = panels_of(table, pathology)
    figure, grid = grid_of(len(panels), 1, height_in=2.1)
    left = _control_name(pathology, table, contrast)
    for axes, (title, panel) in zip(grid.flat, panels, strict=True):
        scale = TreatmentAxis(axes, pathology.treatment, levels, left)
        _guides(axes, contrast, line)
        for kernel in kernels:
            scale.draw(panel[panel["kernel"] == kernel], kernel, kernels)
        if reference is not None:
            star(axes, float(np.log10(reference.level)), reference.value)
        title_panel(axes, title)
    if contrast == "mean":
        _start_at_zero(grid.flat[0])
    outer_labels(grid, f"{pathology.factors[pathology.treatment].label} (log scale)", label)
    handles = kernel_handles(kernels)
    if reference is not None:
        handles.append(Line2D([], [], label=reference.label, **PUBLISHED))
    if line is not None:
        handles.append(Line2D([], [], label=line[1], **_LINE))
    legend(figure, handles)
    return figure


@styled
def by_kernel(
    cells: pd.DataFrame,
    value: str,
    label: str,
    *,
    contrast: Contrast = "mean",
    line: tuple[float, str] | None = None,
    published: tuple[float, float] | None = None,
    confidence: float = CONFIDENCE,
) -> Figure:
    """Draw a value, or its ratio to the control, kernel by kernel: the control, then each level.

    There is a panel for each condition that varies besides, and a colour and marker for each level
    of the treatment. Panels about which the report has a primary claim come first, with a bold
    title. `published` is the report's range. The other parameters and the bars are those of
    `by_treatment`.
    """
    kept = comparable_cells(cells)
    pathology, levels = pathology_of(kept), levels_of(kept)
    table = _table(kept, value, contrast, confidence)
    kernels = kernels_of(table)
    names = [_control_name(pathology, table, contrast), *level_names(pathology, levels)[1:]]
    # A profile may lack A/A pairs.
    first = 0 if table[pathology.treatment].isna().any() else 1
    marks = list(zip([None, *levels], names, level_styles(levels), strict=True))[first:]
    of_claims = partial(_is_claimed, pathology, value)
    panels = sorted(panels_of(table, pathology), key=of_claims, reverse=True)
    # Where all are, none stands out.
    bold = sum(map(of_claims, panels)) % len(panels)
    figure, grid = grid_of(len(panels), 1, height_in=2.1)
    for number, (axes, (title, panel)) in enumerate(zip(grid.flat, panels, strict=True)):
        _guides(axes, contrast, line)
        if published is not None:
            axes.axhspan(*published, zorder=0, **_RANGE)
        for index, (level, _, style) in enumerate(marks):
            of_level = panel[pathology.treatment]
            rows = panel[of_level.isna() if level is None else of_level == level]
            aside = 0.8 / len(marks) * (index - (len(marks) - 1) / 2)
            # Each point is beside its kernel's tick.
            x = [kernels.index(kernel) + aside for kernel in rows["kernel"]]
            draw_intervals(axes, x, rows, color=style["color"])
            axes.plot(x, rows["y"].to_numpy(np.float64), linestyle="", zorder=4, **style)
        axes.set_xticks(range(len(kernels)), kernels)
        axes.set_xlim(-0.6, len(kernels) - 0.4)
        title_panel(axes, title, bold=number < bold)
    if contrast == "mean":
        _start_at_zero(grid.flat[0])
    outer_labels(grid, "kernel", label)
    handles: list[Artist] = [Line2D([], [], ls="", label=name, **style) for _, name, style in marks]
    if line is not None:
        handles.append(Line2D([], [], label=line[1], **_LINE))
    if published is not None:
        handles.append(Patch(label="published", **_RANGE))
    if bold:
        handles.append(Line2D([], [], ls="", label="bold: a primary claim"))
    legend(figure, handles)
    return figure


def _is_claimed(pathology: Pathology, value: str, panel: tuple[str, pd.DataFrame]) -> bool:
    """Return whether a primary claim about a value is judged in a panel's condition."""
    return any(
        matches(panel[1], {n: v for n, v in c.condition.items() if n != pathology.treatment}).any()
        for c in pathology.claims
        if c.value == value and not c.secondary
    )


def _start_at_zero(axes: Axes) -> None:
    # The panels share their axis: its range is known only when all are drawn.
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))


_ROW_IN = 0.145
_COLOURS = dict(
    zip(
        (
            *("removes", "restores", "weakens", "strengthens", "delays", "hastens"),
            *("changes the workload", "changes little", "changes nothing", "inconclusive"),
        ),
        (*sns.color_palette("colorblind")[:7], (0.3,) * 3, (0.6,) * 3, (0.7, 0.6, 0.1)),
        strict=True,
    )
)


# Rows of a figure of interventions; it leaves out those that move least.
MOST_ROWS = 40


@styled
def attribution(table: pd.DataFrame, claims: list[Claim], kernel: str) -> Figure:
    """Draw what each intervention changes of each claim's value, the largest change first.

    `table` is one of `iolab.stats.attribution`, with a panel for each of its `claims`. There are at
    most `MOST_ROWS` rows. Filled marks with intervals are confirmed in fresh boots, hollow ones
    were screened only.
    """
    kept = table[table["n"] > 0]
    if kept.empty:
        raise UserError("no intervention was measured")
    moved = kept.assign(moved=kept["share"].abs()).groupby("intervention", sort=False)["moved"]
    order = [
        str(n) for n in moved.max().sort_values(ascending=False, kind="stable").index[:MOST_ROWS]
    ]
    figure = Figure(figsize=(DOUBLE_IN, 0.9 + _ROW_IN * (len(order) + 1)), layout="constrained")
    grid = figure.subplots(1, len(claims), sharey=True, squeeze=False)
    for axes, claim in zip(grid.flat, claims, strict=True):
        _panel(axes, kept[kept["claim"] == claim.name], claim, order)
        title_panel(axes, f"kernel {kernel}: {claim.name}")
    grid.flat[0].set_yticks(range(len(order)), order)
    grid.flat[0].set_ylim(len(order) - 0.4, -0.6)
    legend(figure, _handles(kept))
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, claim: Claim, order: list[str]) -> None:
    axes.grid(visible=True, axis="x")
    axes.axvline(1 if claim.logarithmic else 0, color="0.2", linewidth=0.8)
    for row in rows[rows["intervention"].isin(order)].to_dict("records"):
        y, colour = order.index(row["intervention"]), _COLOURS[row["effect"]]
        confirmed = row["stage"] == "confirmed"
        # Screening and confirmation have boots, and so baselines, of their own.
        limit = change_of(claim, {**row, "estimate": claim.limit})["estimate"]
        axes.vlines(limit, y - 0.5, y + 0.5, color="0.2", linestyle="--", linewidth=0.8)
        change = change_of(claim, row)
        if confirmed and np.isfinite([change["low"], change["high"]]).all():
            axes.plot([change["low"], change["high"]], [y, y], color=colour, linewidth=1)
        face = colour if confirmed else "none"
        axes.plot(change["estimate"], y, "o", ms=4, color=colour, mfc=face, zorder=3)
    kind = "factor" if claim.logarithmic else "change"
    axes.set_xlabel(f"{kind} of\n{claim.value}, {CONTRASTS[claim.contrast]}", fontsize=7)


def _handles(kept: pd.DataFrame) -> list[Line2D]:
    shown = [effect for effect in _COLOURS if (kept["effect"] == effect).any()]
    marks = [Line2D([], [], ls="", marker="o", color=_COLOURS[e], label=e) for e in shown]
    grey = "0.2"
    return [
        *marks,
        Line2D([], [], ls="", marker="o", color=grey, mfc="none", label="screened only"),
        Line2D([], [], color=grey, lw=0.8, label="no change"),
        Line2D([], [], color=grey, lw=0.8, ls="--", label="the claim's limit"),
    ]
