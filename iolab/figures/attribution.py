# SPDX-License-Identifier: MIT
"""The effect of each intervention on a claim: a row for each, against the claim's limit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from iolab.figures.figure import Figure
from iolab.figures.style import DOUBLE_IN, legend, styled
from iolab.pathology.base import Claim
from iolab_base.errors import UserError

__all__ = ["attribution"]

_ROW_IN = 0.145
_COLOURS = dict(
    zip(
        (
            *("removes", "restores", "weakens", "strengthens", "delays", "hastens"),
            *("changes little", "changes nothing", "inconclusive"),
        ),
        (*sns.color_palette("colorblind")[:6], (0.3,) * 3, (0.6,) * 3, (0.7, 0.6, 0.1)),
        strict=True,
    )
)
_CONTRASTS = {
    "ratio": "{}, treated / control",
    "difference": "{}, treated - control",
    "treated": "{}, treated",
}


@styled
def attribution(table: pd.DataFrame, claims: list[Claim], *, most: int = 40) -> Figure:
    """Draw each claim's value under each intervention, the furthest from its baseline first.

    Parameters
    ----------
    table : DataFrame
        A table of `iolab.stats.attribution`.
    claims : list of Claim
        The claims in it: a panel each.
    most : int, optional
        Rows at most; those that move least are left out.

    Returns
    -------
    Figure
        Two columns of a paper wide. Filled marks with intervals are confirmed in fresh boots,
        hollow ones were screened only.

    Raises
    ------
    UserError
        If there is nothing to draw.
    """
    kept = table[table["n"] > 0]
    if kept.empty:
        raise UserError("no intervention was measured")
    moved = kept.assign(moved=kept["share"].abs()).groupby("intervention", sort=False)["moved"]
    order = [str(n) for n in moved.max().sort_values(ascending=False, kind="stable").index[:most]]
    height_in = 0.9 + _ROW_IN * (len(order) + 1)
    figure = Figure(figsize=(DOUBLE_IN, height_in), layout="constrained")
    grid = figure.subplots(1, len(claims), sharey=True, squeeze=False)
    for axes, claim in zip(grid.flat, claims, strict=True):
        _panel(axes, kept[kept["claim"] == claim.name], claim, order)
    grid.flat[0].set_yticks(range(len(order)), order)
    grid.flat[0].set_ylim(len(order) - 0.4, -0.6)
    legend(figure, _handles(kept))
    return figure


def _panel(axes: Axes, rows: pd.DataFrame, claim: Claim, order: list[str]) -> None:
    axes.grid(visible=True, axis="x")
    axes.axvline(claim.limit, color="0.2", linestyle="--", linewidth=0.8)
    for row in rows[rows["intervention"].isin(order)].to_dict("records"):
        y, colour = order.index(row["intervention"]), _COLOURS[row["effect"]]
        confirmed = row["stage"] == "confirmed"
        # Screening and confirmation have boots, and so baselines, of their own.
        axes.vlines(row["baseline"], y - 0.5, y + 0.5, color="0.2", linewidth=0.8)
        if confirmed and np.isfinite([row["low"], row["high"]]).all():
            axes.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=1)
        face = colour if confirmed else "none"
        axes.plot(row["estimate"], y, "o", ms=4, color=colour, mfc=face, zorder=3)
    axes.set_xlabel(_CONTRASTS[claim.contrast].format(claim.value), fontsize=7)
    axes.set_title(claim.name, fontsize=7)


def _handles(kept: pd.DataFrame) -> list[Line2D]:
    shown = [effect for effect in _COLOURS if (kept["effect"] == effect).any()]
    marks = [Line2D([], [], ls="", marker="o", color=_COLOURS[e], label=e) for e in shown]
    grey = "0.2"
    hollow = Line2D([], [], ls="", marker="o", color=grey, mfc="none", label="screened only")
    return [
        *marks,
        hollow,
        Line2D([], [], color=grey, lw=0.8, label="without intervention"),
        Line2D([], [], color=grey, lw=0.8, ls="--", label="limit of the claim"),
    ]
