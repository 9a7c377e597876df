# SPDX-License-Identifier: MIT
"""Follow the work items of kernel workqueues: queued, started, ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.measure.join import first_after, last_before, unique_matches, values_at
from tracedat import Trace

__all__ = ["work_items"]

Rows = NDArray[np.int64]


def work_items(trace: Trace) -> pd.DataFrame:
    """Return every execution of a work item with its queueing.

    Parameters
    ----------
    trace : Trace
        Needs workqueue_queue_work, workqueue_execute_start and workqueue_execute_end
        (include/trace/events/workqueue.h).

    Returns
    -------
    DataFrame
        One row for each execution, in order of its start; then the items that were queued but
        not started.

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

    Raises
    ------
    MissingEventError
        If the trace lacks an event.
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
