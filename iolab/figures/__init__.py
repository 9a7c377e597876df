# SPDX-License-Identifier: MIT
"""Figures of cells, traces, verdicts and comparisons, and how they are saved."""

from __future__ import annotations

from iolab.figures.cells import (
    Reference,
    block_figure,
    by_kernel,
    cpu_split_by_weight,
    iops_heatmap,
    iops_ratio_by_weight,
    latency_ecdf,
    switches_per_io_by_weight,
)
from iolab.figures.comparison import comparison_figure, publish_comparison
from iolab.figures.save import CLOCKS, caption, save_figure
from iolab.figures.traces import (
    LANES,
    busiest,
    migration_intervals,
    path_breakdown,
    timeline,
    waits_ecdf,
    waits_histogram,
)
from iolab.figures.verdicts import verdict_grid

__all__ = [
    "CLOCKS",
    "LANES",
    "Reference",
    "block_figure",
    "busiest",
    "by_kernel",
    "caption",
    "comparison_figure",
    "cpu_split_by_weight",
    "iops_heatmap",
    "iops_ratio_by_weight",
    "latency_ecdf",
    "migration_intervals",
    "path_breakdown",
    "publish_comparison",
    "save_figure",
    "switches_per_io_by_weight",
    "timeline",
    "verdict_grid",
    "waits_ecdf",
    "waits_histogram",
]
