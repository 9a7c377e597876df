# SPDX-License-Identifier: MIT
"""The grid of all verdicts, and claims beside virtual time: what the drawings hold."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from iolab.figures.verdicts import (
    ShownEstimate,
    comparison_figure,
    draw_claim,
    grid_text,
    publish_comparison,
    verdict_grid,
)
from iolab.pathology import get_pathology
from iolab.report.comparison import compare_clocks
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from tests.support.clocks import hardware, here, table, virtual

__all__ = ["here", "table", "virtual"]


def test_the_figure_has_a_field_for_each_claim_and_kernel(data: Dataset) -> None:
    table = verdict_table(data)
    figure = verdict_grid(table)
    assert len(figure.axes[0].patches) == len(table)
    with pytest.raises(UserError, match="no claim"):
        verdict_grid(table[:0])


def _verdicts(*rows: tuple[str, str, str, float]) -> pd.DataFrame:
    columns = ["claim", "kernel", "verdict", "estimate"]
    return pd.DataFrame(rows, columns=columns).assign(
        pathology="dio_kworker", low=math.nan, high=math.nan, reason="", n=3, clock="host"
    )


def test_a_field_says_its_verdict_where_its_kernel_and_claim_cross() -> None:
    figure = verdict_grid(
        _verdicts(
            ("IOPS lost", "6.1", "reproduced", 0.71),
            ("IOPS lost", "6.12", "not reproduced", 0.99),
            ("core used up", "6.1", "inconclusive", 0.5),
            ("core used up", "6.12", "cannot run here", math.nan),
        )
    )
    (axes,) = figure.axes
    # The first row is the report's name.
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0.5, 1.5): "yes  0.71",
        (1.5, 1.5): "no  0.99",
        (0.5, 2.5): "?  0.5",
    }
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == ["dio_kworker", "IOPS lost", "core used up"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["kernel 6.1", "kernel 6.12"]
    fields = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [to_hex(patch.get_facecolor()) for patch in fields[:2]] == ["#f2b28c", "#cfe3f1"]
    assert [patch.get_hatch() for patch in fields[2:]] == ["....", "////"]


def test_the_caption_of_the_grid_counts_boots_and_names_the_clock() -> None:
    said = grid_text(_verdicts(("IOPS lost", "6.1", "reproduced", 0.71)))
    assert "n = 3 boots" in said
    assert "Host clock" in said


@pytest.mark.parametrize(("name", "above"), [("two switches per I/O", True), ("IOPS lost", False)])
def test_the_side_of_the_limit_on_which_a_claim_holds_is_grey(name: str, above: bool) -> None:
    claim = get_pathology("dio_kworker").claim(name)
    axes = Figure().add_subplot()
    shown = [
        ShownEstimate("side", "wide", claim.limit, claim.limit - 0.25, claim.limit + 0.5),
        ShownEstimate("side", "boots alike", claim.limit, math.nan, math.nan),
    ]
    draw_claim(axes, claim, shown, {"side": {"color": "red", "marker": "o"}})
    (grey,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
    left, right = axes.get_xlim()
    ends = (claim.limit, right) if above else (left, claim.limit)
    assert (grey.get_x(), grey.get_x() + grey.get_width()) == pytest.approx(ends)
    wide, alike = (
        np.ptp(np.asarray(line.get_paths()[0].vertices)[:, 0]) for line in axes.collections
    )
    assert (wide, alike) == (pytest.approx(0.75), 0)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["wide", "boots alike"]
    # The first row is on top.
    assert axes.yaxis_inverted()


def test_the_figure_has_a_panel_for_each_measured_claim(
    table: pd.DataFrame, virtual: Dataset, tmp_path: Path
) -> None:
    figure, text = publish_comparison(table, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"comparison.{suffix}" for suffix in ("png", "svg", "pdf", "txt")
    }
    assert "fixed before measuring" in text
    assert len(figure.axes) == 7
    labels = [label.get_text() for label in figure.axes[5].get_yticklabels()]
    assert figure.axes[5].get_title() == "reniced workers"
    assert labels == ["6.1 (CFS)", "6.1: does not agree"]
    several = comparison_figure(compare_clocks(hardware(virtual, "6.12", kernel="6.8"), virtual))
    labels = [label.get_text() for label in several.axes[0].get_yticklabels()]
    assert labels == ["6.8 (EEVDF)", "6.1 (CFS)", "6.12 (EEVDF)"]


def test_a_figure_without_a_claim_says_so(table: pd.DataFrame) -> None:
    nothing = table.assign(estimate=np.nan, virtual_estimate=np.nan)
    (axes,) = comparison_figure(nothing).axes
    assert [text.get_text() for text in axes.texts] == ["no claim was measured"]
