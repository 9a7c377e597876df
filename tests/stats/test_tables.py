# SPDX-License-Identifier: MIT
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import strategies as st
from scipy import stats as sp

import iolab
from iolab import stats
from iolab.pathology import register
from iolab.pathology.base import TREATED_KERNEL, Pathology
from iolab.report import aa_check, effect_table
from iolab.stats.claims import judge
from iolab.stats.tables import kernel_ratio
from iolab.stats.verdicts import verdict_table
from iolab.store.counters import column_types
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from tests.support import synthetic
from tests.support.synthetic import gated, plain

LOGS = st.floats(-1, 1).map(lambda x: round(x, 6))


def treated(table: pd.DataFrame) -> pd.Series:
    return table[~table["aa"]].iloc[0]


@pytest.mark.parametrize(("boots", "pairs"), [(3, 4), (6, 2), (10, 1)])
def test_interval_covers_the_truth_as_often_as_it_says(boots: int, pairs: int) -> None:
    cells = synthetic.noisy_cells(repetitions=400, boots=boots, pairs=pairs, ratio=0.8, seed=11)
    boot_means = stats.pair_ratios(cells)
    for aa, truth in ((False, 0.8), (True, 1.0)):
        estimates = [
            stats.estimate(group["y"])
            for _, group in boot_means[boot_means["aa"] == aa].groupby("kernel")
        ]
        assert len(estimates) == 400
        covered = np.mean([e.low <= truth <= e.high for e in estimates])
        assert 0.92 <= covered <= 0.98
        assert np.exp(np.mean([np.log(e.ratio) for e in estimates])) == pytest.approx(
            truth, rel=0.005
        )


def test_sign_flip_holds_its_level_when_nothing_happens() -> None:
    cells = synthetic.noisy_cells(repetitions=200, boots=6, pairs=1, ratio=1.0, seed=5)
    table = stats.ratio_table(cells)
    for aa in (True, False):
        assert (table.loc[table["aa"] == aa, "p_value"] <= 0.05).mean() <= 0.08


def test_agrees_with_scipys_one_sample_t_where_orders_cannot_be_told_apart() -> None:
    cells = plain(boots=3)
    boots = stats.pair_ratios(cells)
    y = boots.loc[~boots["aa"], "y"]
    expected = sp.ttest_1samp(y, 0.0).confidence_interval(0.95)
    row = treated(stats.ratio_table(cells))
    wanted = np.exp([y.mean(), float(expected.low), float(expected.high)])
    assert row[["ratio", "low", "high"]].tolist() == pytest.approx(wanted.tolist())


def test_agrees_with_statsmodels_regression_on_the_order() -> None:
    cells = plain()
    boots = stats.pair_ratios(cells)
    boots = boots[~boots["aa"]]
    assert boots["order"].nunique() > 1
    fit = sm.OLS(boots["y"], sm.add_constant(boots["order"])).fit()
    low, high = fit.conf_int(0.05).loc["const"]
    row = treated(stats.ratio_table(cells))
    wanted = np.exp([fit.params["const"], low, high])
    assert row[["ratio", "low", "high"]].tolist() == pytest.approx(wanted.tolist())
    assert (row["n"], row["pairs"], row["confidence"]) == (6, 2, 0.95)


def test_pairs_are_averaged_in_their_boot_before_anything_else() -> None:
    cells = plain(boots=3)
    wide = cells[~cells["aa"]].pivot(index=["block", "pair"], columns="role", values="iops")
    by_hand = (wide["treatment"] / wide["control"]).map(math.log).groupby("block").mean()
    boots = stats.pair_ratios(cells)
    found = boots[~boots["aa"]].set_index("block")["y"]
    assert found.to_dict() == pytest.approx(by_hand.to_dict())


def test_one_boot_has_a_ratio_and_no_interval() -> None:
    row = treated(stats.ratio_table(plain(boots=1)))
    assert row["n"] == 1
    assert row["ratio"] > 0
    assert row[["low", "high", "p_value", "p_holm"]].isna().all()


def test_boots_that_agree_exactly_collapse_the_interval() -> None:
    rows = [row for boot in range(6) for row in synthetic.block_cells(block=f"b{boot}", boot=boot)]
    table = stats.ratio_table(synthetic.frame(rows))
    row = treated(table)
    assert row["ratio"] == pytest.approx(0.92)
    assert row["missing"] == "the 6 boots do not differ"
    assert row[["low", "high"]].isna().all()
    assert row["p_value"] == 0.03125
    aa = table[table["aa"]].iloc[0]
    assert (aa["ratio"], aa["p_value"]) == (1.0, 1.0)
    assert aa[["low", "high", "p_holm"]].isna().all()


def test_a_condition_without_a_valid_pair_stands_there_with_the_reason() -> None:
    cells = synthetic.dataset(kernels=("6.1",), iodepths=(64,), boots=6, invalid=False).cells
    table = stats.ratio_table(gated(cells, cells["weight"] == 3000, "fio reported an error"))
    lost = table[table["n"] == 0]
    assert lost["weight"].tolist() == [3000]
    assert lost[["ratio", "low", "high", "p_value", "p_holm"]].isna().all(axis=None)
    assert lost["missing"].tolist() == ["no pair with two valid cells: fio reported an error"]
    assert (table.loc[table["n"] > 0, "missing"] == "").all()
    assert table["weight"].tolist() == [100, 1000, 3000, 10000, pd.NA]
    # It was declared, so it keeps its place in the family.
    strong = table[table["weight"] == 10000].iloc[0]
    assert strong["p_holm"] == pytest.approx(4 * strong["p_value"])


def test_controls_that_are_all_gated_are_said() -> None:
    cells = synthetic.dataset(kernels=("6.1",), iodepths=(64, 192), boots=2, invalid=False).cells
    controls = (cells["role"] == "control") & (cells["iodepth"] == 64)
    table = stats.ratio_table(gated(cells, controls, "background load"))
    lost = table[table["iodepth"] == 64]
    assert len(lost) == 5
    assert lost["aa"].sum() == 1
    assert lost["missing"].str.contains("background load").all()
    assert (table.loc[table["iodepth"] == 192, "n"] == 2).all()
    with pytest.raises(UserError, match="no valid cell: background load"):
        stats.ratio_table(cells.assign(valid=False, gate="background load"))


def test_an_invalid_cell_takes_its_pair_along_and_nothing_else() -> None:
    cells = plain()
    bad = cells.index[(cells["block"] == "6.1-0") & (~cells["aa"]) & (cells["role"] == "control")]
    spoiled = cells.copy()
    spoiled.loc[bad[0], "iops"] = 1.0
    spoiled.loc[bad[0], "valid"] = False
    boots = stats.pair_ratios(spoiled)
    expected = stats.pair_ratios(cells)
    kept = boots[boots["block"] == "6.1-0"].set_index("aa")["pairs"]
    assert kept.to_dict() == {True: 2, False: 1}
    others = boots["block"] != "6.1-0"
    assert boots[others]["y"].tolist() == expected[others]["y"].tolist()
    whole = stats.ratio_table(spoiled)
    assert treated(whole)["n"] == 6
    spoiled.loc[bad, "valid"] = False
    assert treated(stats.ratio_table(spoiled))["n"] == 5


def test_the_order_of_rows_does_not_matter() -> None:
    cells = synthetic.dataset(boots=3).cells
    expected = stats.ratio_table(cells)
    means = stats.mean_table(cells, "idle")
    orders = stats.order_table(cells)
    for other in synthetic.shuffled(cells):
        pd.testing.assert_frame_equal(stats.ratio_table(other), expected, check_exact=True)
        pd.testing.assert_frame_equal(stats.mean_table(other, "idle"), means, check_exact=True)
        pd.testing.assert_frame_equal(stats.order_table(other), orders, check_exact=True)


def test_holm_counts_the_declared_family_only() -> None:
    cells = synthetic.dataset(boots=6, invalid=False).cells
    everything = stats.ratio_table(cells)
    assert everything.loc[everything["aa"], "p_holm"].isna().all()
    tested = everything[~everything["aa"]]
    assert (tested["p_holm"] >= tested["p_value"]).all()
    claim = {"kernel": "6.1", "iodepth": 192, "weight": 10000}
    alone = stats.ratio_table(cells, family=[claim])
    assert alone["p_holm"].notna().sum() == 1
    row = alone[alone["p_holm"].notna()].iloc[0]
    assert row["p_holm"] == row["p_value"] == 0.03125
    # A declared condition on a kernel that could not run keeps its place in the family.
    declared = stats.ratio_table(cells, family=[claim, claim | {"kernel": "6.8"}])
    assert declared["p_holm"].dropna().tolist() == [0.0625]


def test_kernels_are_compared_as_welch_does() -> None:
    cells = pd.concat([plain(5, seed=1), plain(7, seed=2, kernel="6.12")], ignore_index=True)
    table = stats.kernel_ratio(cells, base="6.1", other="6.12", effect=True)
    boots = stats.pair_ratios(cells)
    y = {kernel: group["y"] for kernel, group in boots[~boots["aa"]].groupby("kernel")}
    expected = sp.ttest_ind(y["6.12"], y["6.1"], equal_var=False)
    row = table[~table["aa"]].iloc[0]
    assert row["ratio"] == pytest.approx(math.exp(y["6.12"].mean() - y["6.1"].mean()))
    assert row["p_value"] == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx(
        (math.exp(interval.low), math.exp(interval.high))
    )
    assert (row["n_base"], row["n_other"]) == (5, 7)
    values = stats.kernel_ratio(cells, base="6.1", other="6.12")
    assert set(values["weight"].fillna(0)) == {0, 1000}
    controls = cells[cells["weight"].isna()].set_index(["kernel", "block"])["iops"]
    means = controls.map(math.log).groupby(["kernel", "block"]).mean()
    control = values[values["weight"].isna()].iloc[0]
    assert control["ratio"] == pytest.approx(math.exp(means["6.12"].mean() - means["6.1"].mean()))


def test_kernels_without_spread_or_boots_claim_no_p_value() -> None:
    rows = [
        row
        for kernel in ("6.1", "6.12")
        for boot in range(3)
        for row in synthetic.block_cells(kernel=kernel, block=f"{kernel}-{boot}", boot=boot)
    ]
    cells = synthetic.frame(rows)
    table = stats.kernel_ratio(cells, base="6.1", other="6.12", effect=True)
    assert table[["low", "high", "p_value"]].isna().all(axis=None)
    assert set(table["missing"]) == {"the boots of a kernel do not differ"}
    single = stats.kernel_ratio(cells[cells["boot"] == 0], base="6.1", other="6.12")
    assert single[["low", "high", "p_value"]].isna().all(axis=None)
    with pytest.raises(UserError, match="not in these data"):
        stats.kernel_ratio(cells, base="6.1", other="7.2")
    apart = cells.assign(iodepth=cells["iodepth"] + (cells["kernel"] == "6.1"))
    for effect in (True, False):
        none = stats.kernel_ratio(apart, base="6.1", other="6.12", effect=effect)
        assert none.empty
        assert list(none.columns[-8:-6]) == ["ratio", "low"]


def test_means_are_of_boots_not_of_cells() -> None:
    cells = plain(4)
    lopsided = cells.drop(cells.index[(cells["boot"] == 0) & cells["weight"].notna()][:1])
    table = stats.mean_table(lopsided, "iops")
    chosen = lopsided[lopsided["weight"].notna()]
    boots = chosen.groupby("block")["iops"].mean()
    row = table[table["weight"].notna()].iloc[0]
    assert row["mean"] == pytest.approx(boots.mean())
    interval = sp.ttest_1samp(boots, 0.0).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert (row["n"], row["cells"]) == (4, 7)


@pytest.mark.parametrize("column", ["clock", "target", "pathology", "kernel_release", "iodepth"])
def test_conditions_are_never_pooled_by_accident(column: str) -> None:
    one, two = plain(2), plain(2, kernel="6.1").assign(block=lambda c: c["block"] + "'")
    two[column] = 64 if column == "iodepth" else "other"
    cells = pd.concat([one, two], ignore_index=True)
    by = [name for name in stats.pair_columns(cells) if name != column]
    with pytest.raises(UserError, match=column):
        stats.ratio_table(cells, by=by)
    with pytest.raises(UserError, match=column):
        stats.mean_table(cells, by=[name for name in stats.cell_columns(cells) if name != column])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iops": 0.0}, "not above 0"),
        ({"iops": math.nan}, "has no iops"),
        ({"iodepth": 7}, "differs in iodepth"),
        ({"position": 99}, "not measured together"),
        ({"role": "treatment"}, "more than one"),
        ({"valid": False}, "no pair with two valid cells"),
    ],
)
def test_what_is_no_pair_is_said(change: dict[str, Any], message: str) -> None:
    cells = synthetic.frame(synthetic.block_cells(conditions=[(128, 1000)]))
    index = cells.index[cells["role"] == "control"][0]
    for name, value in change.items():
        cells[name] = cells[name].where(cells.index != index, value)
    with pytest.raises(UserError, match=message):
        stats.ratio_table(cells)


def test_other_bad_requests_are_said() -> None:
    cells = plain(2)
    with pytest.raises(UserError, match="no column speed"):
        stats.ratio_table(cells, "speed")
    with pytest.raises(UserError, match="cannot group by colour"):
        stats.ratio_table(cells, by=["colour"])
    with pytest.raises(UserError, match="cannot group by nothing"):
        stats.ratio_table(cells, by=[])
    with pytest.raises(UserError, match="confidence level"):
        stats.ratio_table(cells, confidence=95)
    with pytest.raises(UserError, match="no valid cell"):
        stats.mean_table(cells[:0])
    with pytest.raises(UserError, match="no boot"):
        stats.estimate([])


def test_means_say_what_is_missing() -> None:
    cells = plain(3)
    assert set(stats.mean_table(cells)["missing"]) == {""}
    single = stats.mean_table(cells[cells["boot"] == 0])
    assert set(single["missing"]) == {"one boot"}
    same = stats.mean_table(cells.assign(idle=0.5), "idle")
    assert set(same["missing"]) == {"the 3 boots do not differ"}
    uncounted = stats.mean_table(cells.assign(idle=math.nan), "idle")
    assert set(uncounted["missing"]) == {"the measured machine does not count idle"}
    assert uncounted[["mean", "low", "high"]].isna().all(axis=None)


def test_what_the_control_lacks_is_missing_there_and_nowhere_else() -> None:
    cells = plain(3)
    control = cells["weight"].isna()
    # As the CPU time of an antagonist that runs in treated cells only.
    table = stats.mean_table(
        cells.assign(antagonist_cpu=np.where(control, np.nan, 0.25)), "antagonist_cpu"
    )
    lacking = table["weight"].isna()
    assert table.loc[lacking, "mean"].isna().all()
    assert set(table.loc[lacking, "missing"]) == {"no antagonist_cpu here"}
    assert (table.loc[~lacking, "mean"] == 0.25).all()


def test_a_condition_without_a_valid_cell_has_a_mean_that_is_missing() -> None:
    cells = gated(plain(3), plain(3)["weight"] == 1000, "background load")
    for some, value in ((cells, "iops"), (cells.assign(idle=math.nan), "idle")):
        table = stats.mean_table(some, value)
        lost = table[table["weight"].notna()].iloc[0]
        assert (lost["n"], lost["cells"]) == (0, 0)
        assert lost["missing"] == "no valid cell: background load"
        assert lost[["mean", "low", "high"]].isna().all()
        assert table.loc[table["weight"].isna(), "n"].tolist() == [3]


@pytest.mark.parametrize("measured", ["runs_per_s", "program_value"])
def test_the_cost_of_recording_a_program_is_of_what_it_did(measured: str) -> None:
    cells = plain(boots=2, pairs=1)
    nothing = dict.fromkeys(["iops", "steady_iops", "switches_per_io"], math.nan)
    cells = cells.assign(**nothing, runs_per_s=4.0, switches_per_s=50.0)
    cells[measured] = 4.0
    traced = cells.assign(
        twin=cells["cell"], cell=cells["cell"] + "-traced", recorded=True, switches_per_s=60.0
    )
    traced[measured] = 3.0
    table = stats.recording_cost(pd.concat([cells, traced], ignore_index=True))
    assert len(table)
    assert table["ratio"].to_numpy() == pytest.approx(0.75)
    assert set(table["switches_traced"]) == {60.0}
    assert set(table["switches_untraced"]) == {50.0}


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
def test_a_gated_kernel_leaves_a_row_with_the_reason(kernel: str, effect: bool) -> None:
    cells = synthetic.dataset(iodepths=(64,), weights=(100, 1000), invalid=False).cells
    whole = kernel_ratio(cells, base="6.1", other="6.12", effect=effect)
    hit = (cells["kernel"] == kernel) & (cells["weight"] == 1000)
    cells = gated(cells, hit, "background load")
    table = kernel_ratio(cells, base="6.1", other="6.12", effect=effect)
    assert table["weight"].tolist() == whole["weight"].tolist()
    lost = table[(table["weight"] == 1000).fillna(False)].iloc[0]
    assert lost["missing"] == f"kernel {kernel} has no valid boot: background load"
    assert lost[["ratio", "low", "high", "p_value"]].isna().all()
    assert sorted([lost["n_base"], lost["n_other"]]) == [0, 6]
    others = (whole["weight"] != 1000).fillna(True)
    assert table[others]["ratio"].tolist() == whole[others]["ratio"].tolist()


def test_a_kernel_whose_cells_are_all_gated_leaves_rows_with_the_reason() -> None:
    cells = synthetic.dataset(iodepths=(64,), weights=(100, 1000), invalid=False).cells
    lost = gated(cells, cells["kernel"] == "6.12", "the ramp was not honoured")
    table = kernel_ratio(lost, base="6.1", other="6.12", effect=True)
    assert set(table["missing"]) == {"kernel 6.12 has no valid boot: the ramp was not honoured"}
    assert len(table) == 3
    with pytest.raises(UserError, match="no valid cell"):
        kernel_ratio(cells.assign(valid=False, gate="load"), base="6.1", other="6.12")


_JOB = "rw=randread bs=4k ioengine=psync direct=1"
_OLD, _NEW = (1000.0, 1020.0, 1010.0), (800.0, 840.0, 815.0, 825.0)


def _asked(**different: Any) -> Pathology:
    treatment = {"treatment": {"kernel": "6.12"}, **different}
    asked = iolab.question(fio=_JOB, name="asked_apart", **treatment)
    register(asked)
    return asked


def _data(asked: Pathology, old: tuple[float, ...], new: tuple[float, ...]) -> Dataset:
    """Return boots of 6.1 with a control and an A/A pair, and others with a treated cell."""
    (treated,) = asked.profiles["quick"].grids[0][asked.treatment]
    other = treated if asked.treatment == TREATED_KERNEL else "6.1"
    blocks = [("6.1", None, value) for value in old] + [(other, treated, value) for value in new]
    same = {"pathology": asked.name, "intervention": "none", "ios": 1, "valid": True}
    same |= {
        "recorded": False,
        **dict.fromkeys(("scheduler", "target", "clock", "twin", "gate"), ""),
    }
    rows = []
    for number, (kernel, level, iops) in enumerate(blocks):
        boot = {"block": f"b{number}", "boot": number, "kernel_release": kernel, "iops": iops}
        boot |= {"kernel": kernel, asked.treatment: level}
        pair = [("control", False), ("control", True), ("treatment", True)]
        for position, (role, aa) in enumerate([("treatment", False)] if level else pair):
            cell = {
                "cell": f"b{number}-c{position}",
                "position": position,
                "pair": min(1, position),
            }
            rows.append({**same, **boot, **cell, "role": role, "aa": aa})
    types = column_types(asked.name)
    cells = pd.DataFrame(rows).reindex(columns=list(types)).astype(types)
    nothing = synthetic.dataset(boots=1)
    return replace(nothing, cells=cells, unavailable=nothing.unavailable[:0])


def test_another_kernel_is_compared_by_welch_on_logarithms() -> None:
    asked = _asked(claims=["iops ratio < 0.9", "iops difference < -250"])
    data = _data(asked, _OLD, _NEW)
    (row,) = effect_table(data.cells).to_dict("records")
    wanted = sp.ttest_ind(np.log(_NEW), np.log(_OLD), equal_var=False).confidence_interval(0.95)
    assert (row["kernel"], row["treated_kernel"], row["n"]) == ("6.12", "6.12", 3)
    assert (row["low"], row["high"]) == pytest.approx((np.exp(wanted.low), np.exp(wanted.high)))
    assert row["reading"] == "treatment lower, unpaired"
    ratio, difference = (judge(data, claim, "6.12") for claim in asked.claims)
    assert (ratio.low, ratio.high) == pytest.approx((row["low"], row["high"]))
    assert (ratio.verdict, difference.verdict) == ("reproduced", "not reproduced")
    assert difference.estimate == pytest.approx(-190)
    # Its own kernel has only controls, which are compared with themselves.
    table = verdict_table(data)
    assert table.loc[table["kernel"] == "6.1", "n"].eq(0).all()
    assert aa_check(data.cells)["ratio"].eq(1).all()


@pytest.mark.parametrize("treatment", [{"cpus": 2}, {"intervention": "boot.threadirqs"}])
def test_another_machine_is_compared_on_the_same_kernel(treatment: dict[str, Any]) -> None:
    asked = _asked(treatment=treatment, claims="iops ratio < 0.9")
    data = _data(asked, _OLD, _NEW)
    (row,) = effect_table(data.cells).to_dict("records")
    ratio = sp.gmean(_NEW) / sp.gmean(_OLD)
    assert (row["kernel"], row["ratio"]) == ("6.1", pytest.approx(ratio))
    (judged,) = verdict_table(data).to_dict("records")
    assert (judged["kernel"], judged["verdict"], judged["n"]) == ("6.1", "reproduced", 3)


def test_few_boots_of_either_kernel_decide_nothing() -> None:
    asked = _asked(claims="iops ratio < 0.9")
    for old, new in ((_OLD[:2], _NEW), (_OLD, _NEW[:1])):
        judged = judge(_data(asked, old, new), asked.claims[0], "6.12")
        assert (judged.verdict, judged.n) == ("inconclusive", min(len(old), len(new)))


def test_a_first_look_at_two_kernels_has_a_ratio() -> None:
    cells = _data(_asked(), _OLD[:1], _NEW[:1]).cells
    cells = cells[~cells["aa"] & ((cells["role"] == "treatment") | (cells["pair"] == 0))]
    (row,) = effect_table(cells).to_dict("records")
    assert (row["ratio"], row["n"]) == (pytest.approx(_NEW[0] / _OLD[0]), 1)
    (row,) = effect_table(cells.assign(valid=cells["role"] == "treatment")).to_dict("records")
    assert (math.isnan(row["ratio"]), row["n"]) == (True, 0)


def test_controls_of_two_kernels_are_not_pooled() -> None:
    data = _data(_asked(), _OLD, _NEW)
    first = data.cells["block"] == "b0"
    mixed = data.cells.assign(kernel=data.cells["kernel"].where(~first, "5.10"))
    with pytest.raises(UserError, match="more than one kernel"):
        effect_table(mixed)
