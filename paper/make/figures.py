# SPDX-License-Identifier: MIT
"""Figures of the write-up that combine data sets: brackets, neighbourhoods, another clock."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D

from iolab.figures.save import CLOCKS, boots_text, save_figure
from iolab.figures.style import DOUBLE_IN, PUBLISHED, Figure, legend, level_styles, star, styled
from iolab.figures.verdicts import (
    RULE_SAYS,
    ShownEstimate,
    draw_claim,
    publish_comparison,
    rule_handle,
)
from iolab.pathology import get_pathology
from iolab.stats.estimates import COVERS

_PALETTE: Final = sns.color_palette("colorblind")
# Of a bar's parts: warm ones for the scheduler's, which come last.
_COLOURS: Final = [_PALETTE[at] for at in (0, 9, 2, 7, 8, 5, 6, 1, 3, 4)]
_BESIDE: Final[dict[str, Any]] = {"textcoords": "offset points", "va": "center"}
_SIDES: Final[dict[str, dict[str, Any]]] = {
    "own": {"color": "black", "marker": "D"},
    "with": {"color": _PALETTE[3], "marker": "o"},
    "without": {"color": _PALETTE[0], "marker": "s", "mfc": "white"},
}
_MEANS: Final = {
    "own": "the report's own kernel",
    "with": "nearest kernel with the effect",
    "without": "nearest kernel without it",
}
_FIRST: Final = "dio_kworker"
_COLUMNS: Final = 2
_NOTHING: Final = {"estimate": None, "low": None, "high": None}
# Letters in a line of a panel's title.
_LONGEST: Final = 46


@styled
def bracket_figure(brackets: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw each row of `bracket_rows`: the own kernel, and both sides of the commit."""
    high = -(-len(brackets) // _COLUMNS)
    figure = Figure(figsize=(DOUBLE_IN, 0.5 + 1.15 * high), layout="constrained")
    grid = figure.subplots(high, _COLUMNS, squeeze=False).ravel()
    for axes in grid[len(brackets) :]:
        axes.remove()
    for axes, row in zip(grid, brackets, strict=False):
        if row["published"] is not None:
            star(axes, row["published"], 0)
        rows = [_estimate(side, row[side]["kernel"], row[side]) for side in _SIDES]
        draw_claim(axes, get_pathology(row["pathology"]).claim(row["claim"]), rows, _SIDES)
        # The longest numbers of an axis are thousands.
        axes.locator_params(axis="x", nbins=5)
        title = textwrap.fill(f"{row['pathology']}: {row['claim']}", _LONGEST)
        commit = row["commit"] if len(row["commit"]) < 40 else "a patch"
        axes.set_title(f"{title}\n{row['does']} {commit}, {row['release']}", fontsize=7)
    handles = [_handle(_MEANS[side], style) for side, style in _SIDES.items()]
    legend(figure, [*handles, _handle("published", PUBLISHED), rule_handle()])
    return figure


@styled
def near_figure(near: Sequence[Mapping[str, Any]], name: str) -> Figure:
    """Draw what lies around a report's own set-up: a row for each condition and kernel."""
    mine = [row for row in near if row["pathology"] == name and row["estimate"] is not None]
    kernels = list(dict.fromkeys(row["kernel"] for row in mine))
    claims = list(dict.fromkeys(row["claim"] for row in mine))
    places = list(dict.fromkeys(row["place"] for row in mine))
    styles = dict(zip(kernels, level_styles(kernels)[1:], strict=True))
    every = [(place, kernel) for place in places for kernel in kernels]
    middles = [len(kernels) * (at + 0.5) - 0.5 for at in range(len(places))]
    figure = Figure(figsize=(DOUBLE_IN, 0.9 + 0.12 * len(every)), layout="constrained")
    panels = figure.subplots(1, len(claims), sharey=True, squeeze=False).ravel()
    for axes, title in zip(panels, claims, strict=True):
        found = {(row["place"], row["kernel"]): row for row in mine if row["claim"] == title}
        rows = [
            _estimate(kernel, "", found.get((place, kernel), _NOTHING)) for place, kernel in every
        ]
        claim = get_pathology(name).claim(title)
        if claim.published is not None:
            star(axes, claim.published, middles[places.index("")])
        draw_claim(axes, claim, rows, styles)
        for middle in middles[1:]:
            axes.axhline(middle - 0.5 * len(kernels), color="0.85", linewidth=0.5)
    panels[0].set_yticks(middles, [place or "the report's own set-up" for place in places])
    handles = [_handle(f"Linux {kernel}", style) for kernel, style in styles.items()]
    legend(figure, [*handles, _handle("published", PUBLISHED), rule_handle()])
    return figure


@styled
def cost_figure(costs: pd.DataFrame) -> Figure:
    """Draw a bar for each row of instructions per I/O, its columns side by side."""
    figure = Figure(figsize=(DOUBLE_IN, 0.9 + 0.2 * len(costs)), layout="constrained")
    axes = figure.subplots()
    ends = costs.cumsum(axis=1)
    for name, colour in zip(costs, _COLOURS, strict=False):
        starts = ends[name] - costs[name]
        axes.barh(costs.index, costs[name], left=starts, color=colour, label=name)
    for row, whole in enumerate(ends.iloc[:, -1]):
        axes.annotate(
            f"{whole:,.0f}", (whole, row), (3, 0), textcoords="offset points", va="center"
        )
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("instructions per I/O (ns of virtual time)")
    legend(figure, axes.get_legend_handles_labels()[0])
    return figure


def draw_combined(
    document: Mapping[str, Any],
    costs: tuple[pd.DataFrame, pd.Series],
    compared: Sequence[tuple[str, pd.DataFrame]],
    folder: Path,
    remade: Callable[[str], str],
) -> None:
    """Save the figures of the brackets, of the first report's neighbourhood, of another clock.

    Parameters
    ----------
    document : mapping
        The write-up's results.
    costs : (DataFrame, Series)
        What an I/O costs in and outside a cgroup, of `paper.make.observed.cost_bars`.
    compared : sequence of (str, DataFrame)
        What `iolab.report.compare_clocks` returns, with the name of its folder.
    folder : Path
        Where the figures go.
    remade : callable
        From a folder in the data, such as ``near/dio_kworker``: the commands that end a caption.
    """
    ends = f"A star is the published value. {RULE_SAYS} {CLOCKS['virtual']}"
    if document["brackets"]:
        boots = boots_text(
            pd.Series([row[side]["n"] for row in document["brackets"] for side in _SIDES])
        )
        says = f"Each report on its own kernel and on both sides of a commit, {boots}."
        caption = f"{says} {ends} {remade('controls')}"
        save_figure(bracket_figure(document["brackets"]), folder, "brackets", caption=caption)
    near = [row["n"] for row in document["near"] if row["pathology"] == _FIRST]
    if near:
        boots = boots_text(pd.Series(near))
        says = f"The first report around its own set-up, {boots}. A row says what differs from it."
        few = [f"Intervals over {n} boots cover {COVERS[n]}." for n in COVERS if n in near]
        caption = " ".join([says, *few, ends, remade(f"near/{_FIRST}")])
        save_figure(near_figure(document["near"], _FIRST), folder, "near", caption=caption)
    bars, counted = costs
    counts = f"Means, {boots_text(counted)}, without the agent and the idle task."
    says = f"What an I/O costs in and outside a cgroup, by the part of the kernel. {counts}"
    caption = f"{says} {CLOCKS['virtual']} {remade('observed')}"
    save_figure(cost_figure(bars), folder, "costs", caption=caption)
    for name, table in compared:
        both = table[table["estimate"].notna() & table["virtual_estimate"].notna()]
        figure, text = publish_comparison(both)
        caption = f"{text} {remade(f'other-clock/{name}')}"
        save_figure(figure, folder / "other-clock", name, caption=caption)


def _estimate(group: str, label: str, row: Mapping[str, Any]) -> ShownEstimate:
    values = (math.nan if row[key] is None else row[key] for key in ("estimate", "low", "high"))
    return ShownEstimate(group, label, *values)


def _handle(label: str, style: Mapping[str, Any]) -> Line2D:
    return Line2D([], [], label=label, **{"ls": "", **style})
