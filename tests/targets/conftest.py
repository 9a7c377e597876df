# SPDX-License-Identifier: MIT
"""What programs of tests saw in the guest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def seen(results: Path) -> dict[str, Any]:
    """What a module's program in the guest wrote beside the ``results`` of its block."""
    found: dict[str, Any] = json.loads((results / "seen.json").read_text())
    return found
