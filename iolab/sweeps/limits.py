# SPDX-License-Identifier: MIT
"""Cores and disk for virtual machines: what this process may use, and what one machine needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from iolab.agent.proc import text_of

__all__ = ["MACHINE_BYTES", "usable_cores"]

# The files of one virtual machine at work: its image, its channel, and the block's results.
MACHINE_BYTES: Final = 512 << 20

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Return the cores that this process may keep busy, at least 1.

    Respects its affinity (taskset, cpusets) and the quota of each cgroup above it (``cpu.max``;
    ``cpu.cfs_quota_us`` in version 1). The file ``own`` lists this process's cgroups.
    """
    cores = float(len(os.sched_getaffinity(0)))
    for folder in _folders(cgroups, own):
        words = (text_of(folder / "cpu.max") or "").split()
        if not words:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            words = [text_of(folder / name) or "" for name in names]
        quota, period = (_number(word) for word in (*words, "", "")[:2])
        if quota and period:
            cores = min(cores, quota / period)
    return max(1, int(cores))


def _number(word: str) -> int | None:
    # "max", and -1 in version 1, mean no limit.
    return int(word) if word.isdecimal() else None


def _folders(cgroups: Path, own: Path) -> Iterator[Path]:
    """Yield the folders of the cgroups that limit this process, from its own up to the root.

    In a container the path may be the host's and not be visible; then the visible folders above it
    count, at least the mount itself.
    """
    for line in (text_of(own) or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            base = cgroups
        elif "cpu" in names.split(","):
            base = cgroups / "cpu"
        else:
            continue
        folder = base / path.lstrip("/")
        while folder != base and base in folder.parents:
            if ".." not in folder.parts and folder.is_dir():
                yield folder
            folder = folder.parent
        yield base
