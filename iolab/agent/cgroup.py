# SPDX-License-Identifier: MIT
"""The cgroup a job runs in (cgroup v2)."""

from __future__ import annotations

from pathlib import Path

from iolab.agent.journal import Journal
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


def make_cgroup(journal: Journal, name: str, *, weight: int) -> Path:
    """Make a cgroup below the root with a cpu.weight, and return its folder.

    Errors: CannotRunError if there is no cgroup v2 or its cpu controller is not to be had.
    """
    root = mount_point()
    if root is None:
        raise CannotRunError("no cgroup v2 is mounted on the measured machine")
    if "cpu" not in (root / "cgroup.controllers").read_text().split():
        raise CannotRunError("the cpu controller is not available to cgroup v2 here")
    control = root / "cgroup.subtree_control"
    if "cpu" not in control.read_text().split():
        journal.note("write", str(control), "-cpu")
        control.write_text("+cpu")
    group = root / name
    journal.note("cgroup", str(group))
    group.mkdir()
    change(journal, group / "cpu.weight", str(weight))
    return group
