# SPDX-License-Identifier: MIT
"""Figures of effects, regions, cells, traces, verdicts and comparisons, and how they are saved.

Each is one or two columns of a paper wide. `cells` are those of one pathology, clock and target.
`traces` have a label each, the control first. `lanes` have, from top to bottom, a name and a
pattern for the comm of tasks.

UserError says that there is nothing to draw or that cells mix what may not be pooled,
MissingEventError that a trace lacks an event of the scheduler.
"""

from __future__ import annotations

from iolab.figures.cells import block_figure, cpu_split, latency_ecdf, path_breakdown
from iolab.figures.effects import Reference, attribution, by_kernel, by_treatment
from iolab.figures.regions import PublishedPoint, region_iops, region_switches
from iolab.figures.save import CLOCKS, caption, save_figure
from iolab.figures.style import Figure
from iolab.figures.traces import (
    busiest,
    migration_intervals,
    timeline,
    turns_by_clump,
    waits_ecdf,
    waits_histogram,
)
from iolab.figures.verdicts import comparison_figure, publish_comparison, verdict_grid

__all__ = [
    "CLOCKS",
    "Figure",
    "PublishedPoint",
    "Reference",
    "attribution",
    "block_figure",
    "busiest",
    "by_kernel",
    "by_treatment",
    "caption",
    "comparison_figure",
    "cpu_split",
    "latency_ecdf",
    "migration_intervals",
    "path_breakdown",
    "publish_comparison",
    "region_iops",
    "region_switches",
    "save_figure",
    "timeline",
    "turns_by_clump",
    "verdict_grid",
    "waits_ecdf",
    "waits_histogram",
]
