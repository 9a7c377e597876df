# SPDX-License-Identifier: MIT
"""One I/O's path through the kernel, from the block layer to its submitter running again.

For direct writes that complete in a workqueue (iomap's ``iomap_dio_complete_work``)::

    start ─queue─ issue ─device─ complete ─defer─ queued ─worker wait─ worker in
          ─dispatch─ executed ─work─ woken ─submitter wait─ switched in

Each arrow is a pair of events of the trace, so the segments of an I/O add up exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.measure.join import first_after, last_before, unique_matches
from iolab.trace.trace import Trace

__all__ = ["REASONS", "SEGMENTS", "IoPath", "io_path"]

Rows = NDArray[np.int64]

# Points of the path in order; a segment lies between two of them.
_POINTS = (
    "start_ns",
    "issue_ns",
    "complete_ns",
    "queued_ns",
    "worker_in_ns",
    "executed_ns",
    "woken_ns",
    "in_ns",
)
SEGMENTS = (
    "queue_ns",
    "device_ns",
    "defer_ns",
    "worker_wait_ns",
    "dispatch_ns",
    "work_ns",
    "submitter_wait_ns",
)
REASONS = (
    "",
    "not completed in the trace",
    "completion queued no work",
    "work was not executed in the trace",
    "worker's switch in is not in the trace",
    "work woke nobody who submits I/O here",
    "submitter was not switched in in the trace",
)
_REASON = pd.CategoricalDtype(list(REASONS))
# Where a request is first seen, best first: the block layer's account begins there.
_STARTS = ("block_io_start", "block_getrq", "block_bio_queue")
_NEEDED = (
    "block_rq_issue",
    "block_rq_complete",
    "workqueue_queue_work",
    "workqueue_execute_start",
    "workqueue_execute_end",
    "sched_switch",
    "sched_waking",
)


@dataclass(frozen=True)
class IoPath:
    """What `io_path` finds.

    Attributes
    ----------
    ios
        A frame, one row an issued I/O in order of its issue: ``dev``, ``sector``, ``nr_sector``,
        ``rwbs``, ``submitter``, ``worker`` (pids; -1 for unknown), the points ``start_ns`` …
        ``in_ns``, `SEGMENTS`, ``block_ns`` (the block layer's own latency, start to completion),
        ``total_ns`` (start to the last point that was joined) and ``reason``: why the path ends
        early, empty for whole ones. What was not joined is NA.
    orphans
        Completions in the trace whose issue is not.
    """

    ios: pd.DataFrame
    orphans: int

    @property
    def whole(self) -> pd.DataFrame:
        """The I/Os whose path was joined to its end."""
        return self.ios[self.ios["reason"] == ""]

    @property
    def unjoined(self) -> pd.Series:
        """Number of I/Os by the reason why their path ends early; orphans among them."""
        counts = self.ios.loc[self.ios["reason"] != "", "reason"].value_counts()
        found = {str(reason): int(n) for reason, n in counts.items() if n}
        if self.orphans:
            found["completed, issued before the trace"] = self.orphans
        return pd.Series(found, dtype="int64", name="ios")

    def breakdown(self) -> pd.DataFrame:
        """Return count, mean, median, p99 and share of the total of each segment of whole I/Os."""
        parts = self.whole[list(SEGMENTS)].astype("int64")
        frame = pd.DataFrame(
            {
                "count": parts.count(),
                "mean": parts.mean(),
                "median": parts.median(),
                "p99": parts.quantile(0.99),
            }
        )
        frame["share"] = parts.sum() / max(int(parts.to_numpy().sum()), 1)
        return frame


def io_path(
    trace: Trace, *, workqueue: str | None = None, dev: int | None = None, rwbs: str | None = None
) -> IoPath:
    """Join every block I/O of a trace with what followed from it.

    Parameters
    ----------
    trace
        A trace with the block, workqueue and sched events that the error names.
    workqueue
        A pattern (regular expression) for the name of the workqueue that completions are deferred
        to, such as ``dio/.*``; None takes the first work queued by the completion.
    dev, rwbs
        Only I/Os of this device (the kernel's number), only of a kind: a pattern for ``rwbs``.

    A request and its completion are joined on device and sector. The completion's work is the
    first one queued on its CPU by the same interrupted task before the CPU's next completion.
    The submitter is whom the work woke, if that task submits I/O in this trace.

    Errors: MissingEventError naming the missing events.
    """
    trace.require("io_path", *_NEEDED)
    issue = _filtered(trace.frame("block_rq_issue"), dev, rwbs)
    complete = _filtered(trace.frame("block_rq_complete"), dev, rwbs)
    i_time = _column(issue, "timestamp_ns")
    i_keys = (_column(issue, "dev"), _column(issue, "sector"))
    c_time = _column(complete, "timestamp_ns")
    c_keys = (_column(complete, "dev"), _column(complete, "sector"))
    # Each completion takes the last issue before it; a requeued request is issued again.
    taken = unique_matches(last_before(i_time, c_time, i_keys, c_keys))
    done = np.full(len(issue), -1, np.int64)
    done[taken[taken >= 0]] = np.flatnonzero(taken >= 0)
    points: dict[str, NDArray[np.int64]] = {"issue_ns": i_time}
    starts = next((name for name in _STARTS if trace.events.get(name)), None)
    submitter = _column(issue, "common_pid")
    if starts is None:
        points["start_ns"] = i_time
    else:
        start = trace.frame(starts)
        keys = (_column(start, "dev"), _column(start, "sector"))
        first = last_before(_column(start, "timestamp_ns"), i_time, keys, i_keys)
        first = unique_matches(first)
        # Without its own start (a merged or split request) the account begins at the issue.
        points["start_ns"] = np.where(first >= 0, _at(start, "timestamp_ns", first), i_time)
        submitter = np.where(first >= 0, _at(start, "common_pid", first), submitter)
    points["complete_ns"] = _at(complete, "timestamp_ns", done)
    reason = np.where(done >= 0, 0, 1)
    worker = np.full(len(issue), -1, np.int64)
    alive = done >= 0
    _follow(trace, complete, done, alive, workqueue, points, reason, worker, submitter)
    return _result(issue, points, reason, submitter, worker, int((taken < 0).sum()))


def _follow(
    trace: Trace,
    complete: pd.DataFrame,
    done: Rows,
    alive: NDArray[np.bool_],
    workqueue: str | None,
    points: dict[str, NDArray[np.int64]],
    reason: NDArray[np.int64],
    worker: Rows,
    submitter: Rows,
) -> None:
    """Follow completions through their work to the submitter; fills the last four arguments."""

    def lose(gone: NDArray[np.bool_], why: int) -> None:
        reason[alive & gone] = why
        alive[gone] = False

    queue = trace.frame("workqueue_queue_work")
    if workqueue is not None and "workqueue" in queue:
        names = queue["workqueue"].cat.categories
        if isinstance(names.dtype, pd.StringDtype):
            fits = names.str.fullmatch(workqueue).astype(bool)
            queue = queue[np.asarray(fits)[queue["workqueue"].cat.codes.to_numpy()]]
    # The queueing of each completion: the last completion of its context before it.
    q_time = _column(queue, "timestamp_ns")
    context = ("common_cpu", "common_pid")
    everything = trace.frame("block_rq_complete")
    all_time = _column(everything, "timestamp_ns")
    before = last_before(
        all_time,
        q_time,
        (_column(everything, "common_cpu"),),
        (_column(queue, "common_cpu"),),
    )
    same = (before >= 0) & (_at(everything, context[1], before) == _column(queue, context[1]))
    before = unique_matches(np.where(same, before, -1))
    of_complete = np.full(len(everything), -1, np.int64)
    of_complete[before[before >= 0]] = np.flatnonzero(before >= 0)
    rows = complete.index.to_numpy()
    q = np.where(alive, of_complete[rows[np.maximum(done, 0)]] if len(rows) else -1, -1)
    points["queued_ns"] = _at(queue, "timestamp_ns", q)
    lose(q < 0, 2)

    start, end = trace.frame("workqueue_execute_start"), trace.frame("workqueue_execute_end")
    s_time = _column(start, "timestamp_ns")
    s_of_q = first_after(s_time, q_time, (_column(start, "work"),), (_column(queue, "work"),))
    s_of_q = unique_matches(s_of_q, keep_last=True)
    s = np.where(q >= 0, s_of_q[np.maximum(q, 0)] if len(queue) else -1, -1)
    points["executed_ns"] = _at(start, "timestamp_ns", s)
    lose(s < 0, 3)
    s_pid = _column(start, "common_pid")
    worker[:] = np.where(s >= 0, _at(start, "common_pid", s), -1)

    switch = trace.frame("sched_switch")
    w_time, w_next = _column(switch, "timestamp_ns"), _column(switch, "next_pid")
    in_of_s = last_before(w_time, s_time, (w_next,), (s_pid,))
    w = np.where(s >= 0, in_of_s[np.maximum(s, 0)] if len(start) else -1, -1)
    # A worker that was on its CPU already waited for nothing.
    points["worker_in_ns"] = np.maximum(_at(switch, "timestamp_ns", w), points["queued_ns"])
    lose(w < 0, 4)

    e_time = _column(end, "timestamp_ns")
    e_keys = (_column(end, "work"), _column(end, "common_pid"))
    e_of_s = first_after(e_time, s_time, e_keys, (_column(start, "work"), s_pid))
    waking = trace.frame("sched_waking")
    wakes = waking[np.isin(_column(waking, "pid"), np.unique(submitter))]
    k_time = _column(wakes, "timestamp_ns")
    k_of_s = first_after(k_time, s_time, (_column(wakes, "common_pid"),), (s_pid,))
    ended = np.where(e_of_s >= 0, _at(end, "timestamp_ns", e_of_s), np.iinfo(np.int64).max)
    k_of_s = np.where((k_of_s >= 0) & (_at(wakes, "timestamp_ns", k_of_s) <= ended), k_of_s, -1)
    k = np.where(s >= 0, k_of_s[np.maximum(s, 0)] if len(start) else -1, -1)
    points["woken_ns"] = _at(wakes, "timestamp_ns", k)
    lose(k < 0, 5)
    submitter[alive] = _at(wakes, "pid", k)[alive]

    n_of_k = first_after(w_time, k_time, (w_next,), (_column(wakes, "pid"),))
    n = np.where(k >= 0, n_of_k[np.maximum(k, 0)] if len(wakes) else -1, -1)
    points["in_ns"] = _at(switch, "timestamp_ns", n)
    lose(n < 0, 6)


def _result(
    issue: pd.DataFrame,
    points: dict[str, NDArray[np.int64]],
    reason: NDArray[np.int64],
    submitter: Rows,
    worker: Rows,
    orphans: int,
) -> IoPath:
    frame = issue[["dev", "sector", "nr_sector", "rwbs"]].reset_index(drop=True)
    frame["submitter"], frame["worker"] = submitter, worker
    # The path is joined up to the point before the reason's; later ones are not its.
    joined = np.array([len(_POINTS), 2, 3, 4, 4, 6, 7])[reason]
    last = points["issue_ns"].copy()
    for number, name in enumerate(_POINTS):
        known = joined > number
        last = np.where(known, points[name], last)
        frame[name] = pd.arrays.IntegerArray(points[name].copy(), ~known)
    for segment, one, other in zip(SEGMENTS, _POINTS, _POINTS[1:], strict=False):
        frame[segment] = frame[other] - frame[one]
    frame["block_ns"] = frame["complete_ns"] - frame["start_ns"]
    frame["total_ns"] = last - points["start_ns"]
    frame["reason"] = pd.Categorical.from_codes(reason.astype(np.int8), dtype=_REASON)
    return IoPath(frame, orphans)


def _filtered(frame: pd.DataFrame, dev: int | None, rwbs: str | None) -> pd.DataFrame:
    """Return the frame's rows for a device and a kind; their index says where they were."""
    keep = np.ones(len(frame), bool)
    if dev is not None:
        keep &= _column(frame, "dev") == dev
    if rwbs is not None:
        kinds = frame["rwbs"].cat.categories.str.fullmatch(rwbs).astype(bool)
        keep &= np.asarray(kinds)[frame["rwbs"].cat.codes.to_numpy()]
    return frame[keep]


def _column(frame: pd.DataFrame, name: str) -> NDArray[Any]:
    return frame[name].to_numpy().astype(np.int64)


def _at(frame: pd.DataFrame, name: str, rows: Rows) -> NDArray[np.int64]:
    """Return a column's values at rows; whatever stands there for row -1, to be masked."""
    if not len(frame):
        return np.zeros(rows.size, np.int64)
    return _column(frame, name)[np.maximum(rows, 0)]
