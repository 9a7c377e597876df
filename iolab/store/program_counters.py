# SPDX-License-Identifier: MIT
"""Measures of a cell that runs a program, and of waiting and switching in any cell."""

from __future__ import annotations

import math
from typing import Final, Literal

from iolab.results import CellResult, growth

__all__ = ["PROGRAM_COLUMNS", "common_measures", "program_measures"]

# Columns added with programs and antagonists: older tables lack them.
PROGRAM_COLUMNS: Final = (
    "seconds",
    "runs_per_s",
    "program_value",
    "switches_per_s",
    "work_wait",
    "antagonist_cpu",
)
# Sampled tasks represent a whole program if they had at least this share of its CPU time.
_COVERED: Final = 0.95
_Time = Literal["ran_ns", "waited_ns"]


def _grown(result: CellResult, name: _Time, kind: Literal["job", "antagonist"]) -> int:
    first, last = result["first"], result["last"]
    tasks = {pid: task for pid, task in last["tasks"].items() if task.get(kind)}
    return sum(growth(first, pid, task, name) for pid, task in tasks.items())


def _span_ns(result: CellResult) -> float:
    """Return the time in which the work ran between the samples."""
    if "program" in result and result["program"]["whole"]:
        return result["program"]["seconds"] * 1e9
    return result["last"]["at_ns"] - result["first"]["at_ns"]


def _all_sampled(result: CellResult) -> bool:
    """Return whether no task of the work ended unseen between the samples."""
    if "copies" in result:
        return False
    if "program" in result and result["program"]["whole"]:
        return _grown(result, "ran_ns", "job") >= _COVERED * result["program"]["ran_ns"]
    gone = result["first"]["tasks"].keys() - result["last"]["tasks"].keys()
    return not any(result["first"]["tasks"][pid]["job"] for pid in gone)


def common_measures(result: CellResult) -> dict[str, float]:
    """Return the measures that every cell has, over the steady part of its run.

    ``switches_per_s`` covers the whole system. ``work_wait`` is the time for which the tasks of the
    work were runnable and waited for a core, summed, as a share of the steady part; NaN if some of
    them were not seen at its end. ``antagonist_cpu`` is the antagonist's CPU time as a share of a
    core, NaN without one.
    """
    first, last = result["first"], result["last"]
    elapsed_ns = last["at_ns"] - first["at_ns"]
    waited_ns = _grown(result, "waited_ns", "job") if _all_sampled(result) else math.nan
    beside_ns = _grown(result, "ran_ns", "antagonist") if "antagonist" in result else math.nan
    return {
        "switches_per_s": (last["context_switches"] - first["context_switches"]) / elapsed_ns * 1e9,
        "work_wait": waited_ns / _span_ns(result),
        "antagonist_cpu": beside_ns / elapsed_ns,
    }


def program_measures(result: CellResult) -> dict[str, float | int]:
    """Return the measures that only a program's cell has.

    ``seconds`` and ``runs_per_s`` are NaN unless the program ran to its end. ``program_value`` is
    the number that it printed, NaN if the plan asks for none. ``fio_cpu`` is its CPU time as a
    share of a core. ``ios`` is what the cell's device completed.
    """
    program, first, last = result["program"], result["first"], result["last"]
    value = program.get("value")
    seconds, ran_ns = math.nan, _grown(result, "ran_ns", "job")
    if program["whole"]:
        # The kernel adds a program's children when they end; samples include only living tasks.
        seconds, ran_ns = program["seconds"], program["ran_ns"]
    return {
        "seconds": seconds,
        "runs_per_s": 1 / seconds,
        "program_value": math.nan if value is None else value,
        "fio_cpu": ran_ns / _span_ns(result),
        "ios": last["ios"] - first["ios"],
        "runtime_s": program["seconds"],
    }
