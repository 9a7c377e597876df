# SPDX-License-Identifier: MIT
"""Places and environments of the tests of commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """An empty cache, and mirrors that are not there."""
    return {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "IOLAB_MIRROR_DEBIAN": "file:/nonexistent/debian",
        "IOLAB_MIRROR_UBUNTU": "file:/nonexistent/ubuntu",
    }


@pytest.fixture
def in_process(
    alone: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    in_process: Callable[..., tuple[int, str]],
) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process, without a cache and a mirror."""
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    return in_process
