# SPDX-License-Identifier: MIT
"""What a trace shows about the place of the effect: work functions, who preempts whom."""

from __future__ import annotations

import numpy as np
import pandas as pd

from iolab.measure.tasks import preemptions
from iolab.measure.workers import work_items
from tracedat import Trace, TraceError

_WORK = ("workqueue_queue_work", "workqueue_execute_start", "workqueue_execute_end")
_FEW = 0.01


def trace_words(trace: Trace) -> list[str]:
    """Return sentences about a treated cell's trace; none if its events show nothing."""
    words = []
    items = _items(trace)
    if items is not None:
        words += _functions(items)
    if _has(trace, "sched_switch", "sched_waking"):
        words += _preempted(trace, items)
    return words


def _has(trace: Trace, *events: str) -> bool:
    return all(trace.events.get(event) for event in events)


def _items(trace: Trace) -> pd.DataFrame | None:
    if not _has(trace, *_WORK):
        return None
    try:
        items = work_items(trace)
    except TraceError:
        return None
    return items.dropna(subset=["started_ns", "ended_ns"]).sort_values("started_ns")


def _functions(items: pd.DataFrame) -> list[str]:
    counts = items["function_name"].value_counts()
    if counts.empty or not str(counts.index[0]):
        return []
    return [f"{counts.iloc[0]} of {len(items)} work items run {counts.index[0]}()."]


def _preempted(trace: Trace, items: pd.DataFrame | None) -> list[str]:
    """Return sentences on how often the job preempts kworkers, and whether within a work item."""
    all_of_it = preemptions(trace)
    worker = all_of_it["comm"].astype("str").str.startswith("kworker/")
    job = all_of_it["by_comm"].isin(["fio", "dd"])
    found = all_of_it[worker & job]
    if len(found) < max(1.0, _FEW * len(all_of_it)):
        return []
    who = str(found["by_comm"].astype("str").mode().iloc[0])
    words = [f"{who} preempts the kworker (prev_state=R+) {len(found)} times."]
    if items is None or items.empty:
        return words
    begun = items["started_ns"].to_numpy(dtype=np.int64)
    ended = items["ended_ns"].to_numpy(dtype=np.int64)
    left = found["start_ns"].to_numpy(dtype=np.int64)
    last = np.searchsorted(begun, left, side="right") - 1
    known = last >= 0
    inside = int((ended[last[known]] > left[known]).sum())
    if inside:
        return [*words, f"{inside} of them are inside a work item."]
    gap_ns = float(np.median(left[known] - ended[last[known]]))
    return [
        *words,
        f"None of them is inside a work item: the kworker is preempted {gap_ns / 1000:.1f} us "
        "(median) after one has ended, before the next begins.",
    ]
