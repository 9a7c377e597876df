# SPDX-License-Identifier: MIT
"""Follow each I/O through the kernel, from the block layer until its submitter runs again.

The path is that of direct writes that complete in a workqueue (``iomap_dio_complete_work`` in
fs/iomap/direct-io.c, on the workqueue ``dio/DEVICE``)::

    start ─queue─ issue ─device─ complete ─defer─ queued ─worker wait─ worker in
          ─dispatch─ executed ─work─ done ─gather─ woken ─submitter wait─ switched in

If the work of an I/O wakes the submitter, the I/O is done at the wake-up. The next I/Os of a batch
find the submitter awake and are done when their work ends. If the submitter still sleeps then,
because it waits for more I/Os, they gather until it is woken. Each point is an event of the trace,
so the segments of an I/O add up exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.measure.join import first_after, last_before, unique_matches, values_at
from iolab_base.errors import CannotRunError, UserError
from tracedat import Trace

Rows = NDArray[np.int64]

# Points of the path in order; a segment lies between two of them.
_POINTS = (
    *("start_ns", "issue_ns", "complete_ns", "queued_ns", "worker_in_ns", "executed_ns"),
    *("done_ns", "woken_ns", "in_ns"),
)
SEGMENTS = (
    *("queue_ns", "device_ns", "defer_ns", "worker_wait_ns", "dispatch_ns", "work_ns"),
    *("gather_ns", "submitter_wait_ns"),
)
REASONS = (
    "",
    "not completed in the trace",
    "completion queued no work",
    "work was not executed in the trace",
    "worker's switch in is not in the trace",
    "work's end is not in the trace",
    "submitter was not switched in in the trace",
)
_REASON = pd.CategoricalDtype(list(REASONS))
# The first event of a request, the best one first. The block layer measures its latency from
# block_io_start (blk_account_io_start in block/blk-mq.c).
_STARTS = ("block_io_start", "block_getrq", "block_bio_queue")
_NEEDED = (
    *("block_rq_issue", "block_rq_complete", "workqueue_queue_work"),
    *("workqueue_execute_start", "workqueue_execute_end", "sched_switch", "sched_waking"),
)


@dataclass(frozen=True)
class IoPath:
    """The result of `io_path`.

    Attributes
    ----------
    ios : DataFrame
        One row for each issued I/O, in order of its issue.

        - ``dev`` (uint32), ``sector`` (uint64), ``nr_sector`` (uint32), ``rwbs`` (category): the
          fields of block_rq_issue
        - ``submitter``, ``worker`` (int64): pids; -1 if not in the trace
        - ``woke`` (bool): its work woke the submitter
        - ``start_ns``, ``issue_ns``, ``complete_ns``, ``queued_ns``, ``worker_in_ns``,
          ``executed_ns``, ``done_ns``, ``woken_ns``, ``in_ns`` (Int64, ns): the points of the
          path; NA behind its end
        - `SEGMENTS` (Int64, ns): the segments between them
        - ``block_ns`` (Int64, ns): latency of the block layer, start to completion
        - ``total_ns`` (int64, ns): start to the last point of the path
        - ``reason`` (category): one of `REASONS`, why the path ends early; empty for a whole path
    orphans : int
        Number of completions whose issue is not in the trace.
    """

    ios: pd.DataFrame
    orphans: int

    @property
    def whole(self) -> pd.DataFrame:
        """The I/Os with a whole path: the rows of `ios` without a reason."""
        return self.ios[self.ios["reason"] == ""]

    @property
    def unjoined(self) -> pd.Series:
        """Number of the other I/Os (int64) by reason, orphans included."""
        counts = self.ios.loc[self.ios["reason"] != "", "reason"].value_counts()
        numbers = {str(reason): int(n) for reason, n in counts.items() if n}
        if self.orphans:
            numbers["completed, issued before the trace"] = self.orphans
        return pd.Series(numbers, dtype="int64", name="ios")

    def breakdown(self) -> pd.DataFrame:
        """Summarise the segments of whole paths.

        One row for each of `SEGMENTS`.

        - ``count`` (int64): number of I/Os
        - ``mean``, ``median``, ``p99`` (float64, ns): length
        - ``share`` (float64): part of the time of all segments
        """
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
    """Join every block I/O with the events that follow from it.

    A request and its completion are joined on device and sector. The completion's work is the
    first one queued on its CPU by the same interrupted task before the CPU's next completion.
    The submitter is the task that the work woke, if it submits I/O in this trace; else the task
    that submitted the I/O.

    Parameters
    ----------
    trace : Trace
        Needs block_rq_issue, block_rq_complete, workqueue_queue_work, workqueue_execute_start,
        workqueue_execute_end, sched_switch and sched_waking. The start is that of block_io_start,
        block_getrq or block_bio_queue, if recorded.
    workqueue : str, optional
        Regular expression for the whole name of the workqueue that completes I/Os, such as
        ``dio/.*``; None takes the first work queued by the completion.
    dev : int, optional
        The kernel's number of the device to follow; None means all.
    rwbs : str, optional
        Regular expression for the whole ``rwbs`` of the I/Os to follow; None means all.

    Raises
    ------
    MissingEventError
        If the trace lacks an event.
    CannotRunError
        If `workqueue` is given and the kernel does not record the workqueue's name.
    """
    trace.require("io_path", *_NEEDED)
    issue = _filtered(trace.frame("block_rq_issue"), dev, rwbs)
    complete = _filtered(trace.frame("block_rq_complete"), dev, rwbs)
    i_time, c_time = _column(issue, "timestamp_ns"), _column(complete, "timestamp_ns")
    i_keys, c_keys = ((_column(f, "dev"), _column(f, "sector")) for f in (issue, complete))
    # Each completion takes the last issue before it: a requeued request is issued again.
    taken = unique_matches(last_before(i_time, c_time, i_keys, c_keys))
    done = np.full(len(issue), -1, np.int64)
    done[taken[taken >= 0]] = np.flatnonzero(taken >= 0)
    start, submitter = _starts(trace, issue)
    path = _Path(len(issue), submitter)
    path.reach("start_ns", start, np.arange(len(issue)), 0)
    path.reach("issue_ns", i_time, np.arange(len(issue)), 0)
    path.reach("complete_ns", c_time, done, 1)
    _follow_work(trace, complete, done, workqueue, path)
    return IoPath(path.frame(issue), int((taken < 0).sum()))


class _Path:
    """The points of all I/Os, joined one point after the other."""

    def __init__(self, count: int, submitter: Rows) -> None:
        self.points: dict[str, Rows] = {}
        self.submitter = submitter
        self.worker = np.full(count, -1, np.int64)
        self.reason = np.zeros(count, np.int64)
        self.reached = np.zeros(count, np.int64)
        self.alive = np.ones(count, bool)
        self.woke = np.zeros(count, bool)

    def reach(self, name: str, times: Rows, rows: Rows, why: int) -> Rows:
        """Set a point of each I/O still followed; row -1 ends the path with the reason `why`."""
        rows = np.where(self.alive, rows, -1)
        self.reason[self.alive & (rows < 0)] = why
        self.alive = rows >= 0
        self.reached[self.alive] += 1
        self.points[name] = values_at(times, rows)
        return rows

    def frame(self, issue: pd.DataFrame) -> pd.DataFrame:
        """Return the frame of `IoPath`."""
        # One frame of all columns: pandas takes half a millisecond to insert one into a frame.
        columns: dict[str, Any] = {
            name: issue[name].array.copy() for name in ("dev", "sector", "nr_sector", "rwbs")
        }
        columns |= {"submitter": self.submitter, "worker": self.worker, "woke": self.woke}
        last = self.points["start_ns"]
        for number, name in enumerate(_POINTS):
            known = self.reached > number
            last = np.where(known, self.points[name], last)
            columns[name] = pd.arrays.IntegerArray(self.points[name], ~known)
        for segment, one, other in zip(SEGMENTS, _POINTS, _POINTS[1:], strict=False):
            columns[segment] = columns[other] - columns[one]
        columns["block_ns"] = columns["complete_ns"] - columns["start_ns"]
        columns["total_ns"] = last - self.points["start_ns"]
        columns["reason"] = pd.Categorical.from_codes(self.reason.astype(np.int8), dtype=_REASON)
        return pd.DataFrame(columns, copy=False)


def _starts(trace: Trace, issue: pd.DataFrame) -> tuple[Rows, Rows]:
    """Return each request's start in the block layer and its submitter's pid."""
    i_time, submitter = _column(issue, "timestamp_ns"), _column(issue, "common_pid")
    name = next((name for name in _STARTS if trace.events.get(name)), None)
    if name is None:
        return i_time, submitter
    start = trace.frame(name)
    s_time = _column(start, "timestamp_ns")
    s_keys, i_keys = ((_column(f, "dev"), _column(f, "sector")) for f in (start, issue))
    rows = unique_matches(last_before(s_time, i_time, s_keys, i_keys))
    # A merged or split request has no start of its own: it begins at the issue.
    started = rows >= 0
    return (
        np.where(started, values_at(s_time, rows), i_time),
        np.where(started, values_at(_column(start, "common_pid"), rows), submitter),
    )


def _follow_work(
    trace: Trace, complete: pd.DataFrame, done: Rows, workqueue: str | None, path: _Path
) -> None:
    """Follow completions (`done` are their rows) through their work to the submitter."""
    queue = _queueings(trace, workqueue)
    q_time = _column(queue, "timestamp_ns")
    of_complete = _queued_by(trace.frame("block_rq_complete"), queue)
    q = path.reach(
        "queued_ns", q_time, values_at(of_complete, values_at(complete.index.to_numpy(), done)), 2
    )

    start, end = trace.frame("workqueue_execute_start"), trace.frame("workqueue_execute_end")
    switch, waking = trace.frame("sched_switch"), trace.frame("sched_waking")
    s_time, s_pid = _column(start, "timestamp_ns"), _column(start, "common_pid")
    s_work = _column(start, "work")
    s_of_q = first_after(s_time, q_time, (s_work,), (_column(queue, "work"),))
    s = np.where(path.alive, values_at(unique_matches(s_of_q, keep_last=True), q), -1)
    path.worker[:] = np.where(s >= 0, values_at(s_pid, s), -1)
    w_time, w_next = _column(switch, "timestamp_ns"), _column(switch, "next_pid")
    w = values_at(last_before(w_time, s_time, (w_next,), (s_pid,)), s)
    # The worker's switch in is found through the execution, which comes later in the path.
    path.reason[path.alive & (s < 0)] = 3
    path.alive &= s >= 0
    w = path.reach("worker_in_ns", w_time, w, 4)
    # A worker that was on its CPU already did not wait.
    path.points["worker_in_ns"] = np.maximum(path.points["worker_in_ns"], path.points["queued_ns"])
    s = path.reach("executed_ns", s_time, s, 3)

    e_time = _column(end, "timestamp_ns")
    e_keys = (_column(end, "work"), _column(end, "common_pid"))
    e = values_at(first_after(e_time, s_time, e_keys, (s_work, s_pid)), s)
    wakes = waking[np.isin(_column(waking, "pid"), path.submitter)]
    k_time, k_pid = _column(wakes, "timestamp_ns"), _column(wakes, "pid")
    k = values_at(first_after(k_time, s_time, (_column(wakes, "common_pid"),), (s_pid,)), s)
    ended = np.where(e >= 0, values_at(e_time, e), np.iinfo(np.int64).max)
    path.woke = path.alive & (k >= 0) & (values_at(k_time, k) <= ended)
    path.submitter = np.where(path.woke, values_at(k_pid, k), path.submitter)
    done = np.where(path.woke, values_at(k_time, k), ended)
    path.reach("done_ns", done, np.where(path.woke | (e >= 0), np.arange(e.size), -1), 5)
    _follow_submitter(switch, k_time, k_pid, path)


def _follow_submitter(switch: pd.DataFrame, k_time: Rows, k_pid: Rows, path: _Path) -> None:
    """Follow the I/Os whose work is done until their submitter runs."""
    done, submitter = path.points["done_ns"], (path.submitter,)
    w_time, w_next = _column(switch, "timestamp_ns"), (_column(switch, "next_pid"),)
    last_in = _unordered(last_before, w_time, done, w_next, submitter)
    last_out = _unordered(last_before, w_time, done, (_column(switch, "prev_pid"),), submitter)
    # Switched in after its last switch out: it runs, and sees the finished I/O at once.
    runs = (last_in >= 0) & (last_in >= last_out)
    n = _unordered(first_after, w_time, done, w_next, submitter)
    in_time = np.where(runs, done, values_at(w_time, n))
    # The wake-up before this switch in: before the I/O was done, or while it gathered.
    k = _unordered(last_before, k_time, in_time, (k_pid,), submitter)
    woken = np.where(runs | (k < 0), done, np.maximum(done, values_at(k_time, k)))
    rows = np.where(runs | (n >= 0), np.arange(n.size), -1)
    path.reach("woken_ns", woken, rows, 6)
    path.reach("in_ns", in_time, rows, 6)


def _unordered(
    join: Callable[..., Rows],
    times: Rows,
    at: Rows,
    keys: tuple[Rows, ...],
    at_keys: tuple[Rows, ...],
) -> Rows:
    """Apply a join to times `at` in any order."""
    order = np.argsort(at, kind="stable")
    rows = np.empty(at.size, np.int64)
    rows[order] = join(times, at[order], keys, tuple(k[order] for k in at_keys))
    return rows


def _queueings(trace: Trace, workqueue: str | None) -> pd.DataFrame:
    """Return the queued work items, only those of one workqueue if it is given."""
    queue = trace.frame("workqueue_queue_work")
    if workqueue is None or not len(queue):
        return queue
    # The field was a pointer before it was a string: include/trace/events/workqueue.h.
    if "workqueue" not in queue or not isinstance(queue["workqueue"].dtype, pd.CategoricalDtype):
        raise CannotRunError(
            f"{trace.path}: this kernel records no names of workqueues; measure without workqueue="
        )
    matches = whole_matches(queue["workqueue"].cat.categories, workqueue)
    return queue[matches[queue["workqueue"].cat.codes.to_numpy()]]


def _queued_by(complete: pd.DataFrame, queue: pd.DataFrame) -> Rows:
    """Return the first work that each completion's context queued before the next completion."""
    before = last_before(
        _column(complete, "timestamp_ns"),
        _column(queue, "timestamp_ns"),
        (_column(complete, "common_cpu"),),
        (_column(queue, "common_cpu"),),
    )
    same = values_at(_column(complete, "common_pid"), before) == _column(queue, "common_pid")
    before = unique_matches(np.where(same, before, -1))
    rows = np.full(len(complete), -1, np.int64)
    rows[before[before >= 0]] = np.flatnonzero(before >= 0)
    return rows


def _filtered(frame: pd.DataFrame, dev: int | None, rwbs: str | None) -> pd.DataFrame:
    """Return the frame's rows for a device and a kind of I/O, with their old index."""
    keep = np.ones(len(frame), bool)
    if dev is not None:
        keep &= _column(frame, "dev") == dev
    if rwbs is not None:
        keep &= whole_matches(frame["rwbs"].cat.categories, rwbs)[frame["rwbs"].cat.codes]
    return frame[keep]


def whole_matches(names: pd.Index, pattern: str) -> NDArray[np.bool_]:
    """Return which names a regular expression matches as a whole; UserError if it is invalid."""
    try:
        # The kernel allows any character in a comm.
        compiled = re.compile(pattern, re.DOTALL)
    except (re.error, TypeError) as error:
        raise UserError(f"{pattern!r} is not a regular expression: {error}") from error
    return np.array([compiled.fullmatch(str(name)) is not None for name in names], dtype=bool)


def _column(frame: pd.DataFrame, name: str) -> NDArray[Any]:
    return frame[name].to_numpy().astype(np.int64, copy=False)
