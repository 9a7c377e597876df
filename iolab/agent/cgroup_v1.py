# SPDX-License-Identifier: MIT
"""Make the cgroup that a job runs in where cgroup v1 has the controller.

v2's ``cpu.weight`` w and v1's ``cpu.shares`` s set the same weight of the scheduler, with
s = w * 1024 / 100, rounded to the nearest: cpu_weight_write_u64() of kernel/sched/core.c, where
Linux commit 4f9c7ca85104 named the conversion sched_weight_from_cgroup(). v1's ``blkio`` does not
replace v2's io controller: it does not account buffered writes to the group that made them
(Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
"""

from __future__ import annotations

from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.plan import Group
from iolab.agent.proc import mounts
from iolab.agent.settings import change
from iolab_base.errors import CannotRunError

__all__ = ["has_controller", "make_v1_cgroup", "root_of", "shares_of"]


def has_controller(controller: str) -> bool:
    """Return whether a v1 hierarchy with a controller is mounted, even one seen only in part."""
    return any(controller in options for _, options in mounts("cgroup"))


def root_of(controller: str) -> Path | None:
    """Return the root of the cgroup v1 hierarchy that has a controller, or None.

    A container's root does not count: it lacks the files of the kernel's own, such as
    release_agent.
    """
    roots = (where for where, options in mounts("cgroup") if controller in options)
    return next((root for root in roots if (root / "release_agent").exists()), None)


def shares_of(weight: int) -> int:
    """Return v1's ``cpu.shares`` for a ``cpu.weight`` of v2 (1 to 10000)."""
    return (weight * 1024 + 50) // 100


def make_v1_cgroup(journal: Journal, name: str, group: Group) -> Path | None:
    """Make a cgroup below the root of v1's cpu hierarchy; `group` names v2's files.

    None if v1 lacks the cpu controller, or the group needs others. Raises CannotRunError if it sets
    more of the cpu controller than its weight.
    """
    root = root_of("cpu") if group.enabled == ["cpu"] else None
    if root is None:
        return None
    others = sorted(set(group.settings) - {"cpu.weight"})
    if others:
        raise CannotRunError(
            f"the cpu controller is one of cgroup v1 here, where iolab sets cpu.weight and not "
            f"{', '.join(others)}: boot with cgroup_no_v1=all "
            "(systemd: systemd.unified_cgroup_hierarchy=1)"
        )
    folder = root / name
    journal.note_new("cgroup", folder)
    folder.mkdir()
    if "cpu.weight" in group.settings:
        shares = shares_of(int(group.settings["cpu.weight"]))
        change(journal, folder / "cpu.shares", str(shares))
    return folder
