# SPDX-License-Identifier: MIT
"""Figures of effects, regions, cells, traces, verdicts and comparisons, and how they are saved."""

from __future__ import annotations

from iolab.figures.attribution import attribution
from iolab.figures.cells import block_figure, cpu_split, latency_ecdf
from iolab.figures.comparison import comparison_figure, publish_comparison
from iolab.figures.effects import Reference, by_kernel, by_treatment
from iolab.figures.figure import Figure
from iolab.figures.paths import path_breakdown
from iolab.figures.regions import PublishedPoint, region_iops, region_switches
from iolab.figures.save import CLOCKS, caption, save_figure
from iolab.figures.traces import (
    busiest,
    migration_intervals,
    timeline,
    waits_ecdf,
    waits_histogram,
)
from iolab.figures.turns import turns_by_clump
from iolab.figures.verdicts import verdict_grid

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
