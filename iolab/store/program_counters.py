# SPDX-License-Identifier: MIT
"""Measures of a cell whose work is a program, and of what waits and switches in any cell."""

from __future__ import annotations

import math
from typing import Final, Literal

from iolab.results import CellResult, growth

__all__ = ["PROGRAM_COLUMNS", "common_measures", "program_measures"]

# What came to the tidy cells with programs and antagonists: tables from before lack them.
PROGRAM_COLUMNS: Final = (
    "seconds",
    "runs_per_s",
    "program_value",
    "switches_per_s",
    "work_wait",
    "antagonist_cpu",
)
# Sampled tasks stand for a whole program that had at least this share of its CPU time.
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

    Returns
    -------
    dict of str to float
        ``switches_per_s``: context switches of the whole system; ``work_wait``: time for which the
        tasks of the work were runnable and waited for a core, summed, as a share of the steady
        part, NaN if some of them were not seen at its end; ``antagonist_cpu``: CPU time of the
        antagonist as a share of a core, NaN without one.
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
    """Return the measures of a program's cell that it does not share with other cells.

    Returns
    -------
    dict of str to float
        ``seconds`` and ``runs_per_s`` of a program that ran to its end, else NaN; ``runtime_s``;
        ``program_value``: the number that it printed, NaN if the plan asks for none; ``fio_cpu``:
        its CPU time as a share of a core; ``ios``: what the cell's device completed.
    """
    program, first, last = result["program"], result["first"], result["last"]
    value = program.get("value")
    seconds, ran_ns = math.nan, _grown(result, "ran_ns", "job")
    if program["whole"]:
        # The kernel adds up a program's children as they end; the samples know the living alone.
        seconds, ran_ns = program["seconds"], program["ran_ns"]
    return {
        "seconds": seconds,
        "runs_per_s": 1 / seconds,
        "program_value": math.nan if value is None else value,
        "fio_cpu": ran_ns / _span_ns(result),
        "ios": last["ios"] - first["ios"],
        "runtime_s": program["seconds"],
    }
