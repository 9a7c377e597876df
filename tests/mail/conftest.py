# SPDX-License-Identifier: MIT
"""The measurement that mails are written about."""

from __future__ import annotations

import pytest

from iolab.paths import REFERENCE
from iolab.store.dataset import Dataset, load
from iolab_agent.plan import Job

JOB = Job(
    engine="libaio",
    rw="randwrite",
    block_size=4096,
    iodepth=16,
    numjobs=1,
    batch=1,
    size_mib=64,
    layout="written",
    ramp_ms=100,
    runtime_ms=200,
    seed=1,
)


@pytest.fixture(scope="session")
def measured() -> Dataset:
    return load(REFERENCE / "dio_kworker")
