# SPDX-License-Identifier: MIT
"""Measure tasks: time in each state, waits for a CPU, preemptions, migrations and their causes."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from iolab.measure.intervals import intervals, slices, wake_event
from iolab.measure.join import first_equal, last_before, values_at
from tracedat import MissingEventError, Trace

# TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ of common_flags, in include/linux/trace_events.h.
_SOFTIRQ: Final = 0x10
_INTERRUPT: Final = 0x08 | _SOFTIRQ


def occupancy(trace: Trace) -> pd.DataFrame:
    """Return how long each task ran on each CPU.

    The trace needs sched_switch. One row for each task and CPU.

    - ``cpu`` (int16): CPU
    - ``pid`` (int32): the task; 0 is the idle task
    - ``comm`` (category): its name
    - ``run_ns`` (int64, ns): time on the CPU
    - ``share`` (float64): part of the time between the CPU's first and last switch

    Examples
    --------
    >>> from iolab.paths import REFERENCE
    >>> from tracedat import read
    >>> trace = read(REFERENCE / "traces" / "small_v7_mono.dat")
    >>> busiest = occupancy(trace).nlargest(3, "run_ns")
    >>> busiest[["cpu", "comm", "run_ns", "share"]].round(2)
        cpu          comm     run_ns  share
    0     0     swapper/0  766853919   0.59
    8     0  kworker/u8:3  179214133   0.14
    10    0           fio  141243089   0.11
    """
    ran = slices(trace)
    ran["run_ns"] = ran["end_ns"] - ran["start_ns"]
    span = ran.groupby("cpu").agg(first=("start_ns", "min"), last=("end_ns", "max"))
    frame = ran.groupby(["cpu", "pid", "comm"], observed=True)["run_ns"].sum().reset_index()
    whole = (span["last"] - span["first"]).reindex(frame["cpu"]).to_numpy()
    frame["share"] = frame["run_ns"] / whole
    return frame


def time_in_state(trace: Trace) -> pd.DataFrame:
    """Return the time of each task in each state.

    The trace needs what `iolab.measure.intervals` needs. The index is ``pid``, ``comm``; each of
    `iolab.measure.intervals.STATES` that occurs has an int64 column of nanoseconds.
    """
    states = intervals(trace)
    states["ns"] = states["end_ns"] - states["start_ns"]
    return states.pivot_table(
        index=["pid", "comm"],
        columns="state",
        values="ns",
        aggfunc="sum",
        fill_value=0,
        observed=True,
    )


def waits(trace: Trace) -> pd.DataFrame:
    """Return every wait for a CPU after a wake-up, from there to the switch in.

    The trace needs sched_switch and wake-ups: sched_waking, or instead of it sched_wakeup. That
    comes a little later, and a wake-up through another CPU's queue (``ttwu_queue_wakelist`` in
    kernel/sched/core.c) has an interrupt or the idle task there as its waker. One row for each
    wait, in order of its end.

    - ``pid`` (int64): the task that was woken
    - ``comm`` (category): its name
    - ``woken_ns``, ``in_ns``, ``wait_ns`` (int64, ns): wake-up, switch in, their difference
    - ``cpu`` (int32): CPU on which it was switched in
    - ``waker_pid`` (int32): the task that ran when it was woken
    - ``waker_comm`` (category): its name; missing if the trace does not have it
    - ``interrupt`` (bool): woken in a hard or soft interrupt, which interrupted the waker, or
      by another CPU's queue

    Raises MissingEventError if sched_switch is missing, or no wake-up was recorded or read.
    """
    trace.require("waits", "sched_switch")
    if trace.events["sched_switch"] and not wake_event(trace):
        problem = (
            "waits needs wake-ups, and this trace has none: record and read sched_waking "
            "(trace-cmd record -e sched_switch -e sched_waking)"
        )
        raise MissingEventError(trace.path, problem)
    return waits_after_wakes(trace)


def waits_after_wakes(trace: Trace) -> pd.DataFrame:
    """Return the rows of `waits`; none for a trace without wake-ups."""
    states = intervals(trace)
    woken = states[(states["state"] == "runnable") & (states["waker"] >= 0)]
    by = wake_event(trace) or "sched_switch"
    waking = trace.frame(by).iloc[woken["waker"].to_numpy()]
    waker = waking["common_pid"].to_numpy()
    interrupt = (waking["common_flags"].to_numpy() & _INTERRUPT) != 0
    if by == "sched_wakeup":
        interrupt |= waker == 0
    return pd.DataFrame(
        {
            "pid": woken["pid"].to_numpy(),
            "comm": woken["comm"].array,
            "woken_ns": woken["start_ns"].to_numpy(),
            "in_ns": woken["end_ns"].to_numpy(),
            "wait_ns": (woken["end_ns"] - woken["start_ns"]).to_numpy(),
            "cpu": woken["cpu"].to_numpy(),
            "waker_pid": waker,
            "waker_comm": pd.Categorical(pd.Series(waker).map(_names(trace))),
            "interrupt": interrupt,
        }
    )


def waits_by_pair(trace: Trace, *, interrupts: bool = False) -> pd.DataFrame:
    """Summarise the waits of `waits` by waker and woken task.

    With `interrupts`, wake-ups from interrupts are included; their waker is the interrupted task.
    The index is ``waker_comm``, ``comm``; the largest sum comes first.

    - ``count`` (int64): number of waits
    - ``sum``, ``max`` (int64, ns): wait
    - ``mean``, ``median``, ``p99`` (float64, ns): wait

    Examples
    --------
    >>> from iolab.paths import REFERENCE
    >>> from tracedat import read
    >>> trace = read(REFERENCE / "traces" / "small_v7_mono.dat")
    >>> waits_by_pair(trace)["median"].head(2).to_dict()
    {('fio', 'kworker/u8:3'): 33230.0, ('kworker/1:2', 'fio'): 26451.0}
    """
    frame = waits(trace)
    if not interrupts:
        frame = frame[~frame["interrupt"]]
    grouped = frame.groupby(["waker_comm", "comm"], observed=True)["wait_ns"]
    frame = grouped.agg(["count", "sum", "mean", "median", "max"])
    frame.insert(4, "p99", grouped.quantile(0.99))
    return frame.sort_values("sum", ascending=False)


def preemptions(trace: Trace) -> pd.DataFrame:
    """Return every preemption: a runnable task is switched out (``R+``) until it runs again.

    The trace needs sched_switch. One row for each preemption, in order of its end.

    - ``pid`` (int64): the preempted task
    - ``comm`` (category): its name
    - ``start_ns``, ``end_ns``, ``wait_ns`` (int64, ns): switch out, switch in, difference
    - ``cpu`` (int32): CPU on which it was switched in again
    - ``by_pid`` (int32), ``by_comm`` (category): the task that took the CPU
    - ``ran_ns`` (Int64, ns): time on the CPU before; NA if it began before the trace
    """
    states = intervals(trace)
    switch = trace.frame("sched_switch")
    preempted = states[states["state"] == "preempted"]
    begins = (preempted["pid"].to_numpy(), preempted["start_ns"].to_numpy())
    # Each begins with the task's switch out at that time.
    at = first_equal((switch["prev_pid"].to_numpy(), switch["timestamp_ns"].to_numpy()), begins)
    running = states[states["state"] == "running"]
    ran = first_equal((running["pid"].to_numpy(), running["end_ns"].to_numpy()), begins)
    began = np.where(ran >= 0, running["start_ns"].to_numpy()[ran] if len(running) else 0, 0)
    frame = preempted[["pid", "comm", "start_ns", "end_ns", "cpu"]].reset_index(drop=True)
    frame.insert(4, "wait_ns", frame["end_ns"] - frame["start_ns"])
    frame["by_pid"] = switch["next_pid"].to_numpy()[at]
    frame["by_comm"] = switch["next_comm"].array[at]
    frame["ran_ns"] = pd.arrays.IntegerArray(begins[1] - began, ran < 0)
    return frame


def migrations(trace: Trace) -> pd.DataFrame:
    """Return every migration of a task to another CPU.

    The trace needs sched_migrate_task. One row for each migration, in order of time.

    - ``timestamp_ns`` (int64, ns): time
    - ``pid`` (int32): the task
    - ``comm`` (category): its name
    - ``from_cpu``, ``to_cpu`` (int32): the CPUs
    - ``interval_ns`` (Int64, ns): time since its previous migration; NA for its first
    """
    trace.require("migrations", "sched_migrate_task")
    moved = trace.frame("sched_migrate_task")
    return pd.DataFrame(
        {
            "timestamp_ns": moved["timestamp_ns"],
            "pid": moved["pid"],
            "comm": moved["comm"],
            "from_cpu": moved["orig_cpu"],
            "to_cpu": moved["dest_cpu"],
            "interval_ns": moved.groupby("pid")["timestamp_ns"].diff().astype("Int64"),
        }
    )


def _names(trace: Trace) -> dict[int, str]:
    """Return each task's name, at its last switch out, else the saved one."""
    last = trace.frame("sched_switch").drop_duplicates("prev_pid", keep="last")
    recorded = zip(last["prev_pid"].tolist(), last["prev_comm"].tolist(), strict=True)
    return {**trace.comms, **dict(recorded)}


CAUSES: Final = ("wake-up placement", "active balance", "periodic balance", "newly idle balance")


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

    The trace needs sched_migrate_task, sched_waking and sched_wakeup. The columns are those of
    `iolab.measure.migrations`, and ``cause`` (category), one of `CAUSES`.

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
    waking, wakeup = (
        _last_before(moved, trace.frame(name)) for name in ("sched_waking", "sched_wakeup")
    )
    placed = waking > wakeup
    # A trace may name none of them.
    emitter = moved["common_pid"].map(lambda pid: trace.comms.get(pid, "")).astype(str)
    stopper = emitter.str.startswith("migration/").to_numpy()
    softirq = (moved["common_flags"].to_numpy() & _SOFTIRQ) != 0
    cause = np.select([placed, stopper, softirq], CAUSES[:3], CAUSES[3])
    return migrations(trace).assign(cause=pd.Categorical(cause, CAUSES))


def _last_before(moved: pd.DataFrame, events: pd.DataFrame) -> np.ndarray:
    """Return the time of each task's last event before its migration; -1 without one."""
    times, pids = (events[name].to_numpy() for name in ("timestamp_ns", "pid"))
    at, of = (moved[name].to_numpy() for name in ("timestamp_ns", "pid"))
    return values_at(times, last_before(times, at, (pids,), (of,)))
