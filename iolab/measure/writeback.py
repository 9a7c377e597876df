# SPDX-License-Identifier: MIT
"""Flush workers: who writes dirty pages back, when, and how much CPU time it takes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from iolab.measure.join import first_after, unique_matches
from iolab.measure.tasks import slices
from iolab.trace.trace import Trace

__all__ = ["flushes", "most_at_once"]


def flushes(trace: Trace) -> pd.DataFrame:
    """Return every stretch in which a task wrote dirty pages back, in order of its begin.

    Columns: ``pid``, ``start_ns``, ``end_ns`` (writeback_start to the task's next
    writeback_written), ``run_ns`` (how long of it the task was on a CPU). A stretch may be longer
    than a short trace: one that the trace's edge cuts begins or ends there. Of stays on a CPU
    those cut by the edges are left out.

    Errors: MissingEventError without sched_switch, writeback_start and writeback_written.
    """
    trace.require("flushes", "sched_switch", "writeback_start", "writeback_written")
    start, written = trace.frame("writeback_start"), trace.frame("writeback_written")
    begins, ends = start["timestamp_ns"].to_numpy(), written["timestamp_ns"].to_numpy()
    who, whose = start["common_pid"].to_numpy(), written["common_pid"].to_numpy()
    ended = unique_matches(first_after(ends, begins, (whose,), (who,)), keep_last=True)
    # Begun before the trace: a task's first end, if no begin of its own stands before it.
    begun = np.setdiff1d(np.unique(whose, return_index=True)[1], ended)
    first, last = trace.span
    if ends.size:
        until = np.where(ended >= 0, ends[np.maximum(ended, 0)], last)
    else:
        until = np.full(begins.size, last)
    frame = pd.DataFrame(
        {
            "pid": np.concatenate([whose[begun], who]),
            "start_ns": np.concatenate([np.full(begun.size, first), begins]),
            "end_ns": np.concatenate([ends[begun], until]),
        }
    ).astype("int64")
    frame = frame.sort_values("start_ns", kind="stable", ignore_index=True)
    frame["run_ns"] = 0
    stays = slices(trace)
    for pid, mine in frame.groupby("pid"):
        ran = stays[stays["pid"] == pid].sort_values("start_ns")
        if ran.empty:
            continue
        # The time on a CPU so far is a line through the ends of the stays.
        length = (ran["end_ns"] - ran["start_ns"]).to_numpy()
        after = np.cumsum(length)
        at = np.ravel(ran[["start_ns", "end_ns"]].to_numpy())
        so_far = np.ravel(np.column_stack([after - length, after]))
        spent = np.interp(mine["end_ns"], at, so_far) - np.interp(mine["start_ns"], at, so_far)
        frame.loc[mine.index, "run_ns"] = np.rint(spent).astype(np.int64)
    return frame


def most_at_once(stretches: pd.DataFrame) -> int:
    """Return how many of the stretches (``start_ns``, ``end_ns``) overlap at most."""
    begins, ends = stretches["start_ns"].to_numpy(), stretches["end_ns"].to_numpy()
    step = np.repeat([1, -1], [begins.size, ends.size])
    # One that ends when another begins does not overlap it: -1 comes before 1.
    order = np.lexsort((step, np.concatenate([begins, ends])))
    return int(step[order].cumsum().max(initial=0))
