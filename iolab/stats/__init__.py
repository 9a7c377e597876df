# SPDX-License-Identifier: MIT
"""Statistics: from measured cells to estimates, intervals, thresholds and verdicts.

What several functions take: `cells` are those of one pathology, as `iolab.store.dataset.Dataset`
has them. `value` is a column of theirs, a positive quantity in any unit. `by` are the columns that
make a condition. `confidence` is the level of the intervals, 0..1. Tables have a row for each
condition; ``low`` and ``high`` are the ends of a t interval over boots, and ``n`` counts these.

Functions raise UserError if an argument is wrong, if no cell counts, or if a row would pool
different conditions, pathologies, targets, clocks or kernel releases.
"""

from iolab.stats.claims import Judged as Judged
from iolab.stats.claims import boot_values as boot_values
from iolab.stats.claims import cells_of as cells_of
from iolab.stats.claims import judge as judge
from iolab.stats.conditions import boot_means as boot_means
from iolab.stats.conditions import cell_columns as cell_columns
from iolab.stats.conditions import comparable_cells as comparable_cells
from iolab.stats.conditions import kernel_order as kernel_order
from iolab.stats.conditions import kernels_of as kernels_of
from iolab.stats.conditions import levels_of as levels_of
from iolab.stats.conditions import mark_outliers as mark_outliers
from iolab.stats.conditions import matched_pairs as matched_pairs
from iolab.stats.conditions import order_effect as order_effect
from iolab.stats.conditions import order_table as order_table
from iolab.stats.conditions import pair_columns as pair_columns
from iolab.stats.conditions import pathology_of as pathology_of
from iolab.stats.conditions import shared_columns as shared_columns
from iolab.stats.conditions import valid_cells as valid_cells
from iolab.stats.estimates import CONFIDENCE as CONFIDENCE
from iolab.stats.estimates import Difference as Difference
from iolab.stats.estimates import Estimate as Estimate
from iolab.stats.estimates import Statistic as Statistic
from iolab.stats.estimates import crossover_interval as crossover_interval
from iolab.stats.estimates import estimate as estimate
from iolab.stats.estimates import sign_flip as sign_flip
from iolab.stats.estimates import t_interval as t_interval
from iolab.stats.estimates import welch_difference as welch_difference
from iolab.stats.shape import GROWS as GROWS
from iolab.stats.shape import Hinge as Hinge
from iolab.stats.shape import Knee as Knee
from iolab.stats.shape import Threshold as Threshold
from iolab.stats.shape import hinge as hinge
from iolab.stats.shape import knee as knee
from iolab.stats.shape import knee_table as knee_table
from iolab.stats.shape import threshold as threshold
from iolab.stats.tables import IOPS_LOST as IOPS_LOST
from iolab.stats.tables import crossed_cells as crossed_cells
from iolab.stats.tables import kernel_ratio as kernel_ratio
from iolab.stats.tables import mean_table as mean_table
from iolab.stats.tables import pair_ratios as pair_ratios
from iolab.stats.tables import ratio_table as ratio_table
from iolab.stats.tables import recording_cost as recording_cost
from iolab.stats.tables import region_table as region_table
from iolab.stats.verdicts import VERDICTS as VERDICTS
from iolab.stats.verdicts import Membership as Membership
from iolab.stats.verdicts import declared_claims as declared_claims
from iolab.stats.verdicts import discoveries as discoveries
from iolab.stats.verdicts import holm as holm
from iolab.stats.verdicts import holm_family as holm_family
from iolab.stats.verdicts import measured_family as measured_family
from iolab.stats.verdicts import rule_text as rule_text
from iolab.stats.verdicts import verdict_summary as verdict_summary
from iolab.stats.verdicts import verdict_table as verdict_table
from iolab.stats.verdicts import verdict_text as verdict_text
