# SPDX-License-Identifier: MIT
"""Made-up sweeps that figures are drawn from."""

from __future__ import annotations

import pytest

from iolab.store.dataset import Dataset
from tests.support import synthetic


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic.dataset(boots=2)


@pytest.fixture(scope="module")
def small() -> Dataset:
    return synthetic.dataset(
        kernels=["6.1"], iodepths=[192], weights=[1000], boots=1, invalid=False
    )
