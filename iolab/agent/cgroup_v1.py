# SPDX-License-Identifier: MIT
"""The cgroup a job runs in where cgroup v1 has the controller.

Of the cpu controller's weight there is one: v2's ``cpu.weight`` w and v1's ``cpu.shares`` s set the
same number of the scheduler, for s = w * 1024 / 100, rounded to the nearest (the kernel's own
sched_weight_from_cgroup). v1's ``blkio`` is another thing than v2's io controller: it does not
account buffered writes to the group that made them.
"""

from __future__ import annotations

from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.plan import Group
from iolab.agent.proc import mounts
from iolab.agent.settings import change

__all__ = ["has_controller", "make_v1_cgroup", "root_of", "shares_of"]


def has_controller(controller: str) -> bool:
    """Tell whether a hierarchy of cgroup v1 with a controller (by its v1 name) is mounted."""
    return any(controller in options for _, options in mounts("cgroup"))


def root_of(controller: str) -> Path | None:
    """Return the root of the hierarchy of cgroup v1 that has a controller, or None.

    What a container sees as the root has not the files that only the kernel's own root has.
    """
    found = (where for where, options in mounts("cgroup") if controller in options)
    return next((where for where in found if (where / "release_agent").exists()), None)


def shares_of(weight: int) -> int:
    """Return the ``cpu.shares`` that is the same weight as a ``cpu.weight``."""
    return (weight * 1024 + 50) // 100


def make_v1_cgroup(journal: Journal, name: str, group: Group) -> Path | None:
    """Make a cgroup below the root of v1's cpu hierarchy and return its folder.

    None where v1 has not that controller, or it is not the one whose weights are v2's.
    """
    root = root_of("cpu") if group.controller == "cpu" else None
    if root is None:
        return None
    folder = root / name
    journal.note("cgroup", str(folder))
    folder.mkdir()
    if group.weight is not None:
        change(journal, folder / "cpu.shares", str(shares_of(group.weight)))
    return folder
