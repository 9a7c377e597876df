# SPDX-License-Identifier: MIT
"""Loop devices for the tests of disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.loops import loop_device


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A loop device of 16 MiB that holds nothing."""
    with loop_device(tmp_path / "image", 16) as node:
        yield node
