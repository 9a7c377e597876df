# SPDX-License-Identifier: MIT
"""How the agent gets to the measured machine and how its results come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from iolab.agent.plan import Plan

__all__ = ["Target"]


class Target(Protocol):
    """A machine that runs plans, implemented by `iolab.targets.vm` and `iolab.targets.real`."""

    @property
    def origin(self) -> str:
        """Where its kernel comes from, for people."""

    def identity(self) -> dict[str, Any]:
        """Return everything about it that a result depends on."""

    def run(self, plan: Plan, into: Path, progress: Callable[[str], None] = ...) -> dict[str, Any]:
        """Run `plan`, leave its results at `into`, and return the machine's facts."""
