# SPDX-License-Identifier: MIT
"""One virtual machine's target for all tests that boot it."""

from __future__ import annotations

import pytest

from iolab.errors import CannotRunError
from iolab.target.vm import VmTarget, prepare


@pytest.fixture(scope="session")
def target() -> VmTarget:
    """Kernel 6.1 out of this user's own cache, so that it is fetched once."""
    try:
        return prepare("6.1", "virtual", {"cpus": 1, "memory_mib": 1024})
    except CannotRunError as error:
        pytest.skip(f"no virtual machine here: {error}")
