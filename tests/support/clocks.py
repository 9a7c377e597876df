# SPDX-License-Identifier: MIT
"""Reference data with a host's clock and known changes, beside those of virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from iolab.paths import REFERENCE
from iolab.report.comparison import compare_clocks
from iolab.store.dataset import Dataset, load

# What "hardware" does to the IOPS inside the cgroup.
FACTOR = 0.9


def hardware(data: Dataset, source: str = "6.1", **columns: Any) -> Dataset:
    """Return a kernel's cells as if a host's own clock had measured them."""
    cells = data.cells[data.cells["kernel"] == source]
    cells = cells.assign(clock="host", target="local", **columns)
    mechanism = data.mechanism[data.mechanism["cell"].isin(cells["cell"])]
    latency = data.latency[data.latency["cell"].isin(cells["cell"])]
    return Dataset(cells, latency, data.unavailable[:0], mechanism, traces={})


@pytest.fixture(scope="module")
def virtual() -> Dataset:
    """Two kernels of the reference: 6.8 is the name of one that virtual time has not measured."""
    data = load(REFERENCE / "dio_kworker")
    return replace(data, cells=data.cells[data.cells["kernel"].isin(["6.1", "6.12"])])


@pytest.fixture(scope="module")
def here(virtual: Dataset) -> Dataset:
    """6.1 with less IOPS at each weight, and with the cells that wait for a batch gated."""
    made = hardware(virtual)
    cells = made.cells.copy()
    cells.loc[cells["weight"].notna(), "iops"] *= FACTOR
    waits = cells["batch_min"] == 128
    cells.loc[waits, "valid"] = False
    cells.loc[waits, "gate"] = "cannot run here: this kernel ignores min_nr"
    return replace(made, cells=cells)


@pytest.fixture(scope="module")
def table(here: Dataset, virtual: Dataset) -> pd.DataFrame:
    return compare_clocks(here, virtual)
