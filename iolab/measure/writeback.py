# SPDX-License-Identifier: MIT
"""Measure flush workers: which task writes dirty pages back, when, and for how much CPU time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from iolab.measure.intervals import slices
from iolab.measure.join import first_after, unique_matches, values_at
from tracedat import Trace

__all__ = ["flushes", "max_overlap"]


def flushes(trace: Trace) -> pd.DataFrame:
    """Return every period in which a task wrote dirty pages back.

    A period lasts from writeback_start to the same task's next writeback_written (``wb_writeback``
    in fs/fs-writeback.c). A period that is cut by an edge of the trace begins or ends there.

    Parameters
    ----------
    trace : Trace
        Needs sched_switch, writeback_start and writeback_written.

    Returns
    -------
    DataFrame
        One row for each period, in order of its start.

        - ``pid`` (int64): the task
        - ``start_ns``, ``end_ns`` (int64, ns): the period
        - ``run_ns`` (int64, ns): time that the task was on a CPU, without stays that the edges
          of the trace cut

    Raises
    ------
    MissingEventError
        If the trace lacks an event.
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
    """Return the largest number of periods that overlap at one time.

    Parameters
    ----------
    periods : DataFrame
        Columns ``start_ns`` and ``end_ns``; a period that ends when another begins does not
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
