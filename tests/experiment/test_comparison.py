# SPDX-License-Identifier: MIT
from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.text import Text

from iolab.experiment.comparison import Comparison, comparison_of
from iolab_base.errors import UserError
from tests.support import synthetic


@pytest.fixture(scope="module")
def pair() -> Comparison:
    return comparison_of(synthetic.dataset(boots=3, invalid=False))


def test_the_ratio_is_the_one_that_was_put_in(pair: Comparison) -> None:
    heavy = pair.ratio[(pair.ratio["kernel"] == "6.1") & (pair.ratio["weight"] == 10000)]
    truth = synthetic.EFFECTS["6.1"][10000]
    assert (heavy["low"] <= truth).all()
    assert (truth <= heavy["high"]).all()
    assert (heavy["n"] == 3).all()


def test_the_control_is_compared_with_itself(pair: Comparison) -> None:
    assert pair.aa["ratio"].between(0.9, 1.1).all()


def test_levels_begin_with_the_control(pair: Comparison) -> None:
    table = pair.levels("iops")
    assert table["weight"].iloc[0] == "outside"


def test_it_shows_itself_in_a_notebook_and_in_a_terminal(pair: Comparison) -> None:
    page = pair._repr_html_()
    assert "dio_kworker: iops against outside" in page
    assert "virtual time" in page
    assert "<table" in page
    assert "10000" in repr(pair)


def test_processors_that_never_idle_are_named_in_the_headline() -> None:
    data = synthetic.dataset(boots=2, invalid=False)
    assert "processors" not in repr(comparison_of(data))
    spinning = data.cells.assign(busy_cpus=data.cells["busy_cpus"].mask(data.cells["aa"], 2.0))
    said = repr(comparison_of(replace(data, cells=spinning)))
    assert f"in {int(data.cells['aa'].sum())} cells two or more processors" in said


def test_invalid_cells_are_counted_in_the_headline() -> None:
    assert "cells are invalid" in repr(comparison_of(synthetic.dataset(boots=3)))


def test_figures_are_drawn_of_the_ratio_and_of_a_mean(pair: Comparison) -> None:
    ratio, mean = pair.figure(), pair.figure("switches_per_io")
    assert "treated / control" in str([text.get_text() for text in ratio.findobj(Text)])
    assert "context switches" in str([text.get_text() for text in mean.findobj(Text)])


def test_only_claims_about_measured_conditions_have_a_verdict(pair: Comparison) -> None:
    assert (pair.verdict()["n"] > 0).all()


def test_without_a_recorded_cell_there_is_no_trace(pair: Comparison) -> None:
    with pytest.raises(UserError, match="no cell was recorded: compare with record=True"):
        _ = pair.trace


def test_a_comparison_of_one_kernel_holds_nothing_of_another() -> None:
    data = synthetic.dataset(boots=3, invalid=False)
    pair = comparison_of(data, "6.12")
    assert set(pair.cells["kernel"]) == {"6.12"}
    assert len(pair.cells) == (data.cells["kernel"] == "6.12").sum()
    for table in (pair.data.latency, pair.data.mechanism):
        assert set(table["cell"]) <= set(pair.cells["cell"])
    assert set(comparison_of(data).cells["kernel"]) > {"6.12"}
    # YAML makes a number of it.
    assert set(comparison_of(data, 6.12).cells["kernel"]) == {"6.12"}
    with pytest.raises(UserError, match=r"kernel of these results.*6\.21"):
        comparison_of(data, "6.21")


def test_a_block_is_shown_as_it_was_measured(pair: Comparison) -> None:
    name = pair.cells["block"].unique()[1]
    view = pair.block(name)
    assert view.table["position"].is_monotonic_increasing
    assert len(view.table) == (pair.cells["block"] == name).sum()
    assert name in set(view.origin["value"])
    assert pair.cells["block"].iloc[0] in set(pair.block().origin["value"])
    with pytest.raises(UserError, match="block"):
        pair.block("no such block")
