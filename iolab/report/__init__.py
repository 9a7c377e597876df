# SPDX-License-Identifier: MIT
"""Tables, captioned figures and comparisons for the page of a data set.

`data` is measured data, `cells` are those of one pathology, `confidence` is the level of intervals,
0..1. In tables, ``low`` and ``high`` are the ends of a t interval over boots, and ``n`` counts
these. Every function raises IolabError if a folder or file that it is given cannot be written.
"""

from iolab.report.attribution import Attribution as Attribution
from iolab.report.attribution import attribution_text as attribution_text
from iolab.report.attribution import load_attribution as load_attribution
from iolab.report.attribution import publish_attribution as publish_attribution
from iolab.report.comparison import AGREEMENTS as AGREEMENTS
from iolab.report.comparison import COMPARISON_COLUMNS as COMPARISON_COLUMNS
from iolab.report.comparison import ComparisonSection as ComparisonSection
from iolab.report.comparison import compare_clocks as compare_clocks
from iolab.report.comparison import compare_with_virtual as compare_with_virtual
from iolab.report.comparison import comparison_section as comparison_section
from iolab.report.comparison import comparison_text as comparison_text
from iolab.report.indexes import AtlasIndex as AtlasIndex
from iolab.report.indexes import VerdictIndex as VerdictIndex
from iolab.report.indexes import kernel_answers as kernel_answers
from iolab.report.indexes import published_table as published_table
from iolab.report.indexes import unjudged as unjudged
from iolab.report.pages import explained as explained
from iolab.report.pages import publish as publish
from iolab.report.pages import recorded_cells as recorded_cells
from iolab.report.pages import recorded_traces as recorded_traces
from iolab.report.pages import style_tables as style_tables
from iolab.report.pages import treatment_name as treatment_name
from iolab.report.summary import plain as plain
from iolab.report.summary import summary as summary
from iolab.report.summary import write_summary as write_summary
from iolab.report.tables import aa_check as aa_check
from iolab.report.tables import asked_claims as asked_claims
from iolab.report.tables import control_load as control_load
from iolab.report.tables import effect_table as effect_table
from iolab.report.tables import factors as factors
from iolab.report.tables import invalid_cells as invalid_cells
from iolab.report.tables import invalid_text as invalid_text
from iolab.report.tables import kernel_columns as kernel_columns
from iolab.report.tables import kernel_effects as kernel_effects
from iolab.report.tables import level_table as level_table
from iolab.report.tables import machine_table as machine_table
from iolab.report.tables import main_grid as main_grid
from iolab.report.tables import mechanism_table as mechanism_table
from iolab.report.tables import overview as overview
from iolab.report.tables import recipe_table as recipe_table
from iolab.report.tables import spinning_text as spinning_text
from iolab.report.tables import unasked_claims as unasked_claims
