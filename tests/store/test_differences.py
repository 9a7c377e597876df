# SPDX-License-Identifier: MIT
"""Values of two tables, compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from iolab.store.dataset import Dataset, load
from iolab.store.differences import LATENCIES, block_values, different_values
from tests.support.sealed import made_up


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return load(made_up(tmp_path))


def differences(before: Dataset, now: Dataset) -> dict[str, list[str]]:
    block = before.cells["cell"].iloc[0].partition("-")[0]
    stored, measured = (
        block_values(block, of.cells, of.latency, of.mechanism) for of in (before, now)
    )
    found = {name: list(different_values(stored[name], measured[name])) for name in stored}
    return {name: columns for name, columns in found.items() if columns}


def test_the_same_tables_have_no_differences(data: Dataset) -> None:
    assert differences(data, data) == {}


def test_the_same_block_by_another_name_is_the_same(data: Dataset) -> None:
    (block,) = data.cells["block"].unique()
    data.cells.loc[0, "twin"] = f"{block}-c003"

    def renamed(table: pd.DataFrame) -> pd.DataFrame:
        texts = [name for name in ("cell", "block", "twin") if name in table]
        return table.assign(**{n: table[n].str.replace(block, "f" * 16) for n in texts})

    tables = map(renamed, (data.cells, data.latency, data.mechanism))
    before = block_values(block, data.cells, data.latency, data.mechanism)
    now = block_values("f" * 16, *tables)
    assert list(now) == list(before) == ["c000", "c001", "c002", "c003"]
    assert [different_values(before[name], now[name]) for name in now] == [{}] * 4


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("iops", 2999.9),
        ("iops", math.nan),
        ("boot", 1),
        ("block", "f" * 16),
        ("twin", "f" * 16 + "-c001"),
        ("weight", None),
        ("valid", False),
        ("gate", "too busy"),
        ("kernel_release", "6.1.1"),
    ],
)
def test_one_edited_value_is_named(data: Dataset, column: str, value: Any) -> None:
    values = data.cells[column].tolist()
    (place,) = data.cells.index[data.cells["weight"].notna()]
    values[place] = value
    edited = data.cells.assign(**{column: values}).astype({column: data.cells[column].dtype})
    found = differences(replace(data, cells=edited), data)
    assert found == {f"c00{place}": [column]}


@pytest.mark.parametrize(
    "edit", [lambda bins: bins.iloc[1:], lambda bins: bins.assign(count=bins["count"] + 1)]
)
def test_an_edited_histogram_is_named(
    data: Dataset, edit: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    found = differences(replace(data, latency=edit(data.latency)), data)
    assert set(found["c000"]) == {LATENCIES}


def test_an_edited_or_invented_measure_is_named(data: Dataset) -> None:
    (block,) = data.cells["block"].unique()
    row = {"cell": f"{block}-c001", "measure": "made_up_per_s", "value": 1.0}
    invented = pd.concat([data.mechanism, pd.DataFrame([row])], ignore_index=True)
    assert differences(replace(data, mechanism=invented), data) == {"c001": ["made_up_per_s"]}


def test_the_last_digits_of_a_sum_are_no_difference() -> None:
    assert different_values({"iops": 1.0}, {"iops": 1.0 + 1e-12}) == {}
    assert different_values({"iops": 1.0}, {"iops": 1.0 + 1e-6}) != {}
