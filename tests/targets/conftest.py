# SPDX-License-Identifier: MIT
"""One virtual machine's target for all tests that boot it, and what their programs saw there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iolab.errors import CannotRunError
from iolab.targets.vm import VmTarget, prepare


@pytest.fixture(scope="session")
def target() -> VmTarget:
    """Kernel 6.1 out of this user's own cache, so that it is fetched once."""
    try:
        return prepare("6.1", "virtual", cpus=1, memory_mib=1024)
    except CannotRunError as error:
        pytest.skip(f"no virtual machine here: {error}")


@pytest.fixture(scope="module")
def seen(results: Path) -> dict[str, Any]:
    """What a module's program in the guest wrote beside the ``results`` of its block."""
    found: dict[str, Any] = json.loads((results / "seen.json").read_text())
    return found
