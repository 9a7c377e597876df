# SPDX-License-Identifier: MIT
"""Find the real target that a user names: local, or an ssh address."""

from __future__ import annotations

from iolab.targets.local import LocalTarget
from iolab.targets.real import RealTarget
from iolab.targets.ssh import SshTarget
from iolab_base.errors import UserError

__all__ = ["real_target"]


def real_target(name: str) -> RealTarget:
    """Return the machine with a name: "local", or ``ssh://user@host[:port]``.

    Raises UserError if the name is not a target, or the user may not use it.
    """
    if name == "local":
        return LocalTarget()
    if name.startswith("ssh://"):
        return SshTarget(name)
    raise UserError(f"unknown target {name!r} (known: local, ssh://user@host[:port], vm)")
