# SPDX-License-Identifier: MIT
"""Idle gaps: a device that does nothing although its I/O scheduler holds a request for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.measure.join import first_after, last_before, unique_matches
from iolab.trace.trace import Trace

__all__ = ["busy_time", "idle_gaps"]

Times = NDArray[np.int64]

_COLUMNS = {
    "dev": "int64",
    "start_ns": "int64",
    "length_ns": "int64",
    "owner": "str",
    "previous": "str",
}


def idle_gaps(trace: Trace, *, shortest_ns: int = 0) -> pd.DataFrame:
    """Return when a device had nothing in flight while a request waited in its scheduler.

    Gaps of at least `shortest_ns`, in order of their start. Columns: ``dev`` (the kernel's number),
    ``start_ns``, ``length_ns``, ``owner`` (name of the task that inserted the request that waits
    the longest) and ``previous`` (of the task whose request was completed last before; empty where
    the trace does not show it).

    Requests are followed by device and sector from insert to issue to completion. Where the
    scheduler is "none" nearly all are issued at once and never inserted: no gaps, by construction.
    What cannot be followed never makes a gap: a request that is not issued under the sector of its
    insert (merged, or the trace ends) does not wait, one whose issue or completion is not in the
    trace is in flight from its beginning or to its end.

    Errors: MissingEventError without block_rq_insert, block_rq_issue and block_rq_complete.
    """
    names = ("block_rq_insert", "block_rq_issue", "block_rq_complete")
    trace.require("idle_gaps", *names)
    insert, issue, complete = (trace.frame(name) for name in names)
    found = [
        _of_device(
            insert[insert["dev"] == dev],
            issue[issue["dev"] == dev],
            complete[complete["dev"] == dev],
            trace.span,
        ).assign(dev=dev)
        for dev in np.unique(insert["dev"].to_numpy())
    ]
    if not found:
        return pd.DataFrame(columns=list(_COLUMNS)).astype(_COLUMNS)
    gaps = pd.concat(found, ignore_index=True)[list(_COLUMNS)].astype(_COLUMNS)
    gaps = gaps[gaps["length_ns"] >= shortest_ns]
    return gaps.sort_values("start_ns", kind="stable", ignore_index=True)


def busy_time(trace: Trace) -> pd.Series:
    """Return for how long each device had a request in flight (ns); the index is ``dev``.

    Errors: MissingEventError without block_rq_issue and block_rq_complete.
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
    # In the order of their inserts.
    waited = waited[np.argsort(rows[waited], kind="stable")]
    names = insert["comm"].astype("str").to_numpy()[rows[waited]]
    since, until = inserted_at[rows[waited]], issued_at[waited]
    begin, end, completed = _flights(issue, complete, span)

    at, waiting = _count(since, until, other=(begin, end))
    _, flying = _count(begin, end, other=(since, until))
    alone = np.concatenate([[0], (waiting > 0) & (flying == 0), [0]])
    edges = np.diff(alone)
    start, stop = at[np.flatnonzero(edges[:-1] == 1)], at[np.flatnonzero(edges == -1)]

    # Of all that wait at a time the first inserted one is the first that is issued later.
    oldest = np.searchsorted(np.maximum.accumulate(until), start, side="right")
    issuers = issue["comm"].astype("str").to_numpy().astype(object)
    issuers[waited] = names
    # One element more: what was completed before the first completion has no owner.
    whose = np.full(len(complete) + 1, "", dtype=object)
    whose[completed[completed >= 0]] = issuers[completed >= 0]
    last = np.searchsorted(complete["timestamp_ns"].to_numpy(), start, side="right") - 1
    return pd.DataFrame(
        {
            "start_ns": start,
            "length_ns": stop - start,
            "owner": names[oldest],
            "previous": whose[last],
        }
    )


def _flights(
    issue: pd.DataFrame, complete: pd.DataFrame, span: tuple[int, int]
) -> tuple[Times, Times, Times]:
    """Return when requests were in flight (from, to), and each issue's completion (row, or -1).

    After the issues' come those of which only the completion is in the trace.
    """
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
    """Return all the times at which anything changes, and how many intervals hold from each on."""
    times = np.unique(np.concatenate([begin, end, *other]))
    change = np.zeros(times.size, np.int64)
    np.add.at(change, np.searchsorted(times, begin), 1)
    np.add.at(change, np.searchsorted(times, end), -1)
    return times, np.cumsum(change)
