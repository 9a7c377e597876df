# SPDX-License-Identifier: MIT
"""Figure of the turns of two tasks after each clump of completions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import seaborn as sns

from iolab import measure
from iolab.figures.figure import Figure
from iolab.figures.panels import grid_of, label_empty_panel, outer_labels
from iolab.figures.style import styled
from tracedat import Trace

__all__ = ["turns_by_clump"]


@styled
def turns_by_clump(traces: Mapping[str, Trace], one: str, other: str) -> Figure:
    """Draw the switches between two tasks per I/O, a point for each clump of completions.

    A panel says so where no such `other` runs: a kernel may complete I/O without a kworker.

    Parameters
    ----------
    traces : mapping of str to Trace
        Traces by their label; a panel for each.
    one, other : str
        Regular expressions for the whole names of the tasks.

    Returns
    -------
    Figure
        Two columns of a paper wide.

    Raises
    ------
    MissingEventError, UserError
        As `iolab.measure.turns_by_clump`, but for an `other` that does not run.
    """
    figure, grid = grid_of(len(traces), 1, height_in=1.8)
    colour = sns.color_palette("colorblind")[0]
    most = [1.0]
    for axes, (label, trace) in zip(grid.flat, traces.items(), strict=False):
        axes.set_title(label)
        tasks = trace.frame("sched_switch")["next_comm"].cat.categories
        if not tasks.str.fullmatch(other).any():
            label_empty_panel(axes, f"no task {other} runs")
            continue
        clumps = measure.turns_by_clump(trace, one, other)
        at_ms = (clumps["start_ns"] - clumps["start_ns"].min()) / 1e6
        axes.plot(at_ms, clumps["switches_per_io"], "o", markersize=3, color=colour, alpha=0.7)
        most.append(clumps["switches_per_io"].max())
    top = np.nanmax(most)
    for axes in grid.flat:
        axes.set_ylim(-0.05 * top, 1.1 * top)
    outer_labels(grid, "time in the trace (ms)", "switches per I/O of a clump")
    return figure
