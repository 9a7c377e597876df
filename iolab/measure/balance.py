# SPDX-License-Identifier: MIT
"""Why a task was moved to another CPU."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from iolab.measure.tasks import migrations
from iolab.trace import Trace

__all__ = ["CAUSES", "migration_causes"]

CAUSES: Final = ("wake-up placement", "active balance", "periodic balance", "newly idle balance")
# include/linux/trace_events.h: the event was written from a softirq.
_SOFTIRQ: Final = 0x10


def migration_causes(trace: Trace) -> pd.DataFrame:
    """Return `measure.migrations` with the path through the scheduler that moved the task.

    Column ``cause``, one of `CAUSES`: between a task's sched_waking and its sched_wakeup it is
    placed by the wake-up; the stopper thread (``migration/N``) does active balancing; the
    scheduler's softirq balances periodically, on behalf of idle CPUs too; what is left happens as a
    CPU is about to become idle.

    Errors: MissingEventError without sched_migrate_task, sched_waking and sched_wakeup.
    """
    trace.require("migration_causes", "sched_migrate_task", "sched_waking", "sched_wakeup")
    moved = trace.frame("sched_migrate_task")
    times = {
        name: _last_before(moved, trace.frame(name)) for name in ("sched_waking", "sched_wakeup")
    }
    placed = times["sched_waking"] > times["sched_wakeup"]
    emitter = moved["common_pid"].map(trace.comms).fillna("").astype(str)
    stopper = emitter.str.startswith("migration/").to_numpy()
    softirq = (moved["common_flags"].to_numpy() & _SOFTIRQ) != 0
    cause = np.select([placed, stopper, softirq], CAUSES[:3], CAUSES[3])
    return migrations(trace).assign(cause=pd.Categorical(cause, CAUSES))


def _last_before(moved: pd.DataFrame, events: pd.DataFrame) -> np.ndarray:
    """Return when each task had its last event before it was moved; -1 without one."""
    known = events[["timestamp_ns", "pid"]].rename(columns={"timestamp_ns": "at_ns"})
    found = pd.merge_asof(
        moved[["timestamp_ns", "pid"]],
        known.assign(seen_ns=known["at_ns"]),
        left_on="timestamp_ns",
        right_on="at_ns",
        by="pid",
    )
    return np.asarray(found["seen_ns"].fillna(-1).astype("int64"))
