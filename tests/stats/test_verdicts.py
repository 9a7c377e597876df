# SPDX-License-Identifier: MIT
"""Tables of verdicts on data of known truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from iolab.figures.verdicts import verdict_grid
from iolab.stats.verdicts import (
    neighbourhood_table,
    verdict_summary,
    verdict_table,
    verdict_text,
)
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from tests.support import synthetic
from tests.support.reports import report


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic.dataset(kernels=["6.1", "6.12"])


def test_the_table_has_every_claim_on_every_kernel(data: Dataset) -> None:
    table = verdict_table(data)
    assert table["kernel"].unique().tolist() == ["6.1", "6.12", "6.8"]
    assert set(table.loc[table["kernel"] == "6.8", "verdict"]) == {"cannot run here"}
    assert table["rule"].str.contains("above|below").all()
    summary = verdict_summary(table)
    assert summary["kernel"].tolist() == ["6.1", "6.12", "6.8"]
    assert summary["page"].unique().tolist() == ["dio_kworker.ipynb"]
    assert summary["confidence"].tolist()[-1] == "none"


def test_claims_of_one_kind_are_joined() -> None:
    rows = [
        {
            "pathology": "dio_kworker",
            "kernel": "6.1",
            "claim": f"claim {number}",
            "kind": kind,
            "secondary": side,
            "verdict": verdict,
            "n": 6,
        }
        for number, (kind, side, verdict) in enumerate(
            (
                ("mechanism", False, "reproduced"),
                ("mechanism", False, "not reproduced"),
                ("mechanism", True, "reproduced"),
                ("mechanism", False, "not measured"),
                ("mechanism", False, "not reproduced"),
                ("magnitude", False, "inconclusive"),
                ("magnitude", False, "inconclusive"),
            )
        )
    ]
    (row,) = verdict_summary(pd.DataFrame(rows)).to_dict("records")
    whole = "1 of 4 reproduced (not reproduced: claim 1, claim 4; not measured: claim 3)"
    assert row["mechanism"] == whole
    assert row["magnitude"] == "inconclusive"
    assert row["secondary claims"] == "reproduced"
    assert row["confidence"] == "95%, 6 boots"
    (three,) = verdict_summary(pd.DataFrame(rows).assign(n=3)).to_dict("records")
    assert three["confidence"] == "n = 3: interval too short (87 %)"


def test_a_result_is_said_with_its_interval_or_reason() -> None:
    row = {"estimate": 0.7612, "low": 0.7601, "high": 0.7623, "reason": ""}
    assert verdict_text(row) == "0.761 [0.76, 0.762]"
    assert verdict_text({**row, "low": math.nan}) == "0.761"
    assert verdict_text({**row, "estimate": math.nan, "reason": "no tool"}) == "no tool"


def test_the_figure_has_a_field_for_each_claim_and_kernel(data: Dataset) -> None:
    table = verdict_table(data)
    figure = verdict_grid(table)
    assert len(figure.axes[0].patches) == len(table)
    with pytest.raises(UserError, match="no claim"):
        verdict_grid(table[:0])


def test_a_kernel_that_can_run_in_part_has_one_row_for_each_claim(data: Dataset) -> None:
    partly = replace(data, unavailable=pd.DataFrame([{"kernel": "6.1", "reason": "highres=on"}]))
    assert not verdict_table(partly).duplicated(["kernel", "claim"]).any()


@pytest.mark.parametrize("column", ["clock", "target"])
def test_kernels_of_two_clocks_are_no_one_table(data: Dataset, column: str) -> None:
    other = data.cells[column].where(data.cells["kernel"] == "6.1", "other")
    with pytest.raises(UserError, match=f"more than one {column}"):
        verdict_table(replace(data, cells=data.cells.assign(**{column: other})))


def test_a_neighbourhood_says_where_the_effect_is_and_where_not() -> None:
    # By depth, around the report's own 128: a loss there and deeper, none at 192.
    lost = {128: 0.5, 192: 1.0, 384: 0.5}
    rows = [
        row
        for depth, ratio in lost.items()
        for boot in range(3)
        for row in synthetic.block_cells(
            block=f"{depth}-{boot}",
            boot=boot,
            conditions=[(depth, 1000)],
            effects={1000: ratio},
            noise_sd=0.001,
            rng=np.random.default_rng(boot),
        )
    ]
    data = synthetic.dataset(kernels=["6.1"], boots=1)
    cells = synthetic.frame(rows).assign(tuning="8-cpus")
    table = neighbourhood_table(replace(data, cells=cells)).set_index("claim")
    row = table.loc["IOPS lost"]
    assert (row["own"], row["reproduced"], row["of"]) == ("reproduced", 2, 3)
    assert row["elsewhere"] == "iodepth=192: not reproduced"
    assert row["estimate"] == pytest.approx(0.5, rel=0.01)


def test_a_report_without_a_neighbourhood_says_so() -> None:
    with pytest.raises(UserError, match="fsnotify_contention"):
        neighbourhood_table(report("fsnotify_contention"))
