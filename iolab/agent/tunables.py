# SPDX-License-Identifier: MIT
"""Change kernel settings by one name, wherever this kernel keeps them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.proc import text_of
from iolab.agent.settings import change, read
from iolab_base.errors import CannotRunError

__all__ = ["SETTINGS", "change_settings", "current_settings"]

_DEBUG = Path("/sys/kernel/debug/sched")
_PROC = Path("/proc/sys")
# The first path that exists is used. Linux commit 8a99b6833c88 moved the scheduler's tunables from
# sysctl to debugfs. Commit e4ec3318a17f renamed CFS's min_granularity_ns to EEVDF's base_slice_ns.
_PLACES: dict[str, tuple[Path, ...]] = {
    "autogroup": (_PROC / "kernel/sched_autogroup_enabled",),
    "base_slice_ns": (_DEBUG / "base_slice_ns",),
    "cfs_bandwidth_slice_us": (_PROC / "kernel/sched_cfs_bandwidth_slice_us",),
    # Linux commit 616db8779b1e (workqueue: Automatically mark CPU-hogging work items).
    "cpu_intensive_thresh_us": (Path("/sys/module/workqueue/parameters/cpu_intensive_thresh_us"),),
    "dirty_background_bytes": (_PROC / "vm/dirty_background_bytes",),
    "dirty_bytes": (_PROC / "vm/dirty_bytes",),
    "dirty_expire_centisecs": (_PROC / "vm/dirty_expire_centisecs",),
    "dirty_writeback_centisecs": (_PROC / "vm/dirty_writeback_centisecs",),
    "latency_ns": (_DEBUG / "latency_ns", _PROC / "kernel/sched_latency_ns"),
    "migration_cost_ns": (
        _DEBUG / "migration_cost_ns",
        _PROC / "kernel/sched_migration_cost_ns",
    ),
    "min_granularity_ns": (
        _DEBUG / "min_granularity_ns",
        _PROC / "kernel/sched_min_granularity_ns",
        _DEBUG / "base_slice_ns",
    ),
    "nr_migrate": (_DEBUG / "nr_migrate", _PROC / "kernel/sched_nr_migrate"),
    "timer_migration": (_PROC / "kernel/timer_migration",),
    "wakeup_granularity_ns": (
        _DEBUG / "wakeup_granularity_ns",
        _PROC / "kernel/sched_wakeup_granularity_ns",
    ),
}
# The kernel uses either bytes or a ratio, and the other one reads 0. dirty_bytes cannot be set to 0
# (mm/page-writeback.c): writing the ratio restores both.
_RATIOS = {
    "dirty_background_bytes": _PROC / "vm/dirty_background_ratio",
    "dirty_bytes": _PROC / "vm/dirty_ratio",
}
# Tunables that the kernel scales with the number of its CPUs (update_sysctl() of
# kernel/sched/fair.c); each kernel has some of them.
_SCALED = (
    _DEBUG / "latency_ns",
    _DEBUG / "min_granularity_ns",
    _DEBUG / "wakeup_granularity_ns",
    _DEBUG / "base_slice_ns",
    _PROC / "kernel/sched_latency_ns",
    _PROC / "kernel/sched_min_granularity_ns",
    _PROC / "kernel/sched_wakeup_granularity_ns",
)
_SCALING = (_DEBUG / "tunable_scaling", _PROC / "kernel/sched_tunable_scaling")
# SCHED_TUNABLESCALING_LOG, the default (kernel/sched/fair.c).
_LOGARITHMIC = "1"
# Names that a plan may use.
SETTINGS = (*_PLACES, "scheduler_cpus")
# A kernel without the setting behaves as with this value.
_OPTIONAL = {"autogroup": 0}


def current_settings() -> dict[str, int]:
    """Return the settings that this kernel has; a file with two names is under the first."""
    values: dict[str, int] = {}
    seen = set()
    for name, places in _PLACES.items():
        path = next((p for p in places if p.exists()), None)
        text = None if path is None or path in seen else text_of(path)
        if path is not None and text is not None and text.isdigit():
            seen.add(path)
            values[name] = int(text)
    return values


def change_settings(journal: Journal, settings: Mapping[str, int]) -> dict[str, str]:
    """Change kernel settings; return the changed files (separated by spaces) by name.

    ``scheduler_cpus`` sets the scheduler's scaled tunables to their values on a machine with that
    many CPUs. Raises CannotRunError if this kernel lacks a setting.
    """
    used = {}
    for name, value in settings.items():
        if name == "scheduler_cpus":
            used[name] = " ".join(_scale(journal, value))
            continue
        if name not in _PLACES:
            raise CannotRunError(f"this agent knows no setting {name!r}")
        path = next((p for p in _PLACES[name] if p.exists()), None)
        if path is None:
            if _OPTIONAL.get(name) == value:
                continue
            raise CannotRunError(f"this kernel has no setting {name}")
        ratio = _RATIOS.get(name)
        by_bytes = ratio is None or read(path) != "0"
        change(journal, path, str(value), undone_by=None if by_bytes else ratio)
        used[name] = str(path)
    return used


def _scale(journal: Journal, cpus: int) -> list[str]:
    scaling = next((read(p) for p in _SCALING if p.exists()), None)
    if scaling != _LOGARITHMIC:
        raise CannotRunError("this kernel does not scale its scheduler with the logarithm of CPUs")
    own = _factor(os.cpu_count() or 1)
    used = [path for path in _SCALED if path.exists()]
    for path in used:
        change(journal, path, str(int(read(path)) // own * _factor(cpus)))
    return [str(path) for path in used]


def _factor(cpus: int) -> int:
    # get_update_sysctl_factor() of kernel/sched/fair.c: 1 + ilog2(CPUs), of at most 8.
    return min(max(cpus, 1), 8).bit_length()
