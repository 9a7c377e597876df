# SPDX-License-Identifier: MIT
"""Statistics: from measured cells to estimates, intervals, thresholds and verdicts.

What several functions take: `cells` are those of one pathology, as `iolab.store.dataset.Dataset`
has them. `value` is a column of theirs, a positive quantity in any unit. `by` are the columns that
make a condition. `confidence` is the level of the intervals, 0..1. Tables have a row for each
condition; ``low`` and ``high`` are the ends of a t interval over boots, and ``n`` counts these.

UserError says what is wrong with an argument, that no cell counts, or that the cells of a row would
pool different conditions, pathologies, targets, clocks or kernel releases.
"""

from __future__ import annotations

from iolab.stats.claims import Judged, boot_values, cells_of, judge
from iolab.stats.conditions import (
    boot_means,
    cell_columns,
    comparable_cells,
    kernel_order,
    kernels_of,
    levels_of,
    matched_pairs,
    pair_columns,
    pathology_of,
    shared_columns,
    valid_cells,
)
from iolab.stats.estimates import (
    CONFIDENCE,
    Estimate,
    Statistic,
    crossover_interval,
    estimate,
    sign_flip,
    t_interval,
)
from iolab.stats.order import mark_outliers, order_effect, order_table
from iolab.stats.shape import GROWS, Hinge, Knee, Threshold, hinge, knee, knee_table, threshold
from iolab.stats.tables import (
    IOPS_LOST,
    crossed_cells,
    kernel_ratio,
    mean_table,
    pair_ratios,
    ratio_table,
    recording_cost,
    region_table,
)
from iolab.stats.unpaired import Difference, welch_difference
from iolab.stats.verdicts import (
    VERDICTS,
    Membership,
    declared_claims,
    discoveries,
    holm,
    holm_family,
    measured_family,
    rule_text,
    verdict_summary,
    verdict_table,
    verdict_text,
)

__all__ = [
    "CONFIDENCE",
    "GROWS",
    "IOPS_LOST",
    "VERDICTS",
    "Difference",
    "Estimate",
    "Hinge",
    "Judged",
    "Knee",
    "Membership",
    "Statistic",
    "Threshold",
    "boot_means",
    "boot_values",
    "cell_columns",
    "cells_of",
    "comparable_cells",
    "crossed_cells",
    "crossover_interval",
    "declared_claims",
    "discoveries",
    "estimate",
    "hinge",
    "holm",
    "holm_family",
    "judge",
    "kernel_order",
    "kernel_ratio",
    "kernels_of",
    "knee",
    "knee_table",
    "levels_of",
    "mark_outliers",
    "matched_pairs",
    "mean_table",
    "measured_family",
    "order_effect",
    "order_table",
    "pair_columns",
    "pair_ratios",
    "pathology_of",
    "ratio_table",
    "recording_cost",
    "region_table",
    "rule_text",
    "shared_columns",
    "sign_flip",
    "t_interval",
    "threshold",
    "valid_cells",
    "verdict_summary",
    "verdict_table",
    "verdict_text",
    "welch_difference",
]
