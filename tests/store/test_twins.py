# SPDX-License-Identifier: MIT
"""Traced cells of another regime than their twin's: gated, with both values, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from iolab.paths import REFERENCE
from iolab.report.tables import traced_measures
from iolab.store.dataset import load
from iolab.store.twins import gate_other_regimes
from tests.support import synthetic


def _traced(
    untraced: tuple[float, float], traced: tuple[float, float], **different: Any
) -> pd.DataFrame:
    """Return a cell and its traced twin, each with its switches per I/O and its IOPS."""
    cell = synthetic.dataset(kernels=["6.1"], boots=1, invalid=False).cells.iloc[[0]]
    names = ("switches_per_io", "steady_iops")
    twin = cell.assign(**dict(zip(names, untraced, strict=True)))
    other = cell.assign(**dict(zip(names, traced, strict=True)), cell="t", recorded=True)
    other = other.assign(twin=twin["cell"].iloc[0], **different)
    return pd.concat([twin, other], ignore_index=True)


@pytest.mark.parametrize(
    ("untraced", "traced"),
    [
        ((0.015, 1000), (2.009, 557)),
        # Either alone.
        ((0.015, 1000), (2.009, 900)),
        ((2.009, 1000), (0.015, 900)),
        ((2.0, 1000), (2.0, 600)),
        ((2.0, 600), (2.0, 1000)),
        ((0.0, 1000), (0.6, 1000)),
    ],
)
def test_another_regime_is_gated(
    untraced: tuple[float, float], traced: tuple[float, float]
) -> None:
    cells = _traced(untraced, traced)
    found = gate_other_regimes(cells)
    assert found["valid"].tolist() == [True, False]
    assert found["gate"].iloc[1].startswith("tracing changed its regime: ")
    assert cells["valid"].all()


@pytest.mark.parametrize(
    ("untraced", "traced"),
    [
        # Tracing costs IOPS.
        ((2.0, 1000), (2.0, 700)),
        # A factor, and less than half a switch; more than half a switch, and no factor.
        ((0.01, 1000), (0.3, 990)),
        ((2.0, 1000), (2.9, 990)),
        ((math.nan, 1000), (2.0, 990)),
        ((2.0, math.nan), (2.0, 990)),
    ],
)
def test_the_same_regime_is_not(untraced: tuple[float, float], traced: tuple[float, float]) -> None:
    cells = _traced(untraced, traced)
    assert gate_other_regimes(cells) is cells


def test_a_gate_of_its_own_stays() -> None:
    cells = _traced((0.015, 1000), (2.0, 500), valid=False, gate="the recording lost events")
    assert gate_other_regimes(cells)["gate"].iloc[1] == "the recording lost events"
    twin = _traced((0.015, 1000), (2.0, 500))
    twin.loc[0, "valid"] = False
    assert gate_other_regimes(twin)["valid"].tolist() == [False, True]


def test_the_traces_that_tipped_the_balance_are_gated() -> None:
    data = load(REFERENCE / "dio_kworker")
    hit = data.cells[data.cells["gate"].str.startswith("tracing changed its regime")]
    assert hit["kernel"].tolist() == ["5.10", "5.10", "6.8"]
    assert set(hit["role"]) == {"treatment"}
    assert "2.01 switches per I/O, 0.015 without tracing" in hit["gate"].iloc[0]
    traced = traced_measures(data)
    # What is left of 5.10 is the control; of 6.8 one of two treated cells is left, too.
    assert traced.loc[traced["kernel"] == "5.10", "weight"].isna().all()
    assert traced.loc[traced["kernel"] == "6.8", "weight"].notna().sum() == 1
    assert traced.loc[traced["kernel"] == "6.1", "weight"].notna().any()
