# SPDX-License-Identifier: MIT
"""A logarithmic axis of a treatment's levels, with the control apart at its left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from iolab.figures.style import kernel_style
from iolab.figures.words import axis_number
from iolab.pathology.base import Pathology
from iolab.pathology.factors import IntegerFactor
from iolab_base.errors import UserError

__all__ = ["TreatmentAxis", "check_numeric"]


def check_numeric(pathology: Pathology, levels: Sequence[int]) -> None:
    """Raise UserError unless the treatment's levels have a place on a logarithmic axis."""
    name = pathology.treatment
    if not isinstance(pathology.factors[name], IntegerFactor):
        raise UserError(f"{name} is not a number: draw it with figures.by_kernel")
    if any(level <= 0 for level in levels):
        raise UserError(f"{name} 0 has no logarithm: draw it with figures.by_kernel")


class TreatmentAxis:
    """An x axis of log10 of a treatment's levels, with one category apart at its left.

    `levels` are ascending and above 0; the panel is still empty; `left` names the category.
    """

    def __init__(self, axes: Axes, treatment: str, levels: Sequence[int], left: str) -> None:
        self.axes = axes
        self.treatment = treatment
        x = [float(np.log10(level)) for level in levels] or [0.0]
        span = max(1.0, x[-1] - x[0])
        self.left = x[0] - 0.27 * span
        self.gap = min([b - a for a, b in pairwise(x)], default=span)
        self.step = 0.022 * span
        axes.axvline(x[0] - 0.135 * span, color="0.7", linewidth=0.6, linestyle=":")
        axes.set_xlim(self.left - 0.1 * span, x[-1] + 0.08 * span)
        labels = [left, *map(axis_number, levels)]
        if self.gap < 0.11 * span:
            axes.tick_params(axis="x", rotation=90)
            self._thin_out(labels, x, 0.042 * span)
        axes.set_xticks([self.left, *x[: len(levels)]], labels)

    @staticmethod
    def _thin_out(labels: list[str], x: list[float], room: float) -> None:
        # Every level keeps its tick; a label that would overlap the one before is left out.
        last = -np.inf
        for index, here in enumerate(x, start=1):
            if here - last < room:
                labels[index] = ""
            else:
                last = here

    def draw(self, rows: pd.DataFrame, kernel: str, kernels: Sequence[str]) -> None:
        """Draw one kernel's points with their bars, shifted so that kernels do not overlap.

        `rows` have the treatment (missing for the control), y, low and high.
        """
        rows = rows.sort_values(self.treatment, na_position="first")
        apart = rows[self.treatment].isna().to_numpy()
        levels = rows[self.treatment].astype("Float64").to_numpy(dtype=np.float64, na_value=1.0)
        step = min(self.step, 0.6 * self.gap / len(kernels))
        aside = step * (kernels.index(kernel) - (len(kernels) - 1) / 2)
        x = np.where(apart, self.left, np.log10(levels)) + aside
        y, low, high = (rows[name].to_numpy(np.float64) for name in ("y", "low", "high"))
        style = kernel_style(kernel, kernels)
        colour = style["color"]
        self.axes.plot(x[~apart], y[~apart], linestyle=style["linestyle"], color=colour)
        # Rounding may put an end of a collapsed interval a hair beyond its centre.
        reach = [np.maximum(y - low, 0), np.maximum(high - y, 0)]
        self.axes.errorbar(
            x, y, reach, fmt="none", color=colour, elinewidth=1.0, capsize=2, zorder=3
        )
        self.axes.plot(x, y, style["marker"], color=colour, mec="white", mew=0.3, zorder=4)
