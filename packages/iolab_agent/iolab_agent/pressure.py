# SPDX-License-Identifier: MIT
"""What the kernel says of waiting: pressure (PSI), throttled cgroups, idle cores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from iolab_agent.cgroup import mount_point
from iolab_agent.proc import text_of

_PROC = Path("/proc")
_RESOURCES = ("cpu", "io", "memory")


def _pressure(files: dict[str, Path]) -> dict[str, int]:
    # Reading a file adds up what has not been added up yet (psi_show() of kernel/sched/psi.c).
    totals = {}
    for resource, path in files.items():
        for line in (text_of(path) or "").splitlines():
            kind, *fields = line.split()
            total = next((f[6:] for f in fields if f.startswith("total=")), "")
            if total.isdigit():
                totals[f"{resource}_{kind}"] = int(total)
    return totals


def machine_pressure() -> dict[str, int]:
    """Return stall times in us, such as ``cpu_some``; without those that the kernel lacks."""
    return _pressure({name: _PROC / "pressure" / name for name in _RESOURCES})


def of_group(folder: Path) -> dict[str, Any]:
    """Return a cgroup's stall times as `machine_pressure`, and how often and long it was throttled.

    It was never throttled where the kernel counts nothing: the root, a group without a cpu
    controller.
    """
    lines = [line.split() for line in (text_of(folder / "cpu.stat") or "").splitlines()]
    fields = {line[0]: int(line[1]) for line in lines if len(line) == 2}
    return {
        "pressure": _pressure({name: folder / f"{name}.pressure" for name in _RESOURCES}),
        "throttled_periods": fields.get("nr_throttled", 0),
        # The second name is v1's, in ns.
        "throttled_ns": fields.get("throttled_usec", 0) * 1000 or fields.get("throttled_time", 0),
    }


def own_group() -> Path | None:
    """Return the folder of this process's cgroup v2, or None."""
    root = mount_point()
    for line in (text_of(_PROC / "self/cgroup") or "").splitlines():
        if root is not None and line.startswith("0::"):
            return root / line[3:].lstrip("/")
    return None


def core_idle(stat: str) -> dict[str, dict[str, int]]:
    """Return how long each core was idle, and how much of it with I/O in flight (iowait).

    `stat` is the text of /proc/stat, which counts in ticks of 10 ms.
    """
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    cores = {}
    for line in stat.splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            idle, iowait = int(counts[3]) * tick_ns, int(counts[4]) * tick_ns
            cores[name[3:]] = {"idle_ns": idle + iowait, "iowait_ns": iowait}
    return cores
