# SPDX-License-Identifier: MIT
"""Tables of a page, and the words of their verdicts."""

from __future__ import annotations

from iolab.stats.verdicts import VERDICTS
from paper.make.marked import WORDS, table, verdict_cell


def test_each_verdict_has_a_word() -> None:
    assert set(WORDS) == set(VERDICTS)


def test_a_table_has_a_row_of_rules_below_its_head() -> None:
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_what_was_not_measured_has_no_estimate() -> None:
    assert verdict_cell({"verdict": "cannot run here", "n": 0}) == "-"
