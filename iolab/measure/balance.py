# SPDX-License-Identifier: MIT
"""Attribute each migration of a task to the part of the scheduler that moved it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from iolab.measure.tasks import migrations
from tracedat import Trace

__all__ = ["CAUSES", "migration_causes"]

CAUSES: Final = ("wake-up placement", "active balance", "periodic balance", "newly idle balance")
# TRACE_FLAG_SOFTIRQ of common_flags, in include/linux/trace_events.h.
_SOFTIRQ: Final = 0x10


def migration_causes(trace: Trace) -> pd.DataFrame:
    """Return every migration with the part of the scheduler that caused it.

    The causes are told apart by where sched_migrate_task is emitted:

    - wake-up placement: between the task's sched_waking and sched_wakeup (``try_to_wake_up`` in
      kernel/sched/core.c)
    - active balance: by the stopper thread ``migration/N`` (``active_load_balance_cpu_stop`` in
      kernel/sched/fair.c)
    - periodic balance: in the scheduler's softirq, also on behalf of idle CPUs
      (``run_rebalance_domains`` in kernel/sched/fair.c, since 6.10 ``sched_balance_softirq``)
    - newly idle balance: everywhere else, which is a CPU about to become idle
      (``newidle_balance`` in kernel/sched/fair.c, since 6.10 ``sched_balance_newidle``)

    Parameters
    ----------
    trace : Trace
        Needs sched_migrate_task, sched_waking and sched_wakeup.

    Returns
    -------
    DataFrame
        The columns of `iolab.measure.migrations`, and

        - ``cause`` (category): one of `CAUSES`

    Raises
    ------
    MissingEventError
        If the trace lacks an event.

    Examples
    --------
    >>> from iolab.paths import REFERENCE
    >>> from tracedat import read
    >>> trace = read(REFERENCE / "traces" / "small_v7_mono.dat")
    >>> migration_causes(trace)["cause"].value_counts()
    cause
    wake-up placement     2072
    newly idle balance      17
    periodic balance        11
    active balance           1
    Name: count, dtype: int64
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
    """Return the time of each task's last event before its migration; -1 without one."""
    earlier = events[["timestamp_ns", "pid"]].rename(columns={"timestamp_ns": "at_ns"})
    joined = pd.merge_asof(
        moved[["timestamp_ns", "pid"]],
        earlier.assign(last_ns=earlier["at_ns"]),
        left_on="timestamp_ns",
        right_on="at_ns",
        by="pid",
    )
    return np.asarray(joined["last_ns"].fillna(-1).astype("int64"))
