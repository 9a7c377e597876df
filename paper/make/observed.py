# SPDX-License-Identifier: MIT
"""What the observer counted, as numbers of the write-up and as tables of ``docs/reports``.

From ``data/reference/observed``: `cgroup` (dio_kworker on 6.12), `switch` (on other kernels),
`writeback` and `fsnotify`, each measured by the command in its folder. A boot is one value; costs
leave out the agent and the idle task.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd

from guestprof.profile import KINDS, NO_SYMBOL
from iolab.stats.conditions import kernel_order
from paper.make.cells import CALLS, INTERRUPT, Cell, Pair, chosen, mean, read_pairs

FOLDERS: Final = ("cgroup", "switch", "writeback", "fsnotify")
# A table, its head first.
Table = list[tuple[str, ...]]
# The treated cell of a pair counts, or what it has more than its control.
Value = Callable[[Pair], float]

_OUTSIDE: Final = "no cgroup"
_WEIGHT, _LARGE = 400, 9600
# The report's own.
_PUBLISHED: Final = 1000
_WORKER: Final = r"kworker/\d+:.*"
_INTERRUPT: Final = re.escape(INTERRUPT)
_FLUSH: Final = r"kworker/u\d+:.*"
_FOLIO, _BLOCK = "folio_clear_dirty_for_io", "bio_add_folio"
_PARTS: Final = {
    "ending their writeback": "ext4_finish_bio",
    "beginning it": "__folio_start_writeback",
    "clearing them": _FOLIO,
    "statistics of the memory cgroup": "lruvec_stat_mod_folio",
    "adding blocks to bios": "ext4_bio_write_folio",
}
_LOAD: Final = (
    "update_load_avg",
    "__update_load_avg_se",
    "__update_load_avg_cfs_rq",
    "update_curr",
)
_GETEVENTS: Final = "__x64_sys_io_getevents"
_KINDS: Final = ("schedule", "wake", "cgroup", "complete", "submit", "user")
_SCHEDULER: Final = ("schedule", "wake", "cgroup")
# With fewer additional switches per I/O, a cost of a switch is noise.
_FEWEST: Final = 0.05


class Row(NamedTuple):
    """A row of a table: what it says, and the digits after the point."""

    says: str
    value: Value
    digits: int = 0


@cache
def read_observed(data: Path) -> dict[str, list[Pair]]:
    """Return the observed pairs of each folder in ``observed`` of a folder of data."""
    return {name: read_pairs(data / "observed" / name) for name in FOLDERS}


def _cost(cell: Cell, functions: Sequence[str] | str = "") -> float:
    """Return instructions per I/O: of these functions, or of those that match a pattern."""
    own = cell.functions
    if isinstance(functions, str):
        return float(own[own.index.str.match(functions)].sum())
    return float(own.reindex(list(functions), fill_value=0).sum())


def _load(cell: Cell) -> float:
    """Return what load averages cost."""
    return _cost(cell, _LOAD)


def _pressure(cell: Cell) -> float:
    """Return what pressure stall information costs."""
    return _cost(cell, "psi_")


def _more(value: Callable[[Cell], float]) -> Value:
    return lambda pair: value(pair.treated) - value(pair.control)


def _treated(value: Callable[[Cell], float]) -> Value:
    return lambda pair: value(pair.treated)


def _switches(cell: Cell) -> float:
    return cell.switches / cell.ios


def _each(value: Callable[[Cell], float]) -> Value:
    """Return a value for each additional switch."""

    def each(pair: Pair) -> float:
        switches = _more(_switches)(pair)
        return _more(value)(pair) / switches if switches > _FEWEST else math.nan

    return each


def _in(*subsystems: str) -> Callable[[Cell], float]:
    return lambda cell: float(cell.subsystems.reindex(subsystems, fill_value=0).sum())


def _called(function: str) -> Callable[[Cell], float]:
    return lambda cell: float(cell.calls.get(function, 0))


def _call(function: str) -> Callable[[Cell], float]:
    """Return what a call of a function costs with all that it calls."""
    return lambda cell: float(cell.inclusive[function] / cell.calls[function])


def _whole(function: str) -> Callable[[Cell], float]:
    """Return instructions of a function with all that it called."""
    return lambda cell: float(cell.inclusive.get(function, 0))


def _linked(task: str, does: str, other: str) -> Callable[[Cell], float]:
    return lambda cell: cell.linked(task, does, other)["count"].sum() / cell.ios


# The worker wakes fio, which slept.
_WAKES: Final = _linked(_WORKER, "wakes", "fio")
_PREEMPTS: Final = _linked("fio", "preempts", _WORKER)
_TRIES: Final = _linked(_INTERRUPT, CALLS, _WORKER)


def _wait_ns(cell: Cell) -> float:
    """Return the time from the worker's wake-up of fio until fio runs."""
    rows = cell.linked(_WORKER, "wakes", "fio")
    return float(
        (rows["count"] * rows["wait_ns"]).sum() / rows["count"].sum() if len(rows) else math.nan
    )


def _per_io_ns(cell: Cell) -> float:
    return cell.window_ns / cell.ios


def _lost_percent(pair: Pair) -> float:
    return 100 * (1 - _per_io_ns(pair.control) / _per_io_ns(pair.treated))


def _outside(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the controls as a column of their own."""
    return [Pair(pair.control, pair.control) for pair in pairs]


def _text(pairs: Sequence[Pair], row: Row) -> str:
    values = [row.value(pair) for pair in pairs]
    return mean(values).text(row.digits) if all(map(math.isfinite, values)) else "-"


def _table(title: str, columns: Mapping[str, Sequence[Pair]], rows: Sequence[Row]) -> Table:
    made = [(title, *columns)]
    return made + [(row.says, *(_text(c, row) for c in columns.values())) for row in rows]


def _at(found: Mapping[str, list[Pair]], weight: int) -> dict[str, list[Pair]]:
    """Return the pairs of each kernel at a weight."""
    return _by_kernel(chosen([*found["switch"], *found["cgroup"]], weight=weight))


def _by_kernel(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    kernels = sorted({pair.treated.kernel for pair in pairs}, key=kernel_order)
    return {kernel: [p for p in pairs if p.treated.kernel == kernel] for kernel in kernels}


def cgroup_table(found: Mapping[str, list[Pair]]) -> Table:
    """Return what an I/O costs in a cgroup on 6.12."""
    columns = {f"weight {w}": chosen(found["cgroup"], weight=w) for w in (_WEIGHT, _LARGE)}
    columns = {_OUTSIDE: _outside(columns[f"weight {_WEIGHT}"]), **columns}
    rows = [
        Row("instructions", _treated(_cost)),
        Row("more than outside, each additional switch", _each(_cost)),
        Row("more than outside, load averages", _more(_load)),
        Row("more than outside, pressure stall information", _more(_pressure)),
        Row("context switches", _treated(_switches), 3),
        Row("calls of `io_getevents`", _treated(_called(_GETEVENTS)), 3),
        *(Row(f"`{kind}`", _treated(_in(kind))) for kind in _KINDS),
        Row("halted, and idle task", _treated(lambda cell: cell.idle_ns / cell.ios)),
        Row("ns from one completed I/O to the next", _treated(_per_io_ns)),
        Row("IOPS lost, %", _lost_percent, 1),
    ]
    return _table("6.12, per I/O", columns, rows)


def cost_bars(found: Mapping[str, list[Pair]]) -> tuple[pd.DataFrame, pd.Series]:
    """Return what an I/O costs by subsystem, in and outside a cgroup, and how many boots say so.

    A row is a kernel with a weight or without a cgroup.
    """
    bars, boots = {}, {}
    for kernel, pairs in _at(found, _LARGE).items():
        small = [p for p in chosen(found["cgroup"], weight=_WEIGHT) if p.treated.kernel == kernel]
        columns = {_OUTSIDE: _outside(pairs), f"weight {_WEIGHT}": small, f"weight {_LARGE}": pairs}
        for says, column in columns.items():
            if column:
                costs = pd.DataFrame([pair.treated.subsystems for pair in column])
                bars[f"{kernel}, {says}"], boots[f"{kernel}, {says}"] = costs.mean(), len(costs)
    table = pd.DataFrame(bars).T.fillna(0)
    # The scheduler's parts stand side by side.
    kinds = sorted(KINDS, key=lambda kind: kind in _SCHEDULER)
    return table[[kind for kind in kinds if kind in table]], pd.Series(boots)


def chain_table(found: Mapping[str, list[Pair]]) -> Table:
    """Return who wakes and who preempts whom."""
    published, large = _at(found, _PUBLISHED), _at(found, _LARGE)
    columns = {
        f"5.10, {_PUBLISHED}": published["5.10"],
        f"6.1, {_OUTSIDE}": _outside(published["6.1"]),
        f"6.1, {_PUBLISHED}": published["6.1"],
        f"6.12, {_OUTSIDE}": _outside(large["6.12"]),
        f"6.12, {_LARGE}": large["6.12"],
        f"7.2, {_LARGE}": large["7.2"],
    }
    rows = [
        Row("context switches", _treated(_switches), 4),
        Row("calls of `try_to_wake_up`", _treated(_linked(".*", CALLS, ".*")), 4),
        Row("of these an interrupt's, for the worker", _treated(_TRIES), 4),
        Row("an interrupt wakes the worker", _treated(_linked(_INTERRUPT, "wakes", _WORKER)), 4),
        Row("the worker wakes fio, which slept", _treated(_WAKES), 4),
        Row("fio preempts the worker", _treated(_PREEMPTS), 4),
        Row("ns from the worker's wake-up until fio runs", _treated(_wait_ns)),
    ]
    return _table("per I/O", columns, rows)


def switch_table(found: Mapping[str, list[Pair]]) -> Table:
    """Return what a context switch costs at the weight of a large node."""
    rows = [
        Row("switches per I/O, no cgroup", lambda pair: _switches(pair.control), 3),
        Row(f"switches per I/O, {_LARGE}", _treated(_switches), 3),
        Row("instructions per I/O, no cgroup", lambda pair: _cost(pair.control)),
        Row(f"instructions per I/O, {_LARGE}", _treated(_cost)),
        Row("instructions for each additional switch", _each(_cost)),
        Row("of these `schedule`, `wake` and `cgroup`", _each(_in(*_SCHEDULER))),
        Row("of these `complete`", _each(_in("complete"))),
        Row("of these `submit`", _each(_in("submit"))),
        *(
            Row(f"a call of `{name}` at {_LARGE}, with all that it calls", _treated(_call(name)))
            for name in ("__schedule", "try_to_wake_up", "psi_task_switch")
        ),
    ]
    return _table(f"weight {_LARGE} against no cgroup", _at(found, _LARGE), rows)


def writeback_table(found: Mapping[str, list[Pair]]) -> Table:
    """Return what a MiB costs the flush worker."""
    columns = {}
    for kernel, pairs in _by_kernel(found["writeback"]).items():
        columns[f"{kernel} XFS"] = [_worker_of(pair.control) for pair in pairs]
        columns[f"{kernel} ext4"] = [_worker_of(pair.treated) for pair in pairs]
    rows = [
        Row("instructions", _per_mib(_cost)),
        Row("folios that are written", _per_mib(_called(_FOLIO)), 2),
        Row("writes of the device", _per_mib(lambda _: 1.0), 2),
        Row("blocks added to a bio (`bio_add_folio`)", _per_mib(_called(_BLOCK)), 2),
        *(Row(f"{says} (`{name}`)", _per_mib(_whole(name))) for says, name in _PARTS.items()),
    ]
    return _table("flush worker, per MiB written", columns, rows)


def _worker_of(cell: Cell) -> Pair:
    """Return the flush worker's part of a cell, as a column of its own."""
    worker = cell.of_task(_FLUSH)
    return Pair(worker, worker)


def _per_mib(value: Callable[[Cell], float]) -> Value:
    return lambda pair: value(pair.treated) * pair.treated.ios / pair.treated.mib


def reads_table(found: Mapping[str, list[Pair]]) -> Table:
    """Return what a read costs with a watch on the directory."""
    columns = {}
    for engine in ("io_uring", "libaio"):
        pairs = chosen(found["fsnotify"], engine=engine)
        columns[f"{engine}, no watch"] = _outside(pairs)
        columns[f"{engine}, directory"] = pairs
    rows = [
        Row("instructions", _treated(_cost)),
        Row("calls of `dget_parent`", _treated(_called("dget_parent")), 3),
        Row("instructions of fsnotify", _treated(_fsnotify)),
        Row("instructions of its kprobes", _treated(lambda cell: _fsnotify(cell, probes=True))),
    ]
    return _table("7.2, per read", columns, rows)


def _fsnotify(cell: Cell, *, probes: bool = False) -> float:
    """Return instructions below ``__fsnotify_parent``: without the kprobes in it, or theirs."""
    stacks = cell.working.stacks()
    below = stacks["stack"].map(lambda names: "__fsnotify_parent" in names)
    # A kprobe's trampoline is not a function of the kernel.
    probed = stacks["stack"].map(lambda names: NO_SYMBOL in names)
    return float(stacks.loc[below & (probed == probes), "instructions"].sum() / cell.ios)


def tables(found: Mapping[str, list[Pair]]) -> list[tuple[str, str, Table]]:
    """Return each table with the report whose page has it, and the name of its marks there."""
    return [
        ("dio_kworker", "cgroup", cgroup_table(found)),
        ("dio_kworker", "chain", chain_table(found)),
        ("dio_kworker", "switch", switch_table(found)),
        ("writeback_kworker", "worker", writeback_table(found)),
        ("fsnotify_contention", "reads", reads_table(found)),
    ]


def observed(found: Mapping[str, list[Pair]]) -> dict[str, Any]:
    """Return the numbers of the write-up: means over boots, rounded as its text shows them."""
    small, large = (chosen(found["cgroup"], weight=w) for w in (_WEIGHT, _LARGE))
    kernel = "6.1"
    chained = _at(found, _PUBLISHED)[kernel]
    outside = _outside(chained)
    watched = chosen(found["fsnotify"], engine="io_uring")
    return {
        "cgroup": {
            "kernel": small[0].treated.kernel,
            "weight": _WEIGHT,
            "without": _round(_outside(small), _treated(_cost)),
            "with": _round(small, _treated(_cost)),
            "loss_percent": _round(small, _lost_percent, 1),
            "load_averages": _round(small, _more(_load)),
            "pressure": _round(small, _more(_pressure)),
            "getevents_batch": _round(_outside(small), _inverse(_called(_GETEVENTS))),
        },
        "chain": {
            "kernel": kernel,
            "weight": _PUBLISHED,
            "cells": sum(2 for name in ("cgroup", "switch") for _ in found[name]),
            "preempts": _round(chained, _treated(_PREEMPTS), 4),
            "wait_us": _round(chained, _treated(lambda cell: _wait_ns(cell) / 1000)),
            "tries": _round(outside, _treated(_TRIES), 2),
            "wakes_once_in": _round(outside, _inverse(_WAKES)),
        },
        "large": {"weight": _LARGE, "with": _round(large, _treated(_cost))},
        "switch": [
            {
                "kernel": kernel,
                "switches_without": _round(_outside(pairs), _treated(_switches), 3),
                "switches_with": _round(pairs, _treated(_switches), 3),
                "each": _round(pairs, _each(_cost)),
                "scheduler": _round(pairs, _each(_in(*_SCHEDULER))),
                "schedule_call": _round(pairs, _treated(_call("__schedule"))),
            }
            for kernel, pairs in _at(found, _LARGE).items()
        ],
        "writeback": [
            {
                "kernel": kernel,
                "xfs": _round([_worker_of(pair.control) for pair in pairs], _per_mib(_cost)),
                "ext4": _round(workers := [_worker_of(p.treated) for p in pairs], _per_mib(_cost)),
                "folios": _round(workers, _per_mib(_called(_FOLIO))),
                "blocks": _round(workers, _per_mib(_called(_BLOCK))),
            }
            for kernel, pairs in _by_kernel(found["writeback"]).items()
        ],
        "uring": {
            "kernel": watched[0].treated.kernel,
            "reads": watched[0].treated.ios,
            "without": _round(_outside(watched), _treated(_cost)),
            "with": _round(watched, _treated(_cost)),
            "fsnotify": _round(watched, _treated(_fsnotify)),
        },
    }


def _inverse(value: Callable[[Cell], float]) -> Value:
    return lambda pair: 1 / value(pair.treated)


def _round(pairs: Sequence[Pair], value: Value, digits: int = 0) -> float | int | None:
    """Return a mean over boots with so many digits; None where there is none."""
    values = [value(pair) for pair in pairs]
    if not all(map(math.isfinite, values)):
        return None
    return round(mean(values).value, digits or None)
