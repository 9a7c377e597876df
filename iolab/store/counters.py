# SPDX-License-Identifier: MIT
"""Columns of a cell's row, and its measures: from reports of fio, dd or a program, and counters."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal

from fiojobs.options import is_direct
from iolab.pathology import get_pathology
from iolab.pathology.factors import IntegerFactor
from iolab.results import CellResult, CpuSample, TaskCounter, growth, kworkers_of
from iolab.store.machine_load import LOAD_COLUMNS, load_measures
from iolab_agent.fio import active_sides
from iolab_base import foreign
from iolab_base.errors import IolabError, UserError

PERCENTILES: Final = {
    "latency_p50_ns": 50.0,
    "latency_p95_ns": 95.0,
    "latency_p99_ns": 99.0,
    "latency_p999_ns": 99.9,
}
# Columns that older tables lack.
ADDED_COLUMNS: Final = {
    **dict.fromkeys(
        (
            *("seconds", "runs_per_s", "program_value", "switches_per_s", "work_wait"),
            *("antagonist_cpu", "latency_max_ns", "buffered", "read_iops", "write_iops"),
        ),
        "float64",
    ),
    **LOAD_COLUMNS,
}
# The columns of every pathology's cells; the levels of its factors are added.
CELL_COLUMNS: Final = {
    **dict.fromkeys(("cell", "block", "pathology", "kernel", "kernel_release"), "str"),
    **dict.fromkeys(("scheduler", "target", "clock"), "str"),
    **dict.fromkeys(("boot", "position", "pair"), "int64"),
    "role": "str",
    **dict.fromkeys(("aa", "recorded"), "bool"),
    "twin": "str",
    **dict.fromkeys(("iops", "steady_iops", "seconds_per_io", "latency_mean_ns"), "float64"),
    **dict.fromkeys(PERCENTILES, "float64"),
    **dict.fromkeys(("fio_cpu", "kworker_cpu", "idle", "switches_per_io"), "float64"),
    **dict.fromkeys(("fio_voluntary_per_io", "fio_involuntary_per_io"), "float64"),
    "ios": "int64",
    "runtime_s": "float64",
    **ADDED_COLUMNS,
    "valid": "bool",
    "gate": "str",
}
LATENCY_COLUMNS: Final = {"cell": "str", "bin_ns": "float64", "count": "int64"}
MECHANISM_COLUMNS: Final = {"cell": "str", "measure": "str", "value": "float64"}
UNAVAILABLE_COLUMNS: Final = {"kernel": "str", "reason": "str"}
# What a forged result raises: a missing key, a list for a mapping, letters for a number, a number
# beyond all floats, two samples of one moment.
SENSELESS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
# The keys of an agent's result; those that are not in `CellResult` are kept for people.
_KEYS = {
    *CellResult.__annotations__,
    *("agent", "began_ns", "cgroup", "ended_ns"),
    *("fio_said", "recording", "reniced", "settings"),
}
# Sampled tasks represent a whole program if they had at least this share of its CPU time.
_COVERED: Final = 0.95
_OfCopies = Literal["ran_ns", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
# For a 64-bit counter.
_MOST = 2.0**63
# The measures of a cell that did not run.
_NOTHING: Final[Mapping[str, Any]] = {
    **{name: math.nan for name, kind in CELL_COLUMNS.items() if kind == "float64"},
    **{name: "" for name, kind in ADDED_COLUMNS.items() if kind == "str"},
    "ios": 0,
    "runtime_s": 0.0,
}


def column_types(pathology: str) -> dict[str, str]:
    """Return a pathology's cell columns with types; UserError if a factor's name is taken."""
    found = get_pathology(pathology)
    columns = dict(CELL_COLUMNS)
    if taken := sorted(set(columns) & set(found.factors)):
        raise UserError(f"pathology {pathology}: a factor cannot be called {', '.join(taken)}")
    for name, factor in found.factors.items():
        number = "Int64" if name == found.treatment else "int64"
        columns[name] = number if isinstance(factor, IntegerFactor) else "str"
    return columns


def _sides(result: CellResult) -> list[Mapping[str, Any]]:
    """Return all directions of all processes in which fio did I/O."""
    jobs = result["fio"]["jobs"]
    if not jobs:
        raise KeyError("jobs")
    return [side for job in jobs for side in active_sides(job)]


def _did_io(result: CellResult) -> bool:
    if "copies" in result:
        return any(process["seconds"] for process in result["copies"])
    return bool(_sides(result))


def _rate(sides: Iterable[Mapping[str, Any]]) -> float:
    # Not fio's iops_mean: that averages samples, and a short run has none.
    return math.fsum(side["total_ios"] / (side["runtime"] / 1e3) for side in sides)


def _from_fio(result: CellResult) -> dict[str, float | int]:
    sides, jobs = _sides(result), result["fio"]["jobs"]
    iops = _rate(sides)

    def one_way(way: str) -> float:
        return _rate(s for job in jobs if way in job for s in active_sides({way: job[way]}))

    return {
        "iops": iops,
        "read_iops": one_way("read"),
        "write_iops": one_way("write"),
        "seconds_per_io": 1 / iops,
        **_latencies(sides),
        "buffered": _buffered(result["fio"]),
        "ios": sum(side["total_ios"] for side in sides),
        "runtime_s": max(side["runtime"] for side in sides) / 1e3,
    }


def _latencies(sides: Sequence[Mapping[str, Any]]) -> dict[str, float | int]:
    """Return mean, maximum and percentiles of all I/Os; {} if fio measured no latencies."""
    bins = sorted(_bins(sides).items())
    total = sum(count for _, count in bins)
    if not total:
        return {}
    found: dict[str, float | int] = {
        "latency_mean_ns": sides[0]["clat_ns"]["mean"],
        "latency_max_ns": max(side["clat_ns"].get("max", math.nan) for side in sides),
    }
    if len(sides) > 1:
        weighted = (side["clat_ns"]["mean"] * side["total_ios"] for side in sides)
        found["latency_mean_ns"] = math.fsum(weighted) / sum(side["total_ios"] for side in sides)
    reached = list(itertools.accumulate(count for _, count in bins))
    for name, percentile in PERCENTILES.items():
        # As calc_clat_percentiles() of fio's stat.c: the first bin that reaches the share.
        found[name] = bins[bisect.bisect_left(reached, Fraction(percentile) / 100 * total)][0]
    return found


def _buffered(report: Mapping[str, Any]) -> float:
    """Return 1 if a job's I/O goes through the page cache (without direct=1), 0 if none's does."""
    shared, own = report.get("global options", {}), [j.get("job options") for j in report["jobs"]]
    if None in own:
        return math.nan
    return float(not all(is_direct({**shared, **options}) for options in own))


def _bins(sides: Sequence[Mapping[str, Any]]) -> Counter[int]:
    """Return how many I/Os completed within each bin of fio's, by its midpoint in ns."""
    counts: Counter[int] = Counter()
    for side in sides:
        for middle, count in side["clat_ns"].get("bins", {}).items():
            counts[int(middle)] += int(count)
    return counts


def _from_copies(result: CellResult) -> dict[str, float | int]:
    """Return the copies' measures over the time that they wrote: writes, no latencies."""
    writes = sum(process["writes"] for process in result["copies"])
    runtime_s = math.fsum(process["seconds"] for process in result["copies"])
    return {
        "iops": writes / runtime_s,
        "seconds_per_io": runtime_s / writes,
        "ios": writes,
        "runtime_s": runtime_s,
    }


def _idle(first: CpuSample, last: CpuSample, elapsed_ns: int) -> float:
    """Return the share of the time in which the core ran no task; NaN if it is not counted."""
    if "lacks" in first:
        return math.nan
    return float(1 - (last["running_ns"] - first["running_ns"]) / elapsed_ns)


def _from_counters(result: CellResult, cpu: int) -> dict[str, float]:
    """Return rates over the steady part of the run, between the two samples of the agent."""
    first, last = result["first"], result["last"]
    elapsed_ns = last["at_ns"] - first["at_ns"]
    # A program, or a job in the page cache, may need no I/O: then its values per I/O are NaN.
    ios = last["ios"] - first["ios"] or math.nan

    def of_job(name: _OfCopies) -> int:
        # Copies come and go between the samples, and each has its own counters.
        copied = sum(process[name] for process in result.get("copies", ()))
        return copied + _grown(result, name, "job")

    workers = kworkers_of(last, [cpu])
    workers_ns = sum(growth(first, pid, task, "ran_ns") for pid, task in workers.items())
    return {
        "steady_iops": ios / elapsed_ns * 1e9,
        "fio_cpu": of_job("ran_ns") / elapsed_ns,
        "kworker_cpu": workers_ns / elapsed_ns,
        "idle": _idle(first["cpu"], last["cpu"], elapsed_ns),
        "switches_per_io": (last["context_switches"] - first["context_switches"]) / ios,
        "fio_voluntary_per_io": of_job("voluntary_ctxt_switches") / ios,
        "fio_involuntary_per_io": of_job("nonvoluntary_ctxt_switches") / ios,
    }


def _found(result: CellResult, cpu: int) -> dict[str, Any]:
    """Return the measures of a cell that ran; {} if its work is I/O and it did none."""
    if "program" not in result and not _did_io(result):
        return {}
    shared = {**_from_counters(result, cpu), **_common_measures(result)}
    shared |= load_measures(result, cpu)
    if "program" in result:
        return {**shared, **_program_measures(result)}
    return {**shared, **(_from_copies(result) if "copies" in result else _from_fio(result))}


def _unstamped(result: CellResult, latency_max_ns: float) -> list[str]:
    """Return a gate if latencies are longer than the whole run."""
    # fio 3.33 does not stamp an I/O's issue with sqthread_poll (fio_ioring_commit() of
    # engines/io_uring.c): its latencies then begin at boot.
    if "measuring_until_ns" not in result:
        return []
    ran_ns = result["measuring_until_ns"] - result["measuring_from_ns"]
    if not latency_max_ns > ran_ns:
        return []
    return [
        f"fio's latencies are wrong: one is {latency_max_ns / 1e9:.3g} s, and the whole run took "
        f"{ran_ns / 1e9:.3g} s (fio stamps no issue with sqthread_poll; with disable_clat=1 the "
        "job is measured without latencies)"
    ]


def measures(result: CellResult, *, cpu: int) -> dict[str, Any]:
    """Return the measures of an agent's cell, with ``valid`` and ``gate``: why it is not valid."""
    # Times are in the units of their names. CPU shares are of the core `cpu`, 0..1. Switches are
    # those of the whole system per I/O that the data device completed. ``fio_...`` are those of the
    # job, which may be dd; then ``iops`` are its writes per second of writing, as dd reports them,
    # and there are no latencies. For a fio job with several processes or directions, ``iops`` and
    # ``ios`` are sums, and ``runtime_s`` is the longest. ``read_iops`` is 0 if fio read nothing.
    # Percentiles cover all I/Os together: fio's bins (json+) are merged, and a percentile is the
    # first bin that reaches it, as in fio. The job may also be a program, see `_program_measures`.
    # ``idle`` is NaN where the kernel does not count it. A cell that did not run has NaN.
    try:
        gates = list(result.get("gates", []))
        if not all(isinstance(gate, str) for gate in gates):
            raise TypeError("a gate is no text")
        if result["state"] != "done":
            gates.append(f"{result['state']}: {result['reason']}")
            return {**_NOTHING, "valid": False, "gate": "; ".join(gates)}
        found = {**_NOTHING, **_found(result, cpu)}
        _check_numbers(found)
        if not found["ios"] and "program" not in result:
            return {**_NOTHING, "valid": False, "gate": "; ".join([*gates, "no I/O was done"])}
        gates += _unstamped(result, found["latency_max_ns"])
    except SENSELESS as error:
        raise _not_the_agents(error) from error
    return {**found, "valid": not gates, "gate": "; ".join(gates)}


def _check_numbers(found: Mapping[str, Any]) -> None:
    numbers = [value for value in found.values() if not isinstance(value, str)]
    if not all(abs(value) < _MOST or math.isnan(value) for value in numbers):
        raise ValueError("a number is too large")


def _not_the_agents(error: Exception) -> IolabError:
    return IolabError(f"a cell's result is not the agent's: {foreign.line(repr(error))}")


def check_origin(result: Mapping[str, Any], cell: str) -> None:
    """Raise IolabError if a result is of another cell, or contains unknown keys."""
    if result.get("id") != cell:
        raise IolabError(f"the result is of another cell: {foreign.line(str(result.get('id')))!r}")
    if unknown := sorted(set(result) - _KEYS):
        raise IolabError(f"the result holds {foreign.line(unknown[0], 80)!r}, which is refused")


def check_result(result: CellResult, *, cpu: int) -> None:
    """Raise IolabError if a cell's result cannot be measured; call it before storing."""
    measures(result, cpu=cpu)
    histogram(result)


def histogram(result: CellResult) -> list[tuple[float, int]]:
    """Return a cell's completion latencies as (midpoint of the bin in ns, count), ascending."""
    # The list is empty for a cell that did not run, for copies and for programs.
    try:
        if result["state"] != "done" or "fio" not in result:
            return []
        found = [(float(middle), count) for middle, count in sorted(_bins(_sides(result)).items())]
        if not all(middle >= 0 and 0 <= count < _MOST for middle, count in found):
            raise ValueError("a bin of the latencies makes no sense")
    except SENSELESS as error:
        raise _not_the_agents(error) from error
    return found


def fio_measures(report: Mapping[str, Any]) -> dict[str, float | int]:
    """Return the measures that a report of fio's gives without the agent's; {} without I/O."""
    result: Any = {"fio": report}
    found = _from_fio(result) if _did_io(result) else {}
    _check_numbers(found)
    return found


def _grown(result: CellResult, name: TaskCounter, kind: Literal["job", "antagonist"]) -> int:
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


def _common_measures(result: CellResult) -> dict[str, float]:
    """Return the measures that every cell has, over the steady part of its run."""
    # ``switches_per_s`` covers the whole system. ``work_wait`` is the time for which the tasks of
    # the work were runnable and waited for a core, summed, as a share of the steady part; NaN if
    # some of them were not seen at its end. ``antagonist_cpu`` is the antagonist's CPU time as a
    # share of a core, NaN without one.
    first, last = result["first"], result["last"]
    elapsed_ns = last["at_ns"] - first["at_ns"]
    waited_ns = _grown(result, "waited_ns", "job") if _all_sampled(result) else math.nan
    beside_ns = _grown(result, "ran_ns", "antagonist") if "antagonist" in result else math.nan
    return {
        "switches_per_s": (last["context_switches"] - first["context_switches"]) / elapsed_ns * 1e9,
        "work_wait": waited_ns / _span_ns(result),
        "antagonist_cpu": beside_ns / elapsed_ns,
    }


def _program_measures(result: CellResult) -> dict[str, float | int]:
    """Return the measures that only a program's cell has."""
    # ``seconds`` and ``runs_per_s`` are NaN unless the program ran to its end. ``program_value`` is
    # the number that it printed, NaN if the plan asks for none. ``fio_cpu`` is its CPU time as a
    # share of a core. ``ios`` is what the cell's device completed.
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
