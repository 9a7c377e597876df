# SPDX-License-Identifier: MIT
"""Kernel workers: the items of workqueues, and the flushes of dirty pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.measure.intervals import slices
from iolab.measure.join import first_after, last_before, unique_matches, values_at
from tracedat import Trace

Rows = NDArray[np.int64]


def work_items(trace: Trace) -> pd.DataFrame:
    """Return every execution of a work item with its queueing.

    The trace needs workqueue_queue_work, workqueue_execute_start and workqueue_execute_end
    (include/trace/events/workqueue.h). One row for each execution, in order of its start; then the
    items that were queued but not started.

    - ``work``, ``function`` (uint64): addresses of the item and of its function
    - ``function_name`` (category): `Trace.symbol` of the function
    - ``workqueue`` (category, or uint64): the workqueue's name; its address on kernels whose
      workqueue_queue_work records no name
    - ``queued_ns``, ``started_ns``, ``ended_ns`` (Int64, ns): NA if not in the trace
    - ``wait_ns``, ``run_ns`` (Int64, ns): queued to started, started to ended
    - ``queued_by``, ``worker`` (int64): pids; -1 if not in the trace
    - ``cpu`` (int64): CPU of the execution; -1 if not in the trace
    - ``queue_row``, ``start_row`` (int64): rows of workqueue_queue_work and
      workqueue_execute_start; -1 for none
    """
    names = ("workqueue_queue_work", "workqueue_execute_start", "workqueue_execute_end")
    trace.require("work_items", *names)
    queue, start, end = (trace.frame(name) for name in names)
    q_row, s_row, e_row = _joined(queue, start, end)
    unstarted = q_row[s_row < 0]
    # One frame of all columns: pandas takes half a millisecond to insert one into a frame.
    columns: dict[str, Any] = {
        column: np.concatenate([start[column].to_numpy(), queue[column].to_numpy()[unstarted]])
        for column in ("work", "function")
    }
    called, addresses = pd.factorize(columns["function"])
    functions = pd.Series(addresses).map(
        {address: trace.symbol(address) for address in addresses.tolist()}
    )
    columns["function_name"] = pd.Categorical(functions)[called]
    if "workqueue" in queue and len(queue):
        workqueue = pd.Series(queue["workqueue"].array[q_row])
        columns["workqueue"] = workqueue.where(pd.Series(q_row >= 0))
    columns["queued_ns"] = _at(queue["timestamp_ns"], q_row)
    columns["started_ns"] = _at(start["timestamp_ns"], s_row)
    columns["ended_ns"] = _at(end["timestamp_ns"], e_row)
    columns["wait_ns"] = columns["started_ns"] - columns["queued_ns"]
    columns["run_ns"] = columns["ended_ns"] - columns["started_ns"]
    columns["queued_by"] = _known(queue["common_pid"], q_row)
    columns["worker"] = _known(start["common_pid"], s_row)
    columns["cpu"] = _known(start["common_cpu"], s_row)
    columns["queue_row"], columns["start_row"] = q_row, s_row
    return pd.DataFrame(columns, copy=False)


def _joined(queue: pd.DataFrame, start: pd.DataFrame, end: pd.DataFrame) -> tuple[Rows, Rows, Rows]:
    """Return the rows of each execution in the three frames, -1 for none; unstarted items last."""
    q_time, s_time, e_time = (f["timestamp_ns"].to_numpy() for f in (queue, start, end))
    q_work, s_work, e_work = (f["work"].to_numpy() for f in (queue, start, end))
    s_worker, e_worker = (f["common_pid"].to_numpy() for f in (start, end))
    queued = unique_matches(last_before(q_time, s_time, (q_work,), (s_work,)))
    # A work function may free its item, and another one may get the same address before the
    # execution ends (process_one_work in kernel/workqueue.c): the worker is part of the key.
    ended = first_after(e_time, s_time, (e_work, e_worker), (s_work, s_worker))
    ended = unique_matches(ended, keep_last=True)
    waiting = np.ones(len(queue), bool)
    waiting[queued[queued >= 0]] = False
    unstarted = np.flatnonzero(waiting)
    none = np.full(unstarted.size, -1)
    return (
        np.concatenate([queued, unstarted]),
        np.concatenate([np.arange(len(start)), none]),
        np.concatenate([ended, none]),
    )


def _at(column: pd.Series, rows: Rows) -> pd.arrays.IntegerArray:
    """Return a column's values at some rows as nullable integers, NA for row -1."""
    return pd.arrays.IntegerArray(_known(column, rows), rows < 0)


def _known(column: pd.Series, rows: Rows) -> Rows:
    """Return a column's values at some rows, -1 for row -1."""
    return values_at(column.to_numpy().astype(np.int64, copy=False), rows)


def flushes(trace: Trace) -> pd.DataFrame:
    """Return every period in which a task wrote dirty pages back.

    A period lasts from writeback_start to the same task's next writeback_written (``wb_writeback``
    in fs/fs-writeback.c). A period that is cut by an edge of the trace begins or ends there.

    The trace needs sched_switch, writeback_start and writeback_written. One row for each period, in
    order of its start.

    - ``pid`` (int64): the task
    - ``start_ns``, ``end_ns`` (int64, ns): the period
    - ``run_ns`` (int64, ns): time that the task was on a CPU, without stays that the edges
      of the trace cut
    """
    trace.require("flushes", "sched_switch", "writeback_start", "writeback_written")
    start, written = trace.frame("writeback_start"), trace.frame("writeback_written")
    begins, ends = start["timestamp_ns"].to_numpy(), written["timestamp_ns"].to_numpy()
    starters, writers = start["common_pid"].to_numpy(), written["common_pid"].to_numpy()
    ended = unique_matches(first_after(ends, begins, (writers,), (starters,)), keep_last=True)
    # A task's first end without a begin before it: the period began before the trace.
    begun = np.setdiff1d(np.unique(writers, return_index=True)[1], ended)
    first, last = trace.span
    until = np.where(ended >= 0, values_at(ends, ended), last)
    frame = pd.DataFrame(
        {
            "pid": np.concatenate([writers[begun], starters]),
            "start_ns": np.concatenate([np.full(begun.size, first), begins]),
            "end_ns": np.concatenate([ends[begun], until]),
        }
    ).astype("int64")
    frame = frame.sort_values("start_ns", kind="stable", ignore_index=True)
    frame["run_ns"] = 0
    stays = slices(trace)
    for pid, periods in frame.groupby("pid"):
        ran = stays[stays["pid"] == pid].sort_values("start_ns")
        if ran.empty:
            continue
        # Cumulated CPU time is piecewise linear between the ends of the stays.
        length = (ran["end_ns"] - ran["start_ns"]).to_numpy()
        after = np.cumsum(length)
        at = np.ravel(ran[["start_ns", "end_ns"]].to_numpy())
        spent = np.ravel(np.column_stack([after - length, after]))
        run = np.interp(periods["end_ns"], at, spent) - np.interp(periods["start_ns"], at, spent)
        frame.loc[periods.index, "run_ns"] = np.rint(run).astype(np.int64)
    return frame


def max_overlap(periods: pd.DataFrame) -> int:
    """Return the largest number of periods that overlap at one time; 0 without any.

    The columns are ``start_ns`` and ``end_ns``. A period that ends when another begins does not
    overlap it.

    Examples
    --------
    >>> import pandas as pd
    >>> max_overlap(pd.DataFrame({"start_ns": [0, 5, 9], "end_ns": [6, 9, 12]}))
    2
    """
    begins, ends = periods["start_ns"].to_numpy(), periods["end_ns"].to_numpy()
    step = np.repeat([1, -1], [begins.size, ends.size])
    # At equal times -1 comes before 1: an end before a begin.
    order = np.lexsort((step, np.concatenate([begins, ends])))
    return int(step[order].cumsum().max(initial=0))
