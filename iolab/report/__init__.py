# SPDX-License-Identifier: MIT
"""Tables, captioned figures and comparisons for the page of a data set.

`data` is measured data, `cells` are those of one pathology, `confidence` is the level of intervals,
0..1. In tables, ``low`` and ``high`` are the ends of a t interval over boots, and ``n`` counts
these. Every function raises IolabError if a folder or file that it is given cannot be written.
"""

from __future__ import annotations

from iolab.report.atlas import AtlasIndex, atlas_index, published_table
from iolab.report.attribution import (
    Attribution,
    attribution_text,
    load_attribution,
    publish_attribution,
)
from iolab.report.comparison import (
    AGREEMENTS,
    COMPARISON_COLUMNS,
    compare_clocks,
    compare_with_virtual,
    comparison_text,
)
from iolab.report.pages import (
    ComparisonSection,
    VerdictIndex,
    comparison_section,
    explained,
    publish,
    recorded_cells,
    recorded_traces,
    style_tables,
    treatment_name,
    verdict_index,
)
from iolab.report.summary import plain, summary, write_summary
from iolab.report.tables import (
    aa_check,
    asked_claims,
    control_load,
    effect_table,
    factors,
    invalid_cells,
    invalid_text,
    kernel_effects,
    level_table,
    machine_table,
    main_grid,
    mechanism_table,
    overview,
    recipe_table,
    spinning_text,
    unasked_claims,
)

__all__ = [
    "AGREEMENTS",
    "COMPARISON_COLUMNS",
    "AtlasIndex",
    "Attribution",
    "ComparisonSection",
    "VerdictIndex",
    "aa_check",
    "asked_claims",
    "atlas_index",
    "attribution_text",
    "compare_clocks",
    "compare_with_virtual",
    "comparison_section",
    "comparison_text",
    "control_load",
    "effect_table",
    "explained",
    "factors",
    "invalid_cells",
    "invalid_text",
    "kernel_effects",
    "level_table",
    "load_attribution",
    "machine_table",
    "main_grid",
    "mechanism_table",
    "overview",
    "plain",
    "publish",
    "publish_attribution",
    "published_table",
    "recipe_table",
    "recorded_cells",
    "recorded_traces",
    "spinning_text",
    "style_tables",
    "summary",
    "treatment_name",
    "unasked_claims",
    "verdict_index",
    "write_summary",
]
