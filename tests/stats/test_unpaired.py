# SPDX-License-Identifier: MIT
"""Treated cells and controls on machines of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as sp

import iolab
from iolab.pathology import register
from iolab.pathology.base import TREATED_KERNEL, Pathology
from iolab.report import aa_check, effect_table
from iolab.stats.claims import judge
from iolab.stats.unpaired import welch_difference
from iolab.stats.verdicts import verdict_table
from iolab.store.counters import (
    LATENCY_COLUMNS,
    MECHANISM_COLUMNS,
    UNAVAILABLE_COLUMNS,
    column_types,
)
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError

_JOB = "rw=randread bs=4k ioengine=psync direct=1"
_OLD, _NEW = (1000.0, 1020.0, 1010.0), (800.0, 840.0, 815.0, 825.0)


def _asked(**different: Any) -> Pathology:
    treatment = {"treatment": {"kernel": "6.12"}, **different}
    asked = iolab.question(fio=_JOB, name="asked_apart", **treatment)
    register(asked)
    return asked


def _data(asked: Pathology, old: tuple[float, ...], new: tuple[float, ...]) -> Dataset:
    """Return boots of 6.1 with a control and an A/A pair, and others with a treated cell."""
    rows = []
    (treated,) = asked.profiles["quick"].grids[0][asked.treatment]
    other = treated if asked.treatment == TREATED_KERNEL else "6.1"
    blocks = [("6.1", None, value) for value in old] + [(other, treated, value) for value in new]
    for number, (kernel, level, iops) in enumerate(blocks):
        alone = [("control" if level is None else "treatment", False)]
        pair = [("control", True), ("treatment", True)] if level is None else []
        for position, (role, aa) in enumerate(alone + pair):
            rows.append(
                {
                    "cell": f"b{number}-c{position}",
                    "block": f"b{number}",
                    "pathology": asked.name,
                    "kernel": kernel,
                    "kernel_release": kernel,
                    "boot": number,
                    "position": position,
                    "pair": 0 if position == 0 else 1,
                    "role": role,
                    "aa": aa,
                    "iops": iops,
                    "valid": True,
                    "intervention": "none",
                    asked.treatment: level,
                    **dict.fromkeys(("scheduler", "target", "clock", "twin", "gate"), ""),
                }
            )
    types = column_types(asked.name)
    missing = {"recorded": False, "ios": 1}
    frame = pd.DataFrame(rows).assign(**missing).reindex(columns=list(types)).astype(types)
    latency, mechanism, unavailable = (
        pd.DataFrame(columns=list(kinds)).astype(kinds)
        for kinds in (LATENCY_COLUMNS, MECHANISM_COLUMNS, UNAVAILABLE_COLUMNS)
    )
    return Dataset(
        cells=frame, latency=latency, unavailable=unavailable, mechanism=mechanism, traces={}
    )


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


def test_controls_of_two_kernels_are_not_pooled() -> None:
    data = _data(_asked(), _OLD, _NEW)
    first = data.cells["block"] == "b0"
    mixed = data.cells.assign(kernel=data.cells["kernel"].where(~first, "5.10"))
    with pytest.raises(UserError, match="more than one kernel"):
        effect_table(mixed)


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
