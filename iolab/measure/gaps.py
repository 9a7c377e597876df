# SPDX-License-Identifier: MIT
"""Idle gaps: a device has nothing in flight while its I/O scheduler holds a request for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.measure.join import first_after, last_before, unique_matches
from tracedat import Trace

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

    Parameters
    ----------
    trace : Trace
        Needs block_rq_insert, block_rq_issue and block_rq_complete.
    shortest_ns : int
        Drop shorter gaps; nanoseconds.

    Returns
    -------
    DataFrame
        One row for each gap, in order of its start.

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

    Parameters
    ----------
    trace : Trace
        Needs block_rq_issue and block_rq_complete.

    Returns
    -------
    Series
        ``busy_ns`` (int64, ns) by ``dev``, the kernel's device number.
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
