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
    Estimate,
    draw_claim,
    publish_comparison,
    rule_handle,
)
from iolab.pathology import get_pathology

_PALETTE: Final = sns.color_palette("colorblind")
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


def draw_combined(
    document: Mapping[str, Any],
    compared: Sequence[tuple[str, pd.DataFrame]],
    folder: Path,
    remade: Callable[[str], str],
) -> None:
    """Save the figures of the brackets, of the first report's neighbourhood, of another clock.

    Parameters
    ----------
    document : mapping
        The write-up's results.
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
        caption = f"{says} {ends} {remade(f'near/{_FIRST}')}"
        save_figure(near_figure(document["near"], _FIRST), folder, "near", caption=caption)
    for name, table in compared:
        both = table[table["estimate"].notna() & table["virtual_estimate"].notna()]
        figure, text = publish_comparison(both)
        caption = f"{text} {remade(f'other-clock/{name}')}"
        save_figure(figure, folder / "other-clock", name, caption=caption)


def _estimate(group: str, label: str, row: Mapping[str, Any]) -> Estimate:
    values = (math.nan if row[key] is None else row[key] for key in ("estimate", "low", "high"))
    return Estimate(group, label, *values)


def _handle(label: str, style: Mapping[str, Any]) -> Line2D:
    return Line2D([], [], label=label, **{"ls": "", **style})
