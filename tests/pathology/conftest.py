# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

from iolab.pathology import registry


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test registered."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_installed", {})
    monkeypatch.setattr(registry, "_read", [])
    monkeypatch.delenv(registry.FILES_VARIABLE, raising=False)
    monkeypatch.delenv(registry.HANDOVER_VARIABLE, raising=False)
