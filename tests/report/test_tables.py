# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from iolab import figures, report, stats
from iolab.pathology import get_pathology
from iolab.store.dataset import Dataset, KernelBuild
from iolab_base.errors import UserError
from tests.support import synthetic


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic.dataset()


def test_the_overview_says_what_is_there(data: Dataset) -> None:
    table = report.overview(data.cells)
    assert table["kernel"].tolist() == ["6.1", "6.12"]
    first = table.iloc[0]
    assert first["release"] == "6.1.0-made-up"
    assert first["weight"] == "100, 1000, 3000, 10000"
    assert (first["boots"], first["cells"], first["invalid"]) == (6, 120, 1)
    assert table[["preemption", "hz"]].isna().all(axis=None)


def test_the_overview_has_the_preemption_model_and_hz_of_kernels_that_are_known(
    data: Dataset,
) -> None:
    table = report.overview(data.cells, {"6.12": KernelBuild(preemption="lazy", hz=250)})
    assert table["hz"].tolist() == [pd.NA, 250]
    assert table["preemption"].fillna("not known").tolist() == ["not known", "lazy"]


def test_there_is_no_overview_of_nothing(data: Dataset) -> None:
    with pytest.raises(UserError, match="there is no valid cell"):
        report.overview(data.cells.iloc[:0])


def test_the_overview_on_its_side_has_the_same_values(data: Dataset) -> None:
    table = report.overview(data.cells, {}).set_index("kernel")
    side = report.kernel_columns(data.cells, {}).set_index("what")
    assert list(side.columns) == list(table.index)
    assert side.index.tolist() == list(table.columns)
    assert list(side["6.12"])[:2] == [table["release"]["6.12"], table["scheduler"]["6.12"]]


def test_the_effect_table_reads_the_interval(data: Dataset) -> None:
    table = report.effect_table(data.cells, levels=[100, 10000])
    assert table["weight"].unique().tolist() == [100, 10000]
    assert set(table.loc[table["weight"] == 10000, "reading"]) == {"treatment lower"}
    assert "no difference seen" in set(table.loc[table["weight"] == 100, "reading"])
    everything = report.effect_table(data.cells)
    assert everything["weight"].unique().tolist() == [100, 1000, 3000, 10000]
    single = report.effect_table(data.cells[data.cells["boot"] == 1])
    assert set(single["reading"]) == {"one boot: no interval"}


def test_the_level_table_names_the_control(data: Dataset) -> None:
    table = report.level_table(data, "switches_per_io")
    assert list(table.columns[:3]) == ["kernel", "iodepth", "weight"]
    assert table["weight"].tolist()[:5] == ["outside", 100, 1000, 3000, 10000]
    assert table["mean"].tolist()[:5:4] == pytest.approx([0.011, 2.111])


def test_a_core_is_not_idle_for_less_than_no_time(data: Dataset) -> None:
    busy = data.cells.assign(idle=-0.00009 - 0.00001 * data.cells["boot"])
    table = report.level_table(replace(data, cells=busy), "idle")
    assert (table[["mean", "low", "high"]] == 0).all(axis=None)


def test_claims_about_other_conditions_are_named(data: Dataset) -> None:
    said = report.unasked_claims(data)
    assert "IOPS lost (iodepth 272)" in said
    # The condition of a claim, all of whose cells are invalid, was asked for.
    claim = get_pathology("dio_kworker").claim("IOPS lost")
    levels = {name: level for name, level in claim.condition.items() if name != "weight"}
    treated = data.cells["weight"] == 10000
    cells = data.cells.assign(
        **levels, weight=data.cells["weight"].mask(treated, claim.condition["weight"]), valid=False
    )
    lost = replace(data, cells=cells.astype(data.cells.dtypes.to_dict()))
    assert ("6.1", "IOPS lost") in report.asked_claims(lost)
    assert "IOPS lost (" not in report.unasked_claims(lost)


def test_a_higher_value_is_read_as_such() -> None:
    rng = np.random.default_rng(0)
    rows = [
        row
        for boot in range(3)
        for row in synthetic.block_cells(
            block=f"b{boot}", boot=boot, effects={1000: 1.2}, noise_sd=0.001, rng=rng
        )
    ]
    table = report.effect_table(synthetic.frame(rows))
    assert table["reading"].tolist() == ["treatment higher"]


def test_the_aa_check_holds_where_nothing_differs(data: Dataset) -> None:
    table = report.aa_check(data.cells)
    assert len(table) == 4
    assert table["ratio"].tolist() == pytest.approx([1.0] * 4, abs=0.02)
    single = report.aa_check(data.cells[data.cells["boot"] == 1])
    assert single["holds"].isna().all()
    assert report.aa_check(data.cells[~data.cells["aa"]]).empty


def test_the_load_is_that_of_the_control(data: Dataset) -> None:
    table = report.control_load(data.cells)
    row = table[(table["kernel"] == "6.1") & (table["iodepth"] == 192)].iloc[0]
    assert row["limit"] == "device"
    assert row["idle"] == pytest.approx(0.24)
    assert row["iops"] == pytest.approx(44_000, rel=0.03)
    treated = data.cells["weight"].notna()
    spoiled = data.cells.assign(idle=data.cells["idle"].mask(treated, 0.0))
    pd.testing.assert_frame_equal(report.control_load(spoiled), table)
    assert set(report.control_load(data.cells.assign(idle=0.0))["limit"]) == {"core"}


def test_the_main_grid_leaves_side_experiments_out(data: Dataset) -> None:
    side = data.cells.iloc[:20].assign(engine="io_uring", iodepth=8)
    cells = pd.concat([data.cells, side], ignore_index=True)
    assert len(report.main_grid(cells, keep=["iodepth"])) == len(data.cells)
    assert report.main_grid(cells)["iodepth"].nunique() == 1


def test_the_summary_is_plain_json(data: Dataset, tmp_path: Path) -> None:
    results = report.summary(data, published={"weight": 1000, "iops_ratio": 0.579})
    report.write_summary(tmp_path / "results.json", results)
    text = (tmp_path / "results.json").read_text()
    assert json.loads(text) == results
    assert "NaN" not in text
    ratios = results["ratios"]["iops"]
    assert len(ratios) == len(stats.ratio_table(data.cells))
    aa = [row for row in ratios if row["aa"]]
    assert all(row["weight"] is None and row["p_holm"] is None for row in aa)
    assert results["cells"]["invalid"][0]["gate"] == "the ramp was not honoured"
    assert results["unavailable"] == [{"kernel": "6.8", "reason": "its archive cannot be reached"}]
    assert {row["other"] for row in results["kernel_effects"]} == {"6.12"}
    assert len(results["rules_sha256"]) == 64
    assert (results["clock"], results["pathology"]) == ("virtual", "dio_kworker")


def test_the_summary_does_not_depend_on_the_order_of_rows(data: Dataset) -> None:
    expected = report.summary(data)
    for cells in synthetic.shuffled(data.cells, seeds=[3]):
        shuffled = report.summary(replace(data, cells=cells))
        assert shuffled["ratios"] == expected["ratios"]
        assert shuffled["means"] == expected["means"]
        assert shuffled["order"] == expected["order"]


def test_one_kernel_and_one_boot_still_have_a_summary() -> None:
    results = report.summary(synthetic.dataset(kernels=["6.1"], boots=1))
    assert results["kernel_effects"] == []
    assert {row["low"] for row in results["ratios"]["iops"]} == {None}
    empty = synthetic.dataset(kernels=["6.1"], boots=1)
    with pytest.raises(UserError, match="no valid cell"):
        report.summary(replace(empty, cells=empty.cells[:0]))


@pytest.mark.parametrize("gated", ["6.1", "6.12"])
def test_a_kernel_whose_cells_were_gated_is_compared_with_its_reason(gated: str) -> None:
    cells = synthetic.dataset(kernels=["6.1", "6.12"], boots=2, weights=[1000]).cells
    lost = cells["kernel"] == gated
    cells.loc[lost, "valid"] = False
    cells.loc[lost, "gate"] = "cannot run here: no cgroup"
    table = report.kernel_effects(cells)
    assert len(table) == 4
    assert set(table["missing"]) == {
        f"kernel {gated} has no valid boot: cannot run here: no cgroup"
    }
    assert table["ratio"].isna().all()


def test_a_figure_is_published_with_its_caption(data: Dataset, tmp_path: Path) -> None:
    figure = figures.cpu_split(data.cells)
    text = report.publish("cpu_split", figure, data, tmp_path)
    assert (tmp_path / "cpu_split.txt").read_text() == text + "\n"
    assert (tmp_path / "cpu_split.pdf").exists()
    assert report.publish("cpu_split", figure, data) == text


def test_invalid_cells_are_listed_with_their_reason(data: Dataset) -> None:
    table = report.invalid_cells(data.cells)
    assert len(table) == 1
    assert isinstance(table, pd.DataFrame)
    assert table["gate"].tolist() == ["the ramp was not honoured"]


def test_what_the_machine_does_not_count_is_unknown(data: Dataset) -> None:
    uncounted = replace(data, cells=data.cells.assign(idle=np.nan))
    assert set(report.control_load(uncounted.cells)["limit"]) == {"unknown"}
    assert {row["mean"] for row in report.summary(uncounted)["means"]["idle"]} == {None}
    figures.cpu_split(uncounted.cells)
