# SPDX-License-Identifier: MIT
"""How the agent gets to the measured machine and how its results come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from iolab_agent.plan import Plan
from iolab_base.errors import UserError

if TYPE_CHECKING:
    from iolab.blocks import Block
    from iolab.targets.real import RealTarget


class Target(Protocol):
    """A machine that runs plans, implemented by `iolab.targets.vm` and `iolab.targets.real`."""

    @property
    def origin(self) -> str:
        """Where its kernel comes from, for people."""

    def identity(self) -> dict[str, Any]:
        """Return everything about it that a result depends on."""

    def run(self, plan: Plan, into: Path, progress: Callable[[str], None] = ...) -> dict[str, Any]:
        """Run `plan`, leave its results at `into`, and return the machine's facts."""


def real_target(name: str) -> RealTarget:
    """Return the machine with a name, "local" or ``ssh://user@host[:port]``, or raise UserError."""
    if name == "local":
        from iolab.targets.local import LocalTarget  # noqa: PLC0415 - slow to load

        return LocalTarget()
    if name.startswith("ssh://"):
        from iolab.targets.ssh import SshTarget  # noqa: PLC0415

        return SshTarget(name)
    raise UserError(f"unknown target {name!r} (known: local, ssh://user@host[:port], vm)")


def target_of(block: Block) -> Target:
    """Prepare a block's virtual machine, or connect to its real one, and return it."""
    # The block of a virtual machine has no target.
    if block.target is not None:
        return real_target(block.target)
    from iolab.targets.vm import prepare  # noqa: PLC0415 - slow to load

    machine = block.machine
    return prepare(block.kernel, block.clock, cpus=machine.cpus, memory_mib=machine.memory_mib)
