# SPDX-License-Identifier: MIT
"""Statistics: from measured cells to estimates, intervals, thresholds and verdicts."""

from __future__ import annotations

from iolab.stats.claims import Judged, boot_values, cells_of, judge
from iolab.stats.conditions import (
    cell_columns,
    comparable_cells,
    in_kernel_order,
    kernel_order,
    kernels_of,
    levels_of,
    pair_columns,
    pathology_of,
    refuse_mixture,
    shared_columns,
    valid_cells,
)
from iolab.stats.drift import order_effect, order_table
from iolab.stats.estimates import CONFIDENCE, Estimate, Statistic, estimate, ratio_of, sign_flip
from iolab.stats.families import (
    Membership,
    declared_claims,
    discoveries,
    family_members,
    holm,
    holm_family,
    measured_family,
)
from iolab.stats.intervals import (
    ROUNDING,
    Floats,
    check_confidence,
    crossover_interval,
    format_boots,
    t_interval,
    what_is_missing,
)
from iolab.stats.kernels import kernel_ratio
from iolab.stats.knee import GROWS, Hinge, Knee, hinge, knee, knee_table
from iolab.stats.outliers import mark_outliers
from iolab.stats.pairs import boot_means, log_values, matched_pairs
from iolab.stats.regions import IOPS_LOST, crossed_cells, region_table
from iolab.stats.tables import mean_table, pair_ratios, ratio_table, recording_cost
from iolab.stats.threshold import Threshold, threshold
from iolab.stats.verdicts import (
    VERDICTS,
    rule_text,
    verdict_summary,
    verdict_table,
    verdict_text,
)
from iolab.stats.welch import Difference, welch_difference

__all__ = [
    "CONFIDENCE",
    "GROWS",
    "IOPS_LOST",
    "ROUNDING",
    "VERDICTS",
    "Difference",
    "Estimate",
    "Floats",
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
    "check_confidence",
    "comparable_cells",
    "crossed_cells",
    "crossover_interval",
    "declared_claims",
    "discoveries",
    "estimate",
    "family_members",
    "format_boots",
    "hinge",
    "holm",
    "holm_family",
    "in_kernel_order",
    "judge",
    "kernel_order",
    "kernel_ratio",
    "kernels_of",
    "knee",
    "knee_table",
    "levels_of",
    "log_values",
    "mark_outliers",
    "matched_pairs",
    "mean_table",
    "measured_family",
    "order_effect",
    "order_table",
    "pair_columns",
    "pair_ratios",
    "pathology_of",
    "ratio_of",
    "ratio_table",
    "recording_cost",
    "refuse_mixture",
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
    "what_is_missing",
]
