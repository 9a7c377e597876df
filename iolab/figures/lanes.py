# SPDX-License-Identifier: MIT
"""Lanes of a trace: what the tasks of each lane did, why they waited, and where to look first.

A *lane* is the tasks whose comm fits a regular expression, one task, or one CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from iolab import measure
from iolab.measure.io_path import whole_matches
from iolab_base import foreign
from iolab_base.errors import UserError
from tracedat import Trace

WAITING: Final = ("runnable", "preempted")
# Default lanes: the CPUs with most switches, then the tasks that run longest.
_CPUS: Final = 8
_TASKS: Final = 6
_WORK_EVENTS: Final = ("workqueue_queue_work", "workqueue_execute_start", "workqueue_execute_end")
_FUNCTION: Final = 64

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Scene:
    """What a timeline of one trace shows; lanes are numbered from top to bottom."""

    # `bars` has a row for each interval of a lane, by start: its ``lane``, the ``group`` of its
    # colour (-1 for tasks without a lane), the columns of `iolab.measure.intervals`, the ``cause``
    # of a wait ("" if unknown), and ``wait_ns``, the wait or the wait before it ran (NaN if
    # unknown). `wakes` has a row for each wake-up of a lane's task; ``by_lane`` is -1 for a waker
    # without a lane.

    trace: Trace
    names: tuple[str, ...]
    bars: pd.DataFrame
    wakes: pd.DataFrame


def scene(
    trace: Trace, lanes: Mapping[str, str] | None, tasks: Mapping[int, str] | None = None
) -> Scene:
    """Sort intervals and wake-ups into lanes: patterns by name, or `_default_lanes`."""
    # `tasks` gives tasks other names than their comms, by pid.
    states = _explained(trace)
    if tasks:
        given = states["pid"].map(dict(tasks))
        states["comm"] = given.where(given.notna(), states["comm"].astype(object)).astype(
            "category"
        )
    waits = measure.waits_after_wakes(trace)
    waits["cause"] = _woken_by(waits)
    if lanes is None:
        names, parts, groups = _default_lanes(states)
    else:
        names = list(lanes)
        parts = [fits(states["comm"], pattern) for pattern in lanes.values()]
        groups = list(range(len(names)))
    bars = [
        states[part].assign(lane=lane, group=group)
        for lane, (part, group) in enumerate(zip(parts, groups, strict=True))
    ]
    if not sum(map(len, bars)):
        called = f" called {any_of(lanes)}" if lanes else ""
        raise UserError(f"no task{called} runs in {trace.path}")
    together = pd.concat(bars, ignore_index=True).sort_values("start_ns", kind="stable")
    if lanes is None:
        # A bar in the lane of a CPU has the colour of its task.
        of_task = together[together["group"] >= 0]
        group_of = dict(zip(of_task["pid"], of_task["group"], strict=True))
        together["group"] = together["pid"].map(group_of).fillna(-1).astype("int64")
    woken = _wakes(waits, together)
    printable = tuple(foreign.line(str(name), foreign.NAME) for name in names)
    return Scene(trace, printable, together.reset_index(drop=True), woken)


def first_view(shown: Scene, length_ns: int) -> tuple[int, int]:
    """Return the window (ns) of a length with most preemptions, else with the longest wait."""
    first, last = shown.trace.span
    if last - first <= length_ns:
        return first, max(last, first + 1)
    # States at the edges of a trace are only partly known.
    margin = min(length_ns, (last - first - length_ns) // 2)
    starts = shown.bars["start_ns"]
    middle = shown.bars[(starts >= first + margin) & (starts <= last - length_ns - margin // 2)]
    bars = shown.bars if middle.empty else middle
    times = np.unique(bars.loc[bars["state"] == "preempted", "start_ns"].to_numpy())
    waits = bars[bars["state"] == "runnable"]
    if times.size:
        begin = densest(times, length_ns)
    elif len(waits):
        length = (waits["end_ns"] - waits["start_ns"]).to_numpy()
        begin = int(waits["start_ns"].iloc[int(np.argmax(length))])
    else:
        begin = int(bars["start_ns"].iloc[0])
    begin = min(max(begin - length_ns // 20, first), last - length_ns)
    return begin, begin + length_ns


def densest(times: Rows, length_ns: int) -> int:
    """Return the time at which the window of a length with most of these times begins."""
    count = np.searchsorted(times, times + length_ns) - np.arange(times.size)
    return int(times[int(np.argmax(count))])


def embedded_span(shown: Scene, view: tuple[int, int], most: int) -> tuple[int, int]:
    """Return the longest span (ns) around a view, or in it, that `most` bars and wake-ups touch."""
    first, last = shown.trace.span
    starts = np.sort(shown.bars["start_ns"].to_numpy())
    ends = np.sort(shown.bars["end_ns"].to_numpy())
    woken = np.sort(shown.wakes["woken_ns"].to_numpy())

    def count(span: tuple[int, int]) -> int:
        begin, end = span
        bars = np.searchsorted(starts, end) - np.searchsorted(ends, begin, "right")
        return int(bars + np.searchsorted(woken, end) - np.searchsorted(woken, begin))

    def grown(by: int) -> tuple[int, int]:
        return max(first, view[0] - by), min(last + 1, view[1] + by)

    low, high = -((view[1] - view[0]) // 2), last - first + 1
    if count(grown(high)) <= most:
        return first, last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(grown(middle)) <= most else (low, middle)
    return grown(low)


def shares(shown: Scene, embedded: tuple[int, int], bins: int) -> pd.DataFrame:
    """Return ``running`` and ``waiting`` of each lane outside of a span: time over the bin's."""
    first, last = shown.trace.span
    width = max(1, -(-(last - first) // bins))
    edges = [
        np.append(np.arange(begin, end, width), end)
        for begin, end in ((first, embedded[0]), (embedded[1], last))
        if end > begin
    ]
    frames = []
    for lane in range(len(shown.names)):
        bars = shown.bars[shown.bars["lane"] == lane]
        for edge in edges:
            size = np.diff(edge)
            columns: dict[str, Any] = {"lane": lane, "start_ns": edge[:-1], "end_ns": edge[1:]}
            for name, states in (("running", ("running",)), ("waiting", WAITING)):
                part = bars[bars["state"].isin(states)]
                columns[name] = np.diff(_time_before(part, edge)) / size
            frames.append(pd.DataFrame(columns))
    if not frames:
        return pd.DataFrame(columns=["lane", "start_ns", "end_ns", "running", "waiting"])
    frame = pd.concat(frames, ignore_index=True)
    return frame[(frame["running"] > 0) | (frame["waiting"] > 0)].reset_index(drop=True)


def work_names(trace: Trace, bars: pd.DataFrame) -> list[str]:
    """Return the kernel functions that a worker executed in each bar; "" for none or unknown."""
    names = [""] * len(bars)
    if not all(trace.events.get(event) for event in _WORK_EVENTS):
        return names
    items = measure.work_items(trace)
    items = items[items["worker"] >= 0].sort_values("started_ns")
    awake = bars["state"].isin(("running", "preempted")).to_numpy()
    pids, start, end = (bars[c].to_numpy() for c in ("pid", "start_ns", "end_ns"))
    far = trace.span[1] + 1
    for worker, executed in items.groupby("worker"):
        begun = executed["started_ns"].to_numpy("int64")
        # A worker executes one item after the other: a missing end came before the next item.
        ended = executed["ended_ns"].to_numpy("int64", na_value=far)
        ended = np.minimum(ended, np.append(begun[1:], far))
        functions = executed["function_name"].tolist()
        for row in np.flatnonzero((pids == worker) & awake):
            inside = functions[
                np.searchsorted(ended, start[row], "right") : np.searchsorted(begun, end[row])
            ]
            names[row] = _counted(inside)
    return names


def _counted(functions: list[str]) -> str:
    distinct = list(dict.fromkeys(functions))
    words = [
        foreign.line(name, _FUNCTION)
        + (f" ({n} times)" if (n := functions.count(name)) > 1 else "")
        for name in distinct[:2]
    ]
    return ", ".join(words + ["…"] * (len(distinct) > 2))


def _explained(trace: Trace) -> pd.DataFrame:
    """Return `measure.intervals` with the cause and length of each task's wait."""
    states = measure.intervals(trace)
    cause = np.full(len(states), "", dtype=object)
    # Both functions keep the order of the intervals.
    woken = (states["state"] == "runnable") & (states["waker"] >= 0)
    cause[woken.to_numpy()] = _woken_by(measure.waits_after_wakes(trace))
    put_off = (states["state"] == "preempted").to_numpy()
    by = measure.preemptions(trace)
    cause[put_off] = [
        f"preempted by {task}" for task in _tasks(by["by_comm"].tolist(), by["by_pid"].tolist())
    ]
    length = (states["end_ns"] - states["start_ns"]).to_numpy(dtype=float)
    waiting = states["state"].isin(WAITING).to_numpy()
    wait = np.where(waiting, length, np.nan)
    # A running task waited before if its previous interval is a wait.
    order = np.lexsort((states["end_ns"], states["start_ns"], states["pid"]))
    before, after = order[:-1], order[1:]
    pid, start, end = (states[c].to_numpy() for c in ("pid", "start_ns", "end_ns"))
    follows = (pid[before] == pid[after]) & (end[before] == start[after]) & waiting[before]
    follows &= (states["state"] == "running").to_numpy()[after]
    cause[after[follows]] = cause[before[follows]]
    wait[after[follows]] = wait[before[follows]]
    states["cause"], states["wait_ns"] = cause, wait
    return states.drop(columns="waker")


def _woken_by(waits: pd.DataFrame) -> list[str]:
    tasks = _tasks(waits["waker_comm"].tolist(), waits["waker_pid"].tolist())
    return [
        f"woken by an interrupt of {task}" if interrupt else f"woken by {task}"
        for task, interrupt in zip(tasks, waits["interrupt"].tolist(), strict=True)
    ]


def _tasks(comms: list[Any], pids: list[int]) -> list[str]:
    return [
        f"{foreign.line(str(comm), foreign.NAME)} ({pid})" if isinstance(comm, str) else f"({pid})"
        for comm, pid in zip(comms, pids, strict=True)
    ]


def _wakes(waits: pd.DataFrame, bars: pd.DataFrame) -> pd.DataFrame:
    """Return the wake-ups of the tasks that have a lane."""
    # CPU lanes come before task lanes; a task of several lanes is woken in its last one.
    of_task = bars[bars["group"] >= 0].sort_values("lane").drop_duplicates("pid", keep="last")
    lane_of = dict(zip(of_task["pid"], of_task["lane"], strict=True))
    woken = waits[waits["pid"].isin(lane_of)].reset_index(drop=True)
    by = woken["waker_pid"].map(lane_of).where(~woken["interrupt"]).fillna(-1)
    woken["lane"] = woken["pid"].map(lane_of).astype("int64")
    woken["by_lane"] = by.astype("int64")
    columns = ["lane", "by_lane", "woken_ns", "pid", "comm", "cause", "wait_ns"]
    return woken[columns].sort_values("woken_ns", kind="stable", ignore_index=True)


def _default_lanes(
    states: pd.DataFrame,
) -> tuple[list[str], list[npt.NDArray[np.bool_]], list[int]]:
    """Return names, rows and groups of the lanes of the busiest CPUs, then the busiest tasks."""
    running = (states["state"] == "running").to_numpy()
    ran = states[running]
    cpus = sorted(ran["cpu"].value_counts().index[:_CPUS].tolist())
    time = (ran["end_ns"] - ran["start_ns"]).groupby(ran["pid"]).sum()
    pids = time.nlargest(_TASKS).index.tolist()
    last = ran.drop_duplicates("pid", keep="last").set_index("pid")["comm"]
    names = [f"CPU {cpu}" for cpu in cpus] + [f"{last[pid]} {pid}" for pid in pids]
    parts = [running & (states["cpu"] == cpu).to_numpy() for cpu in cpus]
    parts += [(states["pid"] == pid).to_numpy() for pid in pids]
    return names, parts, [-1] * len(cpus) + list(range(len(pids)))


def fits(comms: pd.Series, pattern: str) -> npt.NDArray[np.bool_]:
    """Return which categorical comms match a pattern; raise UserError for an invalid one."""
    known = whole_matches(comms.cat.categories, pattern)
    # A missing comm has the code -1.
    return np.array([*known, False])[comms.cat.codes.to_numpy()]


def any_of(lanes: Mapping[str, str]) -> str:
    """Return the lanes' patterns for an error message."""
    return " or ".join(repr(pattern) for pattern in lanes.values())


def _time_before(bars: pd.DataFrame, times: Rows) -> npt.NDArray[np.float64]:
    """Return the total duration of the bars before each time."""
    total = np.zeros(times.size)
    for column, sign in (("start_ns", 1), ("end_ns", -1)):
        # Relative to the first time, sums of nanoseconds stay exact.
        edges = np.sort(bars[column].to_numpy()) - times[0]
        sums = np.concatenate([[0], np.cumsum(edges)])
        before = np.searchsorted(edges, times - times[0])
        total += sign * (before * (times - times[0]) - sums[before])
    return total
