# SPDX-License-Identifier: MIT
"""Each claim on the host's clock and in virtual time: two estimates, their intervals, the rule."""

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
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from iolab.figures.save import CLOCKS, save_figure
from iolab.figures.style import DOUBLE_IN, label_empty_panel, legend, styled
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
    "over boots. The dashed line is the claim's rule, fixed before measuring: it is reproduced "
    "where the whole interval lies on the grey side. Sides agree where both verdicts are the same."
)


@styled
def comparison_figure(table: pd.DataFrame) -> Figure:
    """Draw a panel for each claim that was measured on a side: here and in virtual time.

    `table` is of `iolab.report.comparison.compare_clocks`. Each panel has the claim's own unit and
    its rule; a kernel has a row for each side, and the row of virtual time says whether they agree.
    Where no claim was measured, an empty panel says so.
    """
    told = table[table["estimate"].notna() | table["virtual_estimate"].notna()]
    claims = {claim.name: claim for claim in get_pathology(table["pathology"].iloc[0]).claims}
    panels = list(told.groupby("claim", sort=False))
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
    handles = [Line2D([], [], ls="", label=name, **look) for name, look in _STYLES.items()]
    legend(figure, [*handles, Patch(label="reproduced, by the claim's rule", **_HOLDS)])
    return figure


def publish_comparison(table: pd.DataFrame, folder: Path | str | None = None) -> tuple[Figure, str]:
    """Draw a table of `compare_clocks`; return figure and caption, saved in a folder if given.

    Errors: IolabError if the folder cannot be written.
    """
    figure = comparison_figure(table)
    text = f"{_SAYS} {CLOCKS['host']} {CLOCKS['virtual']}"
    if folder is not None:
        save_figure(figure, Path(folder), "beside", caption=text)
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
    """Return a claim's results from top to bottom: each kernel here, then those beside it."""
    rows = []
    for kernel, beside_it in panel.groupby("kernel", sort=False):
        found = beside_it.to_dict("records")
        label = f"{kernel} ({found[0]['scheduler']})"
        rows.append(_Row("here", label, *(found[0][n] for n in _ESTIMATE)))
        rows += [
            _Row("virtual time", _beside(row), *(row[f"virtual_{n}"] for n in _ESTIMATE))
            for row in found
        ]
    return [row for row in rows if not math.isnan(row.estimate)]


def _beside(row: dict[Any, Any]) -> str:
    """Name a kernel of virtual time: with what the two verdicts say, or with its scheduler."""
    kernel = row["virtual_kernel"]
    if kernel != row["kernel"]:
        return f"{kernel} ({row['virtual_scheduler']})"
    said = row["agreement"]
    return f"{kernel}: {said if said != 'cannot be compared' else 'not compared'}"


def _draw(axes: Axes, claim: Claim, rows: Sequence[_Row]) -> None:
    for y, row in enumerate(rows):
        look = _STYLES[row.side]
        # Where boots do not differ there is no interval to draw.
        ends = np.nan_to_num([row.estimate - row.low, row.high - row.estimate])
        reach = np.maximum(ends, 0).reshape(2, 1)
        axes.errorbar(
            row.estimate, y, xerr=reach, fmt="none", color=look["color"], elinewidth=1, capsize=2
        )
        axes.plot(row.estimate, y, linestyle="", zorder=4, **look)
    _rule(axes, claim)
    of = {"ratio": ", treated / control", "difference": ", treated - control", "treated": ""}
    axes.set(
        ylim=(len(rows) - 0.5, -0.5), xlabel=f"{claim.value}{of[claim.contrast]}", title=claim.name
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
