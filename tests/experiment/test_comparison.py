# SPDX-License-Identifier: MIT
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.text import Text

from iolab.experiment.comparison import Comparison, comparison_of
from iolab.pathology.registry import register_file
from iolab.paths import ATLAS, REFERENCE
from iolab.store.dataset import Dataset, load
from iolab_base.errors import UserError
from tests.support import synthetic
from tests.support.story import story, switch


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


def test_invalid_cells_are_counted_with_their_reason() -> None:
    assert "1 of 120 cells is invalid: the ramp was not honoured (1)" in repr(
        comparison_of(synthetic.dataset(boots=3))
    )


@pytest.mark.parametrize("role", ["treatment", "both"])
def test_a_comparison_without_a_valid_pair_says_why(role: str) -> None:
    data = synthetic.dataset(kernels=["6.1"], boots=2, invalid=False)
    lost = data.cells["role"].isin(
        ["treatment"] if role == "treatment" else ["treatment", "control"]
    )
    lost &= ~data.cells["aa"] | (role == "both")
    gate = data.cells["gate"].mask(lost, "no I/O was done")
    pair = comparison_of(replace(data, cells=data.cells.assign(valid=~lost, gate=gate)))
    for shown in (repr(pair), pair._repr_html_()):
        assert f"{lost.sum()} of 40 cells are invalid: no I/O was done ({lost.sum()})" in shown
        assert "no valid pair" in shown
    assert set(pair.ratio["n"]) == {0}
    assert set(pair.ratio["weight"]) == {100, 1000, 3000, 10000}
    assert pair.aa.empty == (role == "both")


def test_what_has_no_ratio_still_shows_itself() -> None:
    data = synthetic.dataset(kernels=["6.1"], boots=2, invalid=False)
    pair = comparison_of(replace(data, cells=data.cells.assign(iops=-1.0)), "6.1")
    assert "is not above 0" in repr(pair)
    assert "is not above 0" in pair._repr_html_()


def _recorded(data: Dataset, tmp_path: Path, gated: tuple[int, int] | None) -> Comparison:
    """Return a comparison in which one boot is recorded, but for a gated (iodepth, weight)."""
    trace = story(tmp_path, [switch(1000 + n, 0, (1, "fio"), 1, (2, "w")) for n in range(3)]).path
    cells = data.cells[(data.cells["boot"] == 0) & ~data.cells["aa"]]
    cells = cells.assign(recorded=True, cell=cells["cell"] + "-r", pair=cells["pair"] + 100)
    lost = pd.Series(False, index=cells.index)
    if gated is not None:
        lost = (cells["iodepth"] == gated[0]) & (cells["weight"] == gated[1]).fillna(False)
    cells = cells.assign(
        valid=~lost, gate=lost.map({True: "tracing changed its regime", False: ""})
    )
    together = pd.concat([data.cells, cells], ignore_index=True)
    kept = cells.loc[cells["valid"], "cell"]
    return comparison_of(replace(data, cells=together, traces=dict.fromkeys(kept, trace)))


def test_traces_are_of_one_condition_which_is_named(tmp_path: Path) -> None:
    data = synthetic.dataset(boots=2, invalid=False)
    whole = _recorded(data, tmp_path, None)
    named = [f"{level}, kernel 6.1, iodepth 64" for level in ("outside", "cpu.weight 100")]
    assert list(whole.traces())[:2] == named
    other = whole.traces("6.12", iodepth=192)
    assert len(other) == 5
    assert all(name.endswith(", kernel 6.12, iodepth 192") for name in other)
    # A condition that lost a trace is not filled up with another's.
    torn = _recorded(data, tmp_path, (64, 1000))
    assert {name.partition(", ")[2] for name in torn.traces()} == {"kernel 6.1, iodepth 192"}
    assert len(torn.traces(iodepth=64)) == 4
    with pytest.raises(UserError, match=r"iodepth 7 \(known: 64, 192\)"):
        whole.traces(iodepth=7)
    with pytest.raises(UserError, match=r"iodept.*iodepth"):
        whole.traces(iodept=64)


def test_a_recording_without_a_valid_cell_says_why(tmp_path: Path) -> None:
    data = synthetic.dataset(kernels=["6.1"], iodepths=[64], weights=[1000], boots=2, invalid=False)
    pair = _recorded(data, tmp_path, (64, 1000))
    cells = pair.cells
    gate = cells["gate"].mask(cells["recorded"], "tracing changed its regime")
    lost = replace(pair.data, cells=cells.assign(valid=~cells["recorded"], gate=gate), traces={})
    with pytest.raises(UserError, match=r"2 of 2 cells are invalid: tracing changed"):
        comparison_of(lost).timeline()


def test_processors_that_never_idle_are_named_in_the_headline() -> None:
    data = synthetic.dataset(boots=2, invalid=False)
    assert "processors" not in repr(comparison_of(data))
    spinning = data.cells.assign(busy_cpus=data.cells["busy_cpus"].mask(data.cells["aa"], 2.0))
    said = repr(comparison_of(replace(data, cells=spinning)))
    assert f"in {int(data.cells['aa'].sum())} cells two or more processors" in said


def test_figures_are_drawn_of_the_ratio_and_of_a_mean(pair: Comparison) -> None:
    ratio, mean = pair.figure(), pair.figure("switches_per_io")
    assert "treated / control" in str([text.get_text() for text in ratio.findobj(Text)])
    assert "context switches" in str([text.get_text() for text in mean.findobj(Text)])


def test_levels_without_a_logarithm_are_drawn_kernel_by_kernel(pair: Comparison) -> None:
    cells = pair.cells[pair.cells["weight"].isna() | (pair.cells["weight"] == 1000)]
    cells = cells.assign(weight=cells["weight"].where(cells["weight"].isna(), 0))
    drawn = Comparison(pair.pathology, replace(pair.data, cells=cells)).figure()
    assert "6.1" in [label.get_text() for label in drawn.axes[0].get_xticklabels()]


def test_only_claims_about_measured_conditions_have_a_verdict(pair: Comparison) -> None:
    assert (pair.verdict()["n"] > 0).all()


def test_a_damaged_trace_is_the_users_error(tmp_path: Path) -> None:
    damaged = _recorded(synthetic.dataset(boots=2, invalid=False), tmp_path, None)
    next(iter(damaged.data.traces.values())).write_bytes(b"no trace")
    for read in (damaged.traces, damaged.timeline, lambda: damaged.trace):
        with pytest.raises(UserError, match=r"is neither a trace\.dat nor"):
            read()


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


def test_a_figure_of_an_unknown_column_is_one_sentence(pair: Comparison) -> None:
    with pytest.raises(UserError, match="no cell has the measure iop; did you mean iops"):
        pair.figure("iop")


def test_a_block_is_shown_as_it_was_measured(pair: Comparison) -> None:
    name = pair.cells["block"].unique()[1]
    view = pair.block(name)
    assert view.table["position"].is_monotonic_increasing
    assert len(view.table) == (pair.cells["block"] == name).sum()
    assert name in set(view.origin["value"])
    assert pair.cells["block"].iloc[0] in set(pair.block().origin["value"])
    with pytest.raises(UserError, match="block"):
        pair.block("no such block")


def test_the_ratio_and_the_figure_are_of_what_the_first_claim_compares() -> None:
    # Writers on one core lose nothing to XFS, its readers nearly everything.
    register_file(ATLAS / "xfs_mixed_buffered.py")
    mixed = comparison_of(load(REFERENCE / "atlas" / "xfs_mixed_buffered"))
    assert mixed.value == "read_iops"
    assert mixed.ratio["ratio"].max() < 0.1
    assert mixed.figure().axes[0].get_ylabel().startswith("IOPS of the reads")
    assert mixed.levels()["mean"].notna().all()
