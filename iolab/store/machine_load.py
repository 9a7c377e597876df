# SPDX-License-Identifier: MIT
"""Columns of what delayed the work: pressure, throttling, queues, other tasks, kernel warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

from iolab.results import CellResult, growth, kworkers_of
from iolab_base import foreign

_PRESSURES: Final = tuple(
    f"{resource}_{kind}" for resource in ("cpu", "io", "memory") for kind in ("some", "full")
)
_THROTTLED: Final = ("throttled_s", "throttled_periods")
# Older tables lack them.
LOAD_COLUMNS: Final = {
    **{f"psi_{name}": "float64" for name in _PRESSURES},
    **{f"work_psi_{name}": "float64" for name in _PRESSURES},
    **dict.fromkeys(_THROTTLED, "float64"),
    **{f"antagonist_{name}": "float64" for name in _THROTTLED},
    "iowait": "float64",
    "waiting_tasks": "float64",
    "kworker_wait": "float64",
    "io_wq_workers": "float64",
    "io_wq_cpu": "float64",
    "busy_cpus": "float64",
    "busiest_task": "str",
    "busiest_cpu": "float64",
    "kernel_warnings": "float64",
}
# A processor that idles less never idles.
_NEVER_IDLE: Final = 0.01
_IDLE: Final[tuple[Literal["idle_ns", "iowait_ns"], ...]] = ("idle_ns", "iowait_ns")
# Tasks of io_uring that do what would block: kernel threads before 5.12 (fs/io-wq.c), threads of
# the job since (io_uring/io-wq.c).
_IO_WQ: Final = ("iou-wrk-", "io_wqe_worker")


def load_measures(result: CellResult, cpu: int) -> dict[str, Any]:
    """Return the `LOAD_COLUMNS` of a cell that ran; NaN or "" for what was not recorded."""
    # Shares cover the time between the two samples. ``psi_...`` describe the machine,
    # ``work_psi_...`` the work's cgroup, ``iowait`` the measured core. ``throttled_s`` adds up all
    # cores. ``waiting_tasks`` is the mean number of tasks that waited for one of the work's cores;
    # ``kworker_wait`` counts its kworkers alone. ``io_wq_cpu`` and ``busiest_cpu`` are in cores.
    first, last = result["first"], result["last"]
    elapsed_ns = last["at_ns"] - first["at_ns"]
    log, busiest = result.get("kernel_log", {}), last.get("busiest", {})
    return {
        **_pressures("psi", first.get("pressure", {}), last.get("pressure", {}), elapsed_ns),
        **_group(result, "work", "", elapsed_ns),
        **_group(result, "antagonist", "antagonist_", elapsed_ns),
        **_cores(result, cpu, elapsed_ns),
        **_io_wq(result, elapsed_ns),
        "busiest_task": foreign.line(busiest.get("comm", ""), foreign.NAME),
        "busiest_cpu": busiest.get("ran_ns", 0 if "busiest" in last else math.nan) / elapsed_ns,
        "kernel_warnings": float(log.get("warnings", math.nan)),
    }


def _pressures(
    prefix: str, first: Mapping[str, int], last: Mapping[str, int], elapsed_ns: int
) -> dict[str, float]:
    return {
        f"{prefix}_{name}": (last[name] - first[name]) * 1000 / elapsed_ns
        if name in first and name in last
        else math.nan
        for name in _PRESSURES
    }


def _group(result: CellResult, group: str, prefix: str, elapsed_ns: int) -> dict[str, float]:
    """Return the columns of one cgroup; only the work's has pressure."""
    first = result["first"].get("groups", {}).get(group)
    last = result["last"].get("groups", {}).get(group)
    found = dict.fromkeys((f"{prefix}{name}" for name in _THROTTLED), math.nan)
    if first is not None and last is not None:
        throttled_ns = last["throttled_ns"] - first["throttled_ns"]
        periods = last["throttled_periods"] - first["throttled_periods"]
        found = {f"{prefix}throttled_s": throttled_ns / 1e9, f"{prefix}throttled_periods": periods}
    if group != "work":
        return found
    began = {} if first is None else first["pressure"]
    ended = {} if last is None else last["pressure"]
    return {**found, **_pressures("work_psi", began, ended, elapsed_ns)}


def _cores(result: CellResult, cpu: int, elapsed_ns: int) -> dict[str, float]:
    first, last = result["first"], result["last"]
    # A core may have come or gone meanwhile.
    before, after = first.get("idle", {}), last.get("idle", {})
    idle_ns, iowait_ns = (
        {core: after[core][name] - before[core][name] for core in after if core in before}
        for name in _IDLE
    )
    waits = first.get("waiting_ns", {})
    waited = {
        core: now - waits[core] for core, now in last.get("waiting_ns", {}).items() if core in waits
    }
    workers = kworkers_of(last, waited or [cpu])
    worker_ns = sum(growth(first, pid, task, "waited_ns") for pid, task in workers.items())
    never_idle = [core for core, one_ns in idle_ns.items() if one_ns < _NEVER_IDLE * elapsed_ns]
    return {
        "iowait": iowait_ns.get(str(cpu), math.nan) / elapsed_ns,
        "busy_cpus": float(len(never_idle)) if idle_ns else math.nan,
        "waiting_tasks": sum(waited.values()) / elapsed_ns if waited else math.nan,
        "kworker_wait": worker_ns / elapsed_ns,
    }


def _io_wq(result: CellResult, elapsed_ns: int) -> dict[str, float]:
    """Return how many workers io_uring had for the work, and their CPU time."""
    first, last = result["first"], result["last"]
    if "busiest" not in last:
        # An older agent did not look at a job's threads.
        return {"io_wq_workers": math.nan, "io_wq_cpu": math.nan}
    workers = {
        pid: task
        for pid, task in last["tasks"].items()
        if task["comm"].startswith(_IO_WQ) and not task.get("antagonist")
    }
    ran_ns = sum(growth(first, pid, task, "ran_ns") for pid, task in workers.items())
    return {"io_wq_workers": float(len(workers)), "io_wq_cpu": ran_ns / elapsed_ns}
