# SPDX-License-Identifier: MIT
"""Combined figures show every estimate of the results, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer

from iolab.pathology import get_pathology
from iolab.paths import REFERENCE
from iolab.store.dataset import load
from paper.make.figures import bracket_figure, cost_figure, near_figure
from paper.make.results import bracket_rows, near_rows


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    near = near_rows(load(REFERENCE / "near" / "dio_kworker"))
    return {"brackets": bracket_rows(REFERENCE), "near": near}


def _shown(axes: Axes, marker: str) -> list[float]:
    """Return where a panel has points of a marker, from top to bottom."""
    lines = [line for line in axes.lines if line.get_marker() == marker]
    points = np.concatenate([np.empty((0, 2)), *(np.asarray(line.get_xydata()) for line in lines)])
    return [float(x) for x in points[points[:, 1].argsort(), 0]]


def test_each_bracket_has_its_three_kernels_and_the_published_value(
    results: dict[str, Any],
) -> None:
    rows = results["brackets"]
    panels = bracket_figure(rows).axes
    assert len(panels) == len(rows)
    assert len(bracket_figure(rows[:-1]).axes) == len(rows) - 1
    for axes, row in zip(panels, rows, strict=True):
        for marker, side in (("D", "own"), ("o", "with"), ("s", "without")):
            assert _shown(axes, marker) == [row[side]["estimate"]]
        assert _shown(axes, "*") == ([] if row["published"] is None else [row["published"]])
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels == [row[side]["kernel"] for side in ("own", "with", "without")]
        # A yes of a claim that has a negative control was measured there, too.
        claim = get_pathology(row["pathology"]).claim(row["claim"])
        for side in ("own", "with"):
            assert (row[side]["control"] is None) is (claim.negative is None)


def test_a_neighbourhood_has_a_point_for_each_condition_of_each_kernel(
    results: dict[str, Any],
) -> None:
    rows = [row for row in results["near"] if row["pathology"] == "dio_kworker"]
    figure = near_figure(results["near"], "dio_kworker")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == list(dict.fromkeys(row["claim"] for row in rows))
    first = rows[0]["kernel"]
    for axes in figure.axes:
        expected = [
            row["estimate"]
            for row in rows
            if (row["kernel"], row["claim"]) == (first, axes.get_title())
        ]
        assert _shown(axes, "o") == expected


def test_a_bar_is_as_long_as_its_parts_together() -> None:
    parts = {"user": [2000.0, 2500.0], "submit": [4000.0, 0.0], "schedule": [20.0, 3500.0]}
    costs = pd.DataFrame(parts, index=["6.1, no cgroup", "6.1, weight 9600"])
    (axes,) = cost_figure(costs).axes
    bars = [bars for bars in axes.containers if isinstance(bars, BarContainer)]
    drawn = {str(one.get_label()): one.patches for one in bars}
    assert list(drawn) == list(costs)
    for part, patches in drawn.items():
        assert [bar.get_width() for bar in patches] == costs[part].tolist()
    ends = [bar.get_x() + bar.get_width() for bar in drawn["schedule"]]
    assert ends == costs.sum(axis=1).tolist()
    assert {text.get_text() for text in axes.texts} == {"6,020", "6,000"}
