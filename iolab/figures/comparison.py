# SPDX-License-Identifier: MIT
"""Figure of each claim on a host's clock and in virtual time: estimates, intervals, the rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from iolab.figures.figure import Figure
from iolab.figures.panels import label_empty_panel
from iolab.figures.save import CLOCKS, save_figure
from iolab.figures.style import DOUBLE_IN, legend, styled
from iolab.pathology import get_pathology
from iolab.pathology.base import Claim

__all__ = ["comparison_figure", "publish_comparison"]

_COLUMNS: Final = 2
_ESTIMATE: Final = ("estimate", "low", "high")
_HERE, _VIRTUAL = sns.color_palette("colorblind")[1], sns.color_palette("colorblind")[0]
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "here": {"color": _HERE, "marker": "o"},
    "virtual time": {"color": _VIRTUAL, "marker": "s", "mfc": "white"},
}
_HOLDS: Final[dict[str, Any]] = {"color": "0.94", "linewidth": 0, "zorder": 0}
_SAYS: Final = (
    "Each claim's estimate here, on the host's clock, and in virtual time, with 95 % t intervals "
    "over boots. The dashed line is the claim's rule, fixed before measuring: the claim is "
    "reproduced where the whole interval lies on the grey side. The two agree where both verdicts "
    "are the same; how far apart the estimates are decides nothing."
)


@styled
def comparison_figure(table: pd.DataFrame) -> Figure:
    """Draw a panel for each claim that was measured: here, and in virtual time.

    Each panel has the claim's own unit and its rule. A kernel has a row for each side; the row of
    virtual time says whether they agree.

    Parameters
    ----------
    table : DataFrame
        Rows of `iolab.report.comparison.compare_clocks`.

    Returns
    -------
    Figure
        Two columns of a paper wide; where no claim was measured, an empty panel says so.
    """
    measured = table[table["estimate"].notna() | table["virtual_estimate"].notna()]
    claims = {claim.name: claim for claim in get_pathology(table["pathology"].iloc[0]).claims}
    panels = list(measured.groupby("claim", sort=False))
    high = max(1, -(-len(panels) // _COLUMNS))
    deep = max((len(_rows(panel)) for _, panel in panels), default=1)
    figure = Figure(figsize=(DOUBLE_IN, 0.3 + high * (0.62 + 0.17 * deep)), layout="constrained")
    grid = figure.subplots(high, _COLUMNS, squeeze=False)
    for axes, (name, panel) in zip(grid.flat, panels, strict=False):
        _draw(axes, claims[str(name)], _rows(panel))
    for axes in grid.flat[max(1, len(panels)) :]:
        axes.remove()
    if not panels:
        label_empty_panel(grid.flat[0], "no claim was measured")
    handles = [Line2D([], [], ls="", label=name, **style) for name, style in _STYLES.items()]
    legend(figure, [*handles, Patch(label="reproduced, by the claim's rule", **_HOLDS)])
    return figure


def publish_comparison(table: pd.DataFrame, folder: Path | str | None = None) -> tuple[Figure, str]:
    """Draw a comparison, and save it if a folder is given.

    Parameters
    ----------
    table : DataFrame
        Rows of `iolab.report.comparison.compare_clocks`.
    folder : Path or str, optional
        Where ``comparison.png``, ``.svg``, ``.pdf`` and ``.txt`` go.

    Returns
    -------
    figure : Figure
        As `comparison_figure` draws it.
    caption : str
        Its caption.

    Raises
    ------
    IolabError
        If the folder cannot be written.
    """
    figure = comparison_figure(table)
    text = f"{_SAYS} {CLOCKS['host']} {CLOCKS['virtual']}"
    if folder is not None:
        save_figure(figure, Path(folder), "comparison", caption=text)
    return figure, text


@dataclass(frozen=True, slots=True)
class _Row:
    """One side's result of a claim on a kernel."""

    side: str
    label: str
    estimate: float
    low: float
    high: float


def _rows(panel: pd.DataFrame) -> list[_Row]:
    """Return a claim's results from top to bottom: each kernel here, then virtual time."""
    rows = []
    for kernel, group in panel.groupby("kernel", sort=False):
        compared = group.to_dict("records")
        here = compared[0]
        label = f"{kernel} ({here['scheduler']})"
        rows.append(_Row("here", label, *(here[n] for n in _ESTIMATE)))
        rows += [
            _Row("virtual time", _virtual_label(row), *(row[f"virtual_{n}"] for n in _ESTIMATE))
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


def _draw(axes: Axes, claim: Claim, rows: Sequence[_Row]) -> None:
    for y, row in enumerate(rows):
        style = _STYLES[row.side]
        # Boots that do not differ have no interval to draw.
        ends = np.nan_to_num([row.estimate - row.low, row.high - row.estimate])
        reach = np.maximum(ends, 0).reshape(2, 1)
        axes.errorbar(
            row.estimate, y, xerr=reach, fmt="none", color=style["color"], elinewidth=1, capsize=2
        )
        axes.plot(row.estimate, y, linestyle="", zorder=4, **style)
    _rule(axes, claim)
    contrast = {"ratio": ", treated / control", "difference": ", treated - control", "treated": ""}
    axes.set(
        ylim=(len(rows) - 0.5, -0.5),
        xlabel=f"{claim.value}{contrast[claim.contrast]}",
        title=claim.name,
    )
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")


def _rule(axes: Axes, claim: Claim) -> None:
    """Draw a claim's limit, and shade the side of it on which the claim is reproduced."""
    limit = claim.below if claim.above is None else claim.above
    if limit is None:
        return
    axes.axvline(limit, color="0.35", linewidth=0.8, linestyle="--", zorder=1)
    axes.margins(x=0.08)
    left, right = axes.get_xlim()
    axes.axvspan(*((limit, right) if claim.above is not None else (left, limit)), **_HOLDS)
    axes.set_xlim(left, right)
