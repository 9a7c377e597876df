# SPDX-License-Identifier: MIT
"""All verdicts as a grid, and each claim on a host's clock beside virtual time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from iolab.figures.save import CLOCKS, boots_text, clocks_text, save_figure
from iolab.figures.style import DOUBLE_IN, Figure, label_empty_panel, legend, styled
from iolab.pathology import get_pathology
from iolab.pathology.base import Claim
from iolab.pathology.claims import CONTRASTS
from iolab.stats.conditions import kernels_of
from iolab.stats.verdicts import verdict_text
from iolab_base.errors import UserError

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "reproduced": {"facecolor": "#f2b28c", "hatch": ""},
    "not reproduced": {"facecolor": "#cfe3f1", "hatch": ""},
    "other cause": {"facecolor": "#dccbe8", "hatch": ""},
    "inconclusive": {"facecolor": "#f5ecb5", "hatch": "...."},
    "not applicable": {"facecolor": "white", "hatch": "xxxx"},
    "not measured": {"facecolor": "white", "hatch": ""},
    "cannot run here": {"facecolor": "0.95", "hatch": "////"},
}
_HATCHED: Final[dict[str, Any]] = {"edgecolor": "0.65", "linewidth": 0}
_GAP: Final = 0.01
_SAYS: Final = {
    "reproduced": "yes",
    "not reproduced": "no",
    "other cause": "other",
    "inconclusive": "?",
}


@styled
def verdict_grid(table: pd.DataFrame) -> Figure:
    """Draw the rows of `verdict_table`: a row for each claim and a column for each kernel."""
    if table.empty:
        raise UserError("there is no claim to judge")
    kernels = kernels_of(table)
    rows: list[tuple[str, str]] = []
    for pathology, group in table.groupby("pathology", sort=False):
        # A report's name has a row of its own above its claims.
        rows += [(str(pathology), ""), *((str(pathology), c) for c in group["claim"].unique())]
    figure = Figure(figsize=(DOUBLE_IN, 0.6 + 0.19 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for row in table.to_dict("records"):
        x = kernels.index(row["kernel"])
        y = rows.index((row["pathology"], row["claim"]))
        # An edge has the colour of the hatch: a gap between the cells takes its place.
        style = {**_HATCHED, **_STYLES[row["verdict"]]}
        axes.add_patch(Rectangle((x + _GAP, y + 3 * _GAP), 1 - 2 * _GAP, 1 - 6 * _GAP, **style))
        if row["verdict"] in _SAYS:
            estimate = verdict_text(row).partition(" [")[0]
            text = f"{_SAYS[row['verdict']]}  {estimate}"
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7)
    axes.set(xlim=(0, len(kernels)), ylim=(len(rows), 0))
    axes.set_xticks([x + 0.5 for x in range(len(kernels))], [f"kernel {k}" for k in kernels])
    axes.set_yticks([y + 0.5 for y in range(len(rows))], [claim or name for name, claim in rows])
    for label, (_, claim) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set(fontsize=7, fontweight="normal" if claim else "bold")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    there = {name: style for name, style in _STYLES.items() if (table["verdict"] == name).any()}
    legend(figure, [Patch(label=name, **_HATCHED, **style) for name, style in there.items()])
    return figure


def grid_text(table: pd.DataFrame) -> str:
    """Return the caption of `verdict_grid`."""
    says = (
        "Each claim on each kernel, with its estimate: yes is reproduced, no is not reproduced, ? "
        f"is inconclusive; {boots_text(table['n'])}. The tables have the intervals."
    )
    return " ".join([says, *clocks_text(table)])


_COLUMNS: Final = 2
_ESTIMATE: Final = ("estimate", "low", "high")
_HERE, _VIRTUAL = sns.color_palette("colorblind")[1], sns.color_palette("colorblind")[0]
_SIDES: Final[dict[str, dict[str, Any]]] = {
    "here": {"color": _HERE, "marker": "o"},
    "virtual time": {"color": _VIRTUAL, "marker": "s", "mfc": "white"},
}
_HOLDS: Final[dict[str, Any]] = {"color": "0.94", "linewidth": 0, "zorder": 0}
RULE_SAYS: Final = (
    "The dashed line is the claim's rule, fixed before measuring: the claim is reproduced where "
    "the whole 95 % t interval over boots lies on the grey side."
)
_COMPARES: Final = (
    "Each claim's estimate here, on the host's clock, and in virtual time, with its interval. "
    f"{RULE_SAYS} The two agree if both verdicts are the same; the distance between the estimates "
    "does not count."
)


@styled
def comparison_figure(table: pd.DataFrame) -> Figure:
    """Draw each measured claim of `iolab.report.compare_clocks`: here, and in virtual time.

    There is a panel for each, with the claim's own unit and its rule; without any, the figure says
    so. A kernel has a row for each side; the row of virtual time says whether they agree.
    """
    measured = table[table["estimate"].notna() | table["virtual_estimate"].notna()]
    pathology = get_pathology(table["pathology"].iloc[0])
    panels = list(measured.groupby("claim", sort=False))
    high = max(1, -(-len(panels) // _COLUMNS))
    deep = max((len(_rows(panel)) for _, panel in panels), default=1)
    figure = Figure(figsize=(DOUBLE_IN, 0.3 + high * (0.62 + 0.17 * deep)), layout="constrained")
    grid = figure.subplots(high, _COLUMNS, squeeze=False)
    for axes, (name, panel) in zip(grid.flat, panels, strict=False):
        draw_claim(axes, pathology.claim(str(name)), _rows(panel), _SIDES)
    for axes in grid.flat[max(1, len(panels)) :]:
        axes.remove()
    if not panels:
        label_empty_panel(grid.flat[0], "no claim was measured")
    handles = [Line2D([], [], ls="", label=name, **style) for name, style in _SIDES.items()]
    legend(figure, [*handles, rule_handle()])
    return figure


def rule_handle() -> Patch:
    """Return the legend's entry for the shaded side of a claim's rule, as `draw_claim` draws it."""
    return Patch(label="reproduced, by the claim's rule", **_HOLDS)


def publish_comparison(table: pd.DataFrame, folder: Path | str | None = None) -> tuple[Figure, str]:
    """Return `comparison_figure` and its caption; save them if a folder is given."""
    figure = comparison_figure(table)
    here, virtual = boots_text(table["n"]), boots_text(table["virtual_n"])
    text = (
        f"{_COMPARES} Here {here}, in virtual time {virtual}. {CLOCKS['host']} {CLOCKS['virtual']}"
    )
    if folder is not None:
        save_figure(figure, Path(folder), "comparison", caption=text)
    return figure, text


@dataclass(frozen=True, slots=True)
class ShownEstimate:
    """One row of a claim's panel, in the style of its group."""

    group: str
    label: str
    estimate: float
    low: float
    high: float


def _rows(panel: pd.DataFrame) -> list[ShownEstimate]:
    """Return a claim's results from top to bottom: each kernel here, then virtual time."""
    rows = []
    for kernel, group in panel.groupby("kernel", sort=False):
        compared = group.to_dict("records")
        here = compared[0]
        rows.append(
            ShownEstimate("here", f"{kernel} ({here['scheduler']})", *(here[n] for n in _ESTIMATE))
        )
        rows += [
            ShownEstimate(
                "virtual time", _virtual_label(row), *(row[f"virtual_{n}"] for n in _ESTIMATE)
            )
            for row in compared
        ]
    return [row for row in rows if not math.isnan(row.estimate)]


def _virtual_label(row: dict[Any, Any]) -> str:
    """Return the label of a kernel in virtual time, with the verdicts' agreement or scheduler."""
    kernel = row["virtual_kernel"]
    if kernel != row["kernel"]:
        return f"{kernel} ({row['virtual_scheduler']})"
    agreement = row["agreement"]
    return f"{kernel}: {agreement if agreement != 'cannot be compared' else 'not compared'}"


def draw_claim(
    axes: Axes, claim: Claim, rows: Sequence[ShownEstimate], styles: Mapping[str, dict[str, Any]]
) -> None:
    """Draw estimates of a claim with their intervals from top to bottom, and its rule."""
    for y, row in enumerate(rows):
        style = styles[row.group]
        # Boots that do not differ have no interval to draw.
        ends = np.nan_to_num([row.estimate - row.low, row.high - row.estimate])
        reach = np.maximum(ends, 0).reshape(2, 1)
        axes.errorbar(
            row.estimate, y, xerr=reach, fmt="none", color=style["color"], elinewidth=1, capsize=2
        )
        axes.plot(row.estimate, y, linestyle="", zorder=4, **style)
    _rule(axes, claim)
    contrast = "" if claim.contrast == "treated" else f", {CONTRASTS[claim.contrast]}"
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"{claim.value}{contrast}", title=claim.name)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")


def _rule(axes: Axes, claim: Claim) -> None:
    """Draw a claim's limit, and shade the side of it on which the claim is reproduced."""
    axes.axvline(claim.limit, color="0.35", linewidth=0.8, linestyle="--", zorder=1)
    axes.margins(x=0.08)
    left, right = axes.get_xlim()
    ends = (claim.limit, right) if claim.above is not None else (left, claim.limit)
    axes.axvspan(*ends, **_HOLDS)
    axes.set_xlim(left, right)
