# SPDX-License-Identifier: MIT
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from iolab import figures
from iolab.figures.style import COLUMN_IN, DOUBLE_IN, axis_number
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.stats.conditions import levels_of
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from tests.support import synthetic
from tests.support.reports import report

DRAW: dict[str, Callable[[Dataset], Figure]] = {
    "ratio_by_treatment": lambda d: figures.by_treatment(
        d.cells,
        "iops",
        "IOPS relative to outside",
        contrast="ratio",
        reference=figures.Reference(1000, 0.579, "published"),
    ),
    "mean_by_treatment": lambda d: figures.by_treatment(
        d.cells, "switches_per_io", "context switches per I/O", line=(2, "two per I/O")
    ),
    "region_iops": lambda d: figures.region_iops(d.cells, "iodepth", "numjobs"),
    "region_switches": lambda d: figures.region_switches(d.cells, "iodepth", "numjobs"),
    "cpu_split": lambda d: figures.cpu_split(d.cells),
    "latency_ecdf": lambda d: figures.latency_ecdf(d.cells, d.latency),
    "mean_by_kernel": lambda d: figures.by_kernel(d.cells, "iops", "IOPS"),
    "ratio_by_kernel": lambda d: figures.by_kernel(
        d.cells, "iops", "treated / control", contrast="ratio", line=(0.88, "rule")
    ),
    "block_figure": lambda d: figures.block_figure(
        d.cells[d.cells["block"] == d.cells["block"].min()]
    ),
}


def caption(name: str, data: Dataset) -> str:
    return figures.caption(
        name,
        data.cells,
        data.unavailable,
        says="What it shows." if "_by_" in name else None,
        contrast="ratio" if "ratio" in name else "mean",
    )


def assert_legend_is_on(figure: Figure) -> None:
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_a_long_label_breaks_the_legend_and_not_the_paper(small: Dataset) -> None:
    for length in range(5, 45, 5):
        reference = figures.Reference(1000, 0.579, "p" * length)
        figure = figures.by_treatment(
            small.cells, "iops", "IOPS", contrast="ratio", reference=reference
        )
        assert_legend_is_on(figure)


@pytest.mark.parametrize("name", DRAW)
def test_every_figure_fits_a_paper_and_says_its_caption(name: str, data: Dataset) -> None:
    figure = DRAW[name](data)
    assert figure.get_figwidth() == DOUBLE_IN
    assert figure.get_figheight() < 9
    assert_legend_is_on(figure)
    text = caption(name, data)
    assert "Control: outside." in text
    assert "Fixed: 1 job, overwrite extents, completions at each tick, libaio," in text
    assert "Cannot run here: 6.8." in text
    assert "6.1 (6.1.0-made-up, CFS), 6.12 (6.12.0-made-up, EEVDF)" in text
    assert "not absolute IOPS" in text
    assert "1 of 80 cells invalid" in text


@pytest.mark.parametrize("name", DRAW)
def test_every_figure_can_be_drawn_from_a_single_pair_of_one_boot(
    name: str, small: Dataset
) -> None:
    figure = DRAW[name](small)
    assert figure.get_figwidth() == (DOUBLE_IN if name == "block_figure" else COLUMN_IN)
    assert caption(name, small)
    assert_legend_is_on(figure)


@pytest.mark.parametrize("name", DRAW)
def test_nothing_to_draw_is_one_clear_error(name: str, data: Dataset) -> None:
    empty = replace(data, cells=data.cells[:0], latency=data.latency[:0])
    with pytest.raises(UserError, match=r"no valid cell|exactly one block"):
        DRAW[name](empty)


@pytest.mark.parametrize("name", sorted(set(DRAW) - {"block_figure"}))
def test_clocks_are_never_drawn_together(name: str, data: Dataset) -> None:
    mixed = data.cells.copy()
    mixed.loc[mixed["kernel"] == "6.12", "clock"] = "host"
    with pytest.raises(UserError, match="more than one clock"):
        DRAW[name](replace(data, cells=mixed))


@pytest.mark.parametrize("name", DRAW)
def test_saved_bytes_do_not_depend_on_when_or_in_which_session(
    name: str, small: Dataset, tmp_path: Path
) -> None:
    first = figures.save_figure(DRAW[name](small), tmp_path / "a", name, caption="c")
    with mpl.rc_context({"font.size": 20, "axes.grid": False, "svg.hashsalt": None}):
        second = figures.save_figure(DRAW[name](small), tmp_path / "b", name, caption="c")
    assert [p.suffix for p in first] == [".png", ".svg", ".pdf", ".txt"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    svg = (tmp_path / "a" / f"{name}.svg").read_text()
    assert "<text" not in svg
    assert "<dc:date>" not in svg
    assert b"CreationDate" not in (tmp_path / "a" / f"{name}.pdf").read_bytes()
    assert (tmp_path / "a" / f"{name}.txt").read_text() == "c\n"


def test_the_cpu_bars_fill_the_core(data: Dataset) -> None:
    for axes in DRAW["cpu_split"](data).axes:
        bars = [c for c in axes.containers if isinstance(c, BarContainer)]
        heights = np.array([[bar.get_height() for bar in stack] for stack in bars])
        assert heights.shape == (4, 5)
        assert heights.sum(axis=0) == pytest.approx(1.0)


def test_shares_beyond_the_core_leave_no_negative_bar(small: Dataset) -> None:
    over = small.cells.assign(fio_cpu=0.9, kworker_cpu=0.2, idle=0.0)
    bars = list(figures.cpu_split(over).axes[0].containers)
    assert all(bar.get_height() >= 0 for stack in bars for bar in stack)


def test_latency_curves_rise_to_all_ios_and_leave_invalid_cells_out(small: Dataset) -> None:
    curves = DRAW["latency_ecdf"](small).axes[0].lines
    assert len(curves) == 2
    for curve in curves:
        y = np.asarray(curve.get_ydata())
        assert (np.diff(y) >= 0).all()
        assert y[-1] == pytest.approx(1.0)
    with pytest.raises(UserError, match="histogram"):
        figures.latency_ecdf(small.cells, small.latency[:0])


def test_the_block_figure_crosses_out_an_invalid_cell_without_iops(small: Dataset) -> None:
    cells = small.cells.copy()
    cells.loc[0, "valid"] = False
    cells.loc[0, "iops"] = np.nan
    axes = figures.block_figure(cells).axes[0]
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [np.asarray(cross.get_ydata()).item() for cross in crosses] == [0.0]
    everything_failed = cells.assign(valid=False, iops=np.nan)
    assert len(figures.block_figure(everything_failed).axes) == 1
    with pytest.raises(UserError, match="exactly one block"):
        figures.block_figure(synthetic.dataset(boots=2, weights=[1000]).cells)


def test_a_condition_that_one_kernel_lacks_is_said_in_its_panel(data: Dataset) -> None:
    lacking = data.cells[~((data.cells["kernel"] == "6.12") & (data.cells["iodepth"] == 64))]
    figure = figures.cpu_split(lacking)
    assert "not measured" in [text.get_text() for axes in figure.axes for text in axes.texts]
    curves = figures.latency_ecdf(lacking, data.latency)
    assert "not measured" in [text.get_text() for axes in curves.axes for text in axes.texts]


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_figures_take_any_pathology_and_name_its_control(name: str) -> None:
    data, pathology = report(name, profile="quick"), get_pathology(name)
    levels = levels_of(data.cells)
    factor = pathology.factors[pathology.treatment]
    words = [pathology.control, *(factor.in_words(level) for level in levels)]
    for figure in (
        figures.by_kernel(data.cells, "iops", "IOPS"),
        figures.latency_ecdf(data.cells, data.latency),
    ):
        shown = [text.get_text() for box in figure.legends for text in box.get_texts()]
        assert [word for word in shown if word != "bold: a primary claim"] == words
        assert_legend_is_on(figure)
    split = figures.cpu_split(data.cells)
    names = [pathology.control, *(x if isinstance(x, str) else axis_number(x) for x in levels)]
    ticks = [label.get_text() for label in split.axes[-1].get_xticklabels()]
    # A long name is broken at a space or a hyphen.
    assert ["".join(tick.split()) for tick in ticks] == ["".join(name.split()) for name in names]
    assert f"Control: {pathology.control}." in figures.caption("cpu_split", data.cells)
