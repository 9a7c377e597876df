# SPDX-License-Identifier: MIT
"""What an I/O costs, split by subsystem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import StrMethodFormatter

from iolab.figures.style import DOUBLE_IN, legend, styled
from iolab_base.errors import UserError

__all__ = ["cost_split"]

# Okabe and Ito's colours and greys, with a hatch for readers who see no colour.
_LOOKS = {
    "user": ("#56b4e9", ""),
    "submit": ("#0072b2", ""),
    "complete": ("#009e73", ""),
    "memory": ("#999999", ""),
    "schedule": ("#d55e00", ""),
    "wake": ("#e69f00", "//"),
    "cgroup": ("#cc79a7", "\\\\"),
    "timer": ("#f0e442", ".."),
    "idle": ("#ffffff", ""),
    "other": ("#dddddd", "xx"),
}


@styled
def cost_split(
    costs: pd.DataFrame, label: str = "instructions per I/O (ns of virtual time)"
) -> Figure:
    """Draw what an I/O costs in several conditions, as stacked bars by subsystem.

    `costs` has a row for each condition, named by its index, and columns among
    `guestprof.profile.KINDS`, as from `iolab.stats.profiles.subsystem_table`. Two columns of a
    paper wide. Raises UserError if there is nothing to draw.
    """
    kinds = [name for name in _LOOKS if name in costs.columns and costs[name].any()]
    if costs.empty or not kinds:
        raise UserError("there are no costs to draw: observe a cell first")
    figure = Figure(figsize=(DOUBLE_IN, 0.9 + 0.28 * len(costs)), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(costs))
    for name in kinds:
        colour, hatch = _LOOKS[name]
        width = costs[name].fillna(0.0).to_numpy(dtype=np.float64)
        style: dict[str, Any] = {"edgecolor": "0.4", "linewidth": 0.4}
        axes.barh(range(len(costs)), width, 0.75, left, color=colour, hatch=hatch, **style)
        left += width
    for n, whole in enumerate(left):
        axes.text(whole, n, f" {whole:,.0f}", va="center", fontsize=7)
    axes.set_yticks(range(len(costs)), [str(name) for name in costs.index])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1 * left.max())
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel(label)
    patches = [
        Patch(facecolor=_LOOKS[name][0], hatch=_LOOKS[name][1], edgecolor="0.4", label=name)
        for name in kinds
    ]
    legend(figure, patches)
    return figure
