# SPDX-License-Identifier: MIT
"""Where tests find real traces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.needs import program

_SOON = 4 << 20

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small() -> Path:
    """Return the small real trace of the repository."""
    return ROOT / "data" / "reference" / "traces" / "small_v7_mono.dat"


def big_traces() -> list[Path]:
    """Return the traces that are too big for the repository, where they can be found."""
    named = os.environ.get("IOLAB_TRACES")
    folder = Path(named) if named else ROOT.parent / "shared" / "traces"
    found = sorted(folder.glob("*.dat")) if folder.is_dir() else []
    # Comparing millions of lines takes a minute: only when asked for.
    return [path for path in found if named or path.stat().st_size < _SOON]


@pytest.fixture
def trace_cmd() -> str:
    """Return the program's path; skips the test without it."""
    return str(program("trace-cmd"))
