# SPDX-License-Identifier: MIT
"""A cache of one's own, small trees, and machines that have all tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from icountvm import kernels
from icountvm.kernels import cached_kernel
from tests.icountvm.conftest import FakeToolbox, cache, toolbox
from tests.support.kernel_tree import make_repository

__all__ = ["cache", "repository", "toolbox"]


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, toolbox: FakeToolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ensure_toolbox", lambda: toolbox)
    # Real tools; the tree needs none of the others, and of a compiler only its version.
    monkeypatch.setenv("CC", "make")
    monkeypatch.setattr("icountvm.kbuild.tools._NEEDED", {"make": ("make", "make", "make")})
    monkeypatch.setattr("icountvm.kbuild.source._NEEDED_BYTES", 1 << 20)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git work tree with one commit."""
    return make_repository(tmp_path / "linux")


def image(name: str) -> bytes:
    """Return the image of a cached kernel."""
    kernel = cached_kernel(name)
    assert kernel is not None
    return kernel.vmlinuz.read_bytes()
