# SPDX-License-Identifier: MIT
"""Intervals: of tasks running, waiting for a CPU or asleep, and of devices idle or in flight.

An idle gap is a time in which a device has nothing in flight while its I/O scheduler holds a
request for it.
"""

from __future__ import annotations

import re
from typing import Any

import numba
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.measure.join import first_after, last_before, unique_matches
from tracedat import Trace

# ``runnable``: woken or yielded, waits for a CPU; ``preempted``: switched out while runnable.
STATES = ("running", "runnable", "preempted", "sleeping", "blocked", "stopped", "dead", "other")
_RUNNING, _RUNNABLE, _PREEMPTED, _SLEEPING, _BLOCKED, _STOPPED, _DEAD, _OTHER = range(8)
_LETTERS = {"S": _SLEEPING, "D": _BLOCKED, "T": _STOPPED, "t": _STOPPED, "X": _DEAD, "Z": _DEAD}

_STATE = pd.CategoricalDtype(list(STATES))


def slices(trace: Trace) -> pd.DataFrame:
    """Return every stay of a task on a CPU.

    The trace needs sched_switch. One row for each stay, in order of its end; without stays that an
    edge of the trace cuts.

    - ``cpu`` (int16): CPU
    - ``pid`` (int32): the task; 0 is the idle task
    - ``comm`` (category): its name
    - ``start_ns``, ``end_ns`` (int64, ns): the stay
    - ``state`` (category): one of `STATES`, in which the task left the CPU
    """
    trace.require("slices", "sched_switch")
    switch = trace.frame("sched_switch")
    order = np.argsort(switch["common_cpu"].to_numpy(), kind="stable")
    before, after = order[:-1], order[1:]
    cpu, time = switch["common_cpu"].to_numpy(), switch["timestamp_ns"].to_numpy()
    # Both ends of a stay are known if the CPU's previous switch was to the same task.
    whole = (cpu[before] == cpu[after]) & (
        switch["next_pid"].to_numpy()[before] == switch["prev_pid"].to_numpy()[after]
    )
    before, after = before[whole], after[whole]
    by_end = np.argsort(time[after], kind="stable")
    before, after = before[by_end], after[by_end]
    return pd.DataFrame(
        {
            "cpu": cpu[after],
            "pid": switch["prev_pid"].to_numpy()[after],
            "comm": switch["prev_comm"].array[after],
            "start_ns": time[before],
            "end_ns": time[after],
            "state": pd.Categorical.from_codes(
                _left_in(trace, switch["prev_state"].to_numpy()[after]), dtype=_STATE
            ),
        }
    )


# Written by the waker (``try_to_wake_up`` in kernel/sched/core.c), and when the task is put on a
# run queue, which another CPU may do.
_WAKES = ("sched_waking", "sched_wakeup")


def wake_event(trace: Trace) -> str:
    """Return the event that has the wake-ups: sched_waking, else sched_wakeup; "" for none."""
    return next((name for name in _WAKES if trace.events.get(name)), "")


def intervals(trace: Trace) -> pd.DataFrame:
    """Return the states of every task over time.

    The trace needs sched_switch. Without wake-ups (`wake_event`) a wait after one is part of the
    sleep before it. One row for each interval, in order of its end; without the idle task and
    without intervals that an edge of the trace cuts.

    - ``pid`` (int64): the task
    - ``comm`` (category): its name at the last switch of the interval
    - ``state`` (category): one of `STATES`
    - ``start_ns``, ``end_ns`` (int64, ns): the interval
    - ``cpu`` (int32): CPU on which it ran or was switched in at the end; -1 if a wake-up
      ended the interval
    - ``waker`` (int64): row of the wake-up that made it runnable; -1 for none
    """
    by = wake_event(trace)
    trace.require("intervals", "sched_switch", *filter(None, [by]))
    switch = trace.frame("sched_switch")
    waking = (
        trace.frame(by) if by else pd.DataFrame({"timestamp_ns": [], "pid": []}, dtype=np.int64)
    )
    count, woken = len(switch), len(waking)
    times = switch["timestamp_ns"].to_numpy()
    # Order of events at equal times: switch out, wake-up, switch in.
    time = np.concatenate([times, waking["timestamp_ns"].to_numpy(), times])
    pids = [switch["prev_pid"], waking["pid"], switch["next_pid"]]
    pid = np.concatenate([p.to_numpy() for p in pids]).astype(np.int64)
    kind = np.repeat(np.array([0, 1, 2], np.int8), [count, woken, count])
    row = np.concatenate([np.arange(count), np.arange(woken), np.arange(count)])
    order = np.argsort(time, kind="stable")
    dense, unique = pd.factorize(pid)
    cpu = switch["common_cpu"].to_numpy()
    left = _left_in(trace, switch["prev_state"].to_numpy()).astype(np.int8)
    rows, *columns = _walk(
        time[order], dense[order], kind[order], row[order], left, cpu, unique.size
    )
    task, state, start, end, where, waker, last = (column[:rows] for column in columns)
    keep = unique[task] != 0
    task, state, start, end, where, waker, last = (
        column[keep] for column in (task, state, start, end, where, waker, last)
    )
    return pd.DataFrame(
        {
            "pid": unique[task],
            "comm": _names(switch, last),
            "state": pd.Categorical.from_codes(state, dtype=_STATE),
            "start_ns": start,
            "end_ns": end,
            "cpu": where,
            "waker": waker,
        }
    )


def _names(switch: pd.DataFrame, rows: NDArray[np.int64]) -> pd.Categorical:
    """Return the name in each switch out of `rows`, or in the switch in of row -1 - `rows`."""
    codes = (
        np.where(
            rows >= 0,
            switch["prev_comm"].cat.codes.to_numpy()[np.maximum(rows, 0)],
            switch["next_comm"].cat.codes.to_numpy()[~np.minimum(rows, -1)],
        )
        if len(switch)
        else np.empty(0, np.int8)
    )
    names = pd.CategoricalDtype(switch["prev_comm"].cat.categories)
    return pd.Categorical.from_codes(codes, dtype=names)


def _left_in(trace: Trace, prev_state: NDArray[Any]) -> NDArray[np.int8]:
    """Return the code of the state in which each task left its CPU."""
    # The bits differ between kernels (TASK_* in include/linux/sched.h): the event's format says.
    event = trace.formats["sched_switch"]
    letters = re.findall(r'\{\s*(0x[0-9a-fA-F]+|\d+)\s*,\s*"(\w)"\s*\}', event.print_format)
    codes = np.full(prev_state.size, _OTHER, np.int8)
    for number, letter in letters or [("1", "S"), ("2", "D")]:
        codes[(prev_state & int(number, 0)) != 0] = _LETTERS.get(letter, _OTHER)
    codes[prev_state == 0] = _RUNNABLE
    if event.preempted_bit:
        codes[(prev_state & event.preempted_bit) != 0] = _PREEMPTED
    return codes


@numba.njit(cache=True, nogil=True)
def _walk(time: Any, task: Any, kind: Any, row: Any, left: Any, cpu: Any, tasks: Any) -> Any:
    """Turn switches out (0), wake-ups (1) and switches in (2) of all tasks into intervals."""
    n = time.size
    a_task, a_state = np.empty(n, np.int64), np.empty(n, np.int8)
    a_start, a_end = np.empty(n, np.int64), np.empty(n, np.int64)
    a_cpu, a_waker, a_last = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
    state = np.full(tasks, -1, np.int8)
    since = np.zeros(tasks, np.int64)
    waker = np.full(tasks, -1, np.int64)
    # The last switch of each task has its name; wake-ups do not.
    named = np.zeros(tasks, np.int64)
    count = 0
    for i in range(n):
        p = task[i]
        k = kind[i]
        r = row[i]
        now = state[p]
        if k == 1 and now in (0, 1, 2):
            continue  # it is awake already
        if k != 1:
            named[p] = r if k == 0 else -1 - r
        # Events are missing if a task that was out is switched out, or one that was in, in.
        fits = now >= 0 and (now == 0) == (k == 0)
        if fits and since[p] <= time[i]:
            a_task[count] = p
            a_state[count] = now
            a_start[count] = since[p]
            a_end[count] = time[i]
            a_cpu[count] = cpu[r] if k != 1 else -1
            a_waker[count] = waker[p]
            a_last[count] = named[p]
            count += 1
        waker[p] = -1
        since[p] = time[i]
        if k == 0:
            state[p] = left[r]
        elif k == 1:
            state[p] = 1
            waker[p] = r
        else:
            state[p] = 0
    return count, a_task, a_state, a_start, a_end, a_cpu, a_waker, a_last


Times = NDArray[np.int64]

_COLUMNS = {
    "dev": "int64",
    "start_ns": "int64",
    "length_ns": "int64",
    "owner": "str",
    "previous": "str",
}


def idle_gaps(trace: Trace, *, shortest_ns: int = 0) -> pd.DataFrame:
    """Return the times when a device had nothing in flight while a request waited for it.

    A request is followed by device and sector from its insertion into the I/O scheduler to its
    issue and its completion. With the scheduler "none" nearly all requests are issued without
    insertion (block/blk-mq.c), so there are no gaps.

    A request that cannot be followed never makes a gap. If it is not issued under the sector of
    its insertion (it was merged, or the trace ends), it does not wait. If its issue or completion
    is missing, it is in flight from the trace's begin or to its end.

    The trace needs block_rq_insert, block_rq_issue and block_rq_complete. One row for each gap of
    at least `shortest_ns`, in order of its start.

    - ``dev`` (int64): the kernel's device number
    - ``start_ns``, ``length_ns`` (int64, ns): the gap
    - ``owner`` (str): name of the task whose request has waited longest
    - ``previous`` (str): name of the task whose request was completed last before the gap;
      empty if the trace does not show it
    """
    names = ("block_rq_insert", "block_rq_issue", "block_rq_complete")
    trace.require("idle_gaps", *names)
    insert, issue, complete = (trace.frame(name) for name in names)
    frames = [
        _of_device(
            insert[insert["dev"] == dev],
            issue[issue["dev"] == dev],
            complete[complete["dev"] == dev],
            trace.span,
        ).assign(dev=dev)
        for dev in np.unique(insert["dev"].to_numpy())
    ]
    if not frames:
        return pd.DataFrame(columns=list(_COLUMNS)).astype(_COLUMNS)
    gaps = pd.concat(frames, ignore_index=True)[list(_COLUMNS)].astype(_COLUMNS)
    gaps = gaps[gaps["length_ns"] >= shortest_ns]
    return gaps.sort_values("start_ns", kind="stable", ignore_index=True)


def busy_time(trace: Trace) -> pd.Series:
    """Return how long each device had a request in flight.

    The trace needs block_rq_issue and block_rq_complete. The series has ``busy_ns`` (int64, ns) by
    ``dev``, the kernel's device number.
    """
    trace.require("busy_time", "block_rq_issue", "block_rq_complete")
    issue, complete = trace.frame("block_rq_issue"), trace.frame("block_rq_complete")
    times = {}
    for dev in np.unique(issue["dev"].to_numpy()):
        begin, end, _ = _flights(
            issue[issue["dev"] == dev], complete[complete["dev"] == dev], trace.span
        )
        at, flying = _count(begin, end)
        times[int(dev)] = int(np.diff(at)[flying[:-1] > 0].sum())
    return pd.Series(times, name="busy_ns", dtype="int64").rename_axis("dev")


def _of_device(
    insert: pd.DataFrame, issue: pd.DataFrame, complete: pd.DataFrame, span: tuple[int, int]
) -> pd.DataFrame:
    inserted_at, issued_at = (f["timestamp_ns"].to_numpy() for f in (insert, issue))
    keys = ((insert["sector"].to_numpy(),), (issue["sector"].to_numpy(),))
    # Each issue takes the last insert before it.
    rows = unique_matches(last_before(inserted_at, issued_at, *keys))
    waited = np.flatnonzero(rows >= 0)
    # In the order of their insertion.
    waited = waited[np.argsort(rows[waited], kind="stable")]
    names = insert["comm"].astype("str").to_numpy()[rows[waited]]
    since, until = inserted_at[rows[waited]], issued_at[waited]
    begin, end, completed = _flights(issue, complete, span)

    at, waiting = _count(since, until, other=(begin, end))
    _, flying = _count(begin, end, other=(since, until))
    alone = np.concatenate([[0], (waiting > 0) & (flying == 0), [0]])
    edges = np.diff(alone)
    start, stop = at[np.flatnonzero(edges[:-1] == 1)], at[np.flatnonzero(edges == -1)]

    # Of the requests that wait at `start`, the first one inserted is the first one issued later.
    oldest = np.searchsorted(np.maximum.accumulate(until), start, side="right")
    issuers = issue["comm"].astype("str").to_numpy().astype(object)
    issuers[waited] = names
    # The additional last element, row -1, stands for "no completion before the gap".
    completers = np.full(len(complete) + 1, "", dtype=object)
    completers[completed[completed >= 0]] = issuers[completed >= 0]
    last = np.searchsorted(complete["timestamp_ns"].to_numpy(), start, side="right") - 1
    return pd.DataFrame(
        {
            "start_ns": start,
            "length_ns": stop - start,
            "owner": names[oldest],
            "previous": completers[last],
        }
    )


def _flights(
    issue: pd.DataFrame, complete: pd.DataFrame, span: tuple[int, int]
) -> tuple[Times, Times, Times]:
    """Return each flight's begin and end, unknown issues last; each issue's completion or -1."""
    issued_at, completed_at = (f["timestamp_ns"].to_numpy() for f in (issue, complete))
    keys = (issue["sector"].to_numpy(),), (complete["sector"].to_numpy(),)
    completed = first_after(completed_at, issued_at, keys[1], keys[0])
    ended = np.full(issued_at.size, span[1], np.int64)
    ended[completed >= 0] = completed_at[completed[completed >= 0]]
    unknown = completed_at[last_before(issued_at, completed_at, *keys) < 0]
    return (
        np.concatenate([issued_at, np.full(unknown.size, span[0], np.int64)]),
        np.concatenate([ended, unknown]),
        completed,
    )


def _count(
    begin: Times, end: Times, *, other: tuple[Times, ...] = ()
) -> tuple[Times, NDArray[Any]]:
    """Return all times at which anything changes, and the number of open intervals after each."""
    times = np.unique(np.concatenate([begin, end, *other]))
    change = np.zeros(times.size, np.int64)
    np.add.at(change, np.searchsorted(times, begin), 1)
    np.add.at(change, np.searchsorted(times, end), -1)
    return times, np.cumsum(change)
