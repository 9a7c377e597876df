# SPDX-License-Identifier: MIT
"""Effects of a treatment: against its level, and kernel by kernel."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from iolab import figures, stats
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from tests.support import synthetic
from tests.support.reports import report


def ratio_by_treatment(cells: pd.DataFrame, reference: figures.Reference | None = None) -> Figure:
    return figures.by_treatment(
        cells, "iops", "IOPS relative to outside", contrast="ratio", reference=reference
    )


def test_the_ratio_figure_shows_the_tables_values_and_the_reference(data: Dataset) -> None:
    table = stats.ratio_table(data.cells)
    figure = ratio_by_treatment(data.cells, figures.Reference(1000, 0.579, "published"))
    shown = {
        round(float(y), 9)
        for axes in figure.axes
        for line in axes.lines
        if line.get_marker() in ("o", "s")
        for y in np.asarray(line.get_ydata())
    }
    assert shown == set(table["ratio"].round(9))
    stars = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "*"]
    assert [np.asarray(star.get_ydata()).item() for star in stars] == [0.579, 0.579]
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["A/A", "100", "1000", "3000", "10\u2009000"]
    assert "published" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_other_factors_get_panels_of_their_own(data: Dataset) -> None:
    other = data.cells.assign(extents="unwritten")
    other["block"] += "u"
    figure = ratio_by_treatment(pd.concat([data.cells, other], ignore_index=True))
    titles = [axes.get_title() for axes in figure.axes]
    assert "iodepth 64, unwritten extents" in titles
    assert len(titles) == 4


def test_many_levels_keep_their_ticks_and_lose_labels_that_would_collide() -> None:
    weights = [100, 1000, 1010, 1020, 1030, 2000, 10000]
    rows = [
        row
        for boot in range(2)
        for row in synthetic.block_cells(
            block=f"b{boot}",
            boot=boot,
            conditions=[(192, w) for w in weights],
            effects=dict.fromkeys(weights, 0.9),
        )
    ]
    axes = ratio_by_treatment(synthetic.frame(rows)).axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["A/A: none", "100", "1000", "", "", "", "2000", "10\u2009000"]
    assert len(axes.get_xticks()) == 8


def test_by_kernel_has_the_control_and_every_level_on_every_kernel(data: Dataset) -> None:
    figure = figures.by_kernel(data.cells, "iops", "IOPS")
    means = stats.mean_table(data.cells, "iops")
    points = [line for axes in figure.axes for line in axes.lines if line.get_linestyle() == "None"]
    drawn = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in points])
    bare = sorted(drawn[np.isfinite(drawn)])
    for value in means["mean"]:
        assert np.isclose(bare, value).any()
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert ticks == ["6.1", "6.12"]
    assert [axes.get_title() for axes in figure.axes] == ["iodepth 64", "iodepth 192"]


def test_by_kernel_draws_the_rule_and_names_it(data: Dataset) -> None:
    figure = figures.by_kernel(
        data.cells, "iops", "ratio", contrast="ratio", line=(0.88, "rule: below this")
    )
    (box,) = figure.legends
    names = [text.get_text() for text in box.get_texts()]
    weights = [f"cpu.weight {weight}" for weight in (100, 1000, 3000, 10000)]
    assert names == ["A/A", *weights, "rule: below this"]


def test_panels_of_primary_claims_come_first_and_are_bold() -> None:
    data = report("bfq_idling")
    figure = figures.by_kernel(
        data.cells, "iops", "ratio", contrast="ratio", published=(1 / 30, 1 / 10)
    )
    weights = {
        axes.get_title().replace("\n", " "): axes.title.get_fontweight() for axes in figure.axes
    }
    assert next(iter(weights)) == "own cgroup, ext4, 300 writes per dd"
    assert [title for title, weight in weights.items() if weight == "bold"] == [next(iter(weights))]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[-2:] == ["published", "bold: a primary claim"]
    # Where a value has no claim, no panel stands out.
    figure = figures.by_kernel(data.cells, "fio_cpu", "share of a core")
    assert {axes.title.get_fontweight() for axes in figure.axes} == {"normal"}


def test_a_figure_of_cells_without_a_control_pair_names_none() -> None:
    cells = synthetic.dataset(boots=3).cells
    cells = cells[~cells["aa"]]
    figure = figures.by_kernel(cells, "iops", "IOPS", contrast="ratio")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [f"cpu.weight {weight}" for weight in (100, 1000, 3000, 10000)]
    assert "A/A" not in figures.caption("ratio", cells, says="IOPS.", contrast="ratio")


def test_a_treatment_without_an_order_has_no_axis() -> None:
    cells = report("bfq_idling").cells
    with pytest.raises(UserError, match="io_scheduler is not a number: draw it with"):
        figures.by_treatment(cells, "iops", "IOPS")
    with pytest.raises(UserError, match="bfq_idling has no numeric factor iodepth"):
        figures.region_iops(cells, "iodepth", "numjobs")


def test_without_any_valid_treatment_the_control_is_still_drawn(small: Dataset) -> None:
    cells = small.cells.assign(valid=small.cells["aa"])
    labels = ratio_by_treatment(cells).axes[0].get_xticklabels()
    assert [label.get_text() for label in labels] == ["A/A"]


@pytest.mark.parametrize("contrast", ["mean", "ratio"])
def test_a_caption_says_what_an_interval_over_three_boots_covers(
    contrast: Literal["mean", "ratio"],
) -> None:
    said = "bars are 95 % t intervals on the boots' means, which cover 87 % over 3 boots, dots"
    for boots in (3, 6):
        cells = synthetic.dataset(boots=boots, invalid=False).cells
        text = figures.caption("iops", cells, says="IOPS.", contrast=contrast)
        assert (said in text) is (boots == 3)
        assert ("87 %" in text) is (boots == 3)


def test_a_condition_without_valid_cells_is_none_of_the_counted_ones() -> None:
    cells = synthetic.dataset(boots=3, invalid=False).cells
    lost = (cells["kernel"] == "6.1") & (cells["weight"] == 100)
    cells.loc[lost, "valid"] = False
    assert "; n = 3 boots x 1" in figures.caption("iops", cells, says="IOPS.")
