# SPDX-License-Identifier: MIT
"""Tables for people: what a page says about a data set."""

from __future__ import annotations

from iolab.report.comparison import (
    AGREEMENTS,
    COMPARISON_COLUMNS,
    compare_clocks,
    compare_with_virtual,
    comparison_text,
)
from iolab.report.tables import (
    aa_check,
    factors,
    headline,
    invalid_cells,
    kernel_effects,
    level_table,
    machine_table,
    main_grid,
    mechanism_table,
    overview,
    plain,
    publish,
    recorded_traces,
    regime,
    summary,
    write_summary,
)

__all__ = [
    "AGREEMENTS",
    "COMPARISON_COLUMNS",
    "aa_check",
    "compare_clocks",
    "compare_with_virtual",
    "comparison_text",
    "factors",
    "headline",
    "invalid_cells",
    "kernel_effects",
    "level_table",
    "machine_table",
    "main_grid",
    "mechanism_table",
    "overview",
    "plain",
    "publish",
    "recorded_traces",
    "regime",
    "summary",
    "write_summary",
]
