# SPDX-License-Identifier: MIT
from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as sp

from iolab.stats.kernels import kernel_ratio
from iolab.stats.unpaired import welch_difference
from iolab_base.errors import UserError
from tests.support import synthetic


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
def test_a_gated_kernel_leaves_a_row_with_the_reason(kernel: str, effect: bool) -> None:
    cells = synthetic.dataset(iodepths=(64,), weights=(100, 1000), invalid=False).cells
    whole = kernel_ratio(cells, base="6.1", other="6.12", effect=effect)
    hit = (cells["kernel"] == kernel) & (cells["weight"] == 1000).fillna(False)
    cells.loc[hit, "valid"] = False
    cells.loc[hit, "gate"] = "background load"
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
    gated = cells["kernel"] == "6.12"
    lost = cells.assign(valid=~gated, gate=np.where(gated, "the ramp was not honoured", ""))
    table = kernel_ratio(lost, base="6.1", other="6.12", effect=True)
    assert set(table["missing"]) == {"kernel 6.12 has no valid boot: the ramp was not honoured"}
    assert len(table) == 3
    with pytest.raises(UserError, match="no valid cell"):
        kernel_ratio(cells.assign(valid=False, gate="load"), base="6.1", other="6.12")


def test_a_difference_by_welch_is_in_the_values_own_unit() -> None:
    a, b = np.array([1.0, 1.5, 2.5]), np.array([4.0, 4.1])
    found = welch_difference(a, b, 0.9)
    wanted = sp.ttest_ind(b, a, equal_var=False)
    interval = wanted.confidence_interval(0.9)
    assert found.mean == pytest.approx(4.05 - 5 / 3)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p_value == pytest.approx(wanted.pvalue)
    assert found.missing == ""


def test_welch_says_what_is_missing() -> None:
    one, same, spread = np.array([0.1]), np.array([0.1, 0.1]), np.array([0.1, 0.3])
    assert welch_difference(one, spread, 0.95).missing == "one boot"
    neither = welch_difference(same, same, 0.95)
    assert neither.missing == "the boots of a kernel do not differ"
    found = welch_difference(same, spread, 0.95)
    assert found.missing == ""
    assert math.isfinite(found.low)
