# SPDX-License-Identifier: MIT
"""The cgroup a job runs in (cgroup v2)."""

from __future__ import annotations

from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.plan import Group
from iolab.agent.settings import change
from iolab.errors import CannotRunError

__all__ = ["make_cgroup", "mount_point"]


def mount_point() -> Path | None:
    """Return where cgroup v2 is mounted, or None."""
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    return None


def make_cgroup(journal: Journal, name: str, group: Group) -> Path:
    """Make a cgroup below the root with a controller and its weight, and return its folder.

    Errors: CannotRunError if there is no cgroup v2, or its controller or weight is not to be had.
    """
    root = mount_point()
    if root is None:
        raise CannotRunError("no cgroup v2 is mounted on the measured machine")
    controller = group.controller
    if controller not in (root / "cgroup.controllers").read_text().split():
        raise CannotRunError(f"the {controller} controller is not available to cgroup v2 here")
    control = root / "cgroup.subtree_control"
    if controller not in control.read_text().split():
        journal.note("write", str(control), f"-{controller}")
        control.write_text(f"+{controller}")
    folder = root / name
    journal.note("cgroup", str(folder))
    folder.mkdir()
    if group.weight is not None:
        change(journal, folder / f"{controller}.weight", str(group.weight))
    return folder
