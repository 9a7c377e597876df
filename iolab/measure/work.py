# SPDX-License-Identifier: MIT
"""Work items of kernel workqueues: queued, started, ended."""

from __future__ import annotations

import numpy as np
import pandas as pd

from iolab.measure.join import first_after, last_before, unique_matches
from iolab.trace.trace import Trace

__all__ = ["work_items"]


def work_items(trace: Trace) -> pd.DataFrame:
    """Return every execution of a work item, joined with its queueing on ``work``.

    Columns: ``work``, ``function`` (addresses), ``workqueue`` (its name, where the kernel tells),
    ``queued_ns``, ``started_ns``, ``ended_ns`` (NA where the trace does not show it),
    ``wait_ns`` (queued to started), ``run_ns``, ``queued_by`` (pid), ``worker`` (pid), ``cpu``,
    ``queue_row`` and ``start_row`` (rows of the events' frames; -1 for none). Items that were
    queued and never started in the trace come last, without a worker (pid -1).

    Errors: MissingEventError without workqueue_queue_work, workqueue_execute_start and
    workqueue_execute_end.
    """
    names = ("workqueue_queue_work", "workqueue_execute_start", "workqueue_execute_end")
    trace.require("work_items", *names)
    queue, start, end = (trace.frame(name) for name in names)
    q_time, s_time, e_time = (f["timestamp_ns"].to_numpy() for f in (queue, start, end))
    q_work, s_work, e_work = (f["work"].to_numpy() for f in (queue, start, end))
    queued = unique_matches(last_before(q_time, s_time, (q_work,), (s_work,)))
    # One worker executes one item at a time; its address may be freed and used again before it
    # ends, which is why the worker is part of the key.
    s_worker, e_worker = (f["common_pid"].to_numpy() for f in (start, end))
    ended = first_after(e_time, s_time, (e_work, e_worker), (s_work, s_worker))
    ended = unique_matches(ended, keep_last=True)
    unstarted = np.setdiff1d(np.arange(len(queue)), queued)
    q_row = np.concatenate([queued, unstarted])
    s_row = np.concatenate([np.arange(len(start)), np.full(unstarted.size, -1)])
    e_row = np.concatenate([ended, np.full(unstarted.size, -1)])
    has_q, has_s = pd.Series(q_row >= 0), pd.Series(s_row >= 0)
    frame = pd.DataFrame(
        {
            "work": np.concatenate([s_work, q_work[unstarted]]),
            "function": np.concatenate([start["function"], queue["function"].iloc[unstarted]]),
        }
    )
    if "workqueue" in queue and len(queue):
        frame["workqueue"] = queue["workqueue"].array[q_row]
        frame["workqueue"] = frame["workqueue"].where(has_q)
    frame["queued_ns"] = _taken(q_time, q_row)
    frame["started_ns"] = _taken(s_time, s_row)
    frame["ended_ns"] = _taken(e_time, e_row)
    frame["wait_ns"] = frame["started_ns"] - frame["queued_ns"]
    frame["run_ns"] = frame["ended_ns"] - frame["started_ns"]
    frame["queued_by"] = _taken(queue["common_pid"].to_numpy(), q_row).fillna(-1).astype("int64")
    frame["worker"] = _taken(s_worker, s_row).fillna(-1).astype("int64")
    frame["cpu"] = _taken(start["common_cpu"].to_numpy(), s_row).fillna(-1).astype("int64")
    frame["queue_row"], frame["start_row"] = q_row, s_row
    del has_s
    return frame


def _taken(values: np.ndarray, rows: np.ndarray) -> pd.Series:
    """Return ``values[rows]`` as nullable integers, NA for row -1."""
    if not values.size:
        return pd.Series(pd.array([pd.NA] * rows.size, dtype="Int64"))
    taken = pd.array(values[np.maximum(rows, 0)].astype(np.int64), dtype="Int64")
    taken[rows < 0] = pd.NA
    return pd.Series(taken)
