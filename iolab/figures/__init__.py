# SPDX-License-Identifier: MIT
"""Figures of effects, regions, cells, traces, verdicts and comparisons, and how they are saved.

Each is one or two columns of a paper wide. `cells` are those of one pathology, clock and target.
`traces` have a label each, the control first. `lanes` have, from top to bottom, a name and a
pattern for the comm of tasks.

UserError means that there is nothing to draw or that cells mix what may not be pooled,
MissingEventError that a trace lacks an event of the scheduler.
"""

from iolab.figures.cells import block_figure as block_figure
from iolab.figures.cells import cpu_split as cpu_split
from iolab.figures.cells import latency_ecdf as latency_ecdf
from iolab.figures.cells import path_breakdown as path_breakdown
from iolab.figures.effects import Reference as Reference
from iolab.figures.effects import attribution as attribution
from iolab.figures.effects import by_kernel as by_kernel
from iolab.figures.effects import by_treatment as by_treatment
from iolab.figures.regions import PublishedPoint as PublishedPoint
from iolab.figures.regions import region_iops as region_iops
from iolab.figures.regions import region_switches as region_switches
from iolab.figures.save import CLOCKS as CLOCKS
from iolab.figures.save import caption as caption
from iolab.figures.save import save_figure as save_figure
from iolab.figures.style import Figure as Figure
from iolab.figures.traces import busiest as busiest
from iolab.figures.traces import migration_intervals as migration_intervals
from iolab.figures.traces import timeline as timeline
from iolab.figures.traces import turns_by_clump as turns_by_clump
from iolab.figures.traces import waits_ecdf as waits_ecdf
from iolab.figures.traces import waits_histogram as waits_histogram
from iolab.figures.verdicts import comparison_figure as comparison_figure
from iolab.figures.verdicts import publish_comparison as publish_comparison
from iolab.figures.verdicts import verdict_grid as verdict_grid
