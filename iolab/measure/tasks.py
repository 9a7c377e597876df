# SPDX-License-Identifier: MIT
"""What tasks do over time: running, waiting for a CPU, asleep; on which CPU, woken by whom."""

from __future__ import annotations

import re
from typing import Any

import numba
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.trace.formats import preempted_bit
from iolab.trace.trace import Trace

__all__ = [
    "STATES",
    "intervals",
    "migrations",
    "occupancy",
    "preemptions",
    "slices",
    "time_in_state",
    "waits",
    "waits_by_pair",
]

# ``runnable``: woken or yielded, waits for a CPU; ``preempted``: put off its CPU while runnable.
STATES = ("running", "runnable", "preempted", "sleeping", "blocked", "stopped", "dead", "other")
_RUNNING, _RUNNABLE, _PREEMPTED, _SLEEPING, _BLOCKED, _STOPPED, _DEAD, _OTHER = range(8)
_LETTERS = {"S": _SLEEPING, "D": _BLOCKED, "T": _STOPPED, "t": _STOPPED, "X": _DEAD, "Z": _DEAD}

# common_flags of every event: the kernel's TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ.
_INTERRUPT = 0x08 | 0x10
_STATE = pd.CategoricalDtype(list(STATES))


def slices(trace: Trace) -> pd.DataFrame:
    """Return who ran where and when: one row a stay on a CPU, in order of its end.

    Columns: ``cpu``, ``pid``, ``comm``, ``start_ns``, ``end_ns``, ``state`` (what the task left
    the CPU in). The idle task is pid 0. Stays cut by the trace's edges are left out.

    Errors: MissingEventError without sched_switch.
    """
    trace.require("slices", "sched_switch")
    switch = trace.frame("sched_switch")
    order = np.argsort(switch["common_cpu"].to_numpy(), kind="stable")
    rows = switch.iloc[order]
    cpu = rows["common_cpu"].to_numpy()
    # Both ends of a stay must be there: the switch before on this CPU went to the same task.
    whole = (cpu[1:] == cpu[:-1]) & (
        rows["next_pid"].to_numpy()[:-1] == rows["prev_pid"].to_numpy()[1:]
    )
    ends = rows.iloc[1:][whole]
    frame = pd.DataFrame(
        {
            "cpu": ends["common_cpu"].to_numpy(),
            "pid": ends["prev_pid"].to_numpy(),
            "comm": ends["prev_comm"].array,
            "start_ns": rows["timestamp_ns"].to_numpy()[:-1][whole],
            "end_ns": ends["timestamp_ns"].to_numpy(),
            "state": pd.Categorical.from_codes(
                _left_in(trace, ends["prev_state"].to_numpy()),
                dtype=_STATE,
            ),
        }
    )
    return frame.sort_values("end_ns", kind="stable", ignore_index=True)


def occupancy(trace: Trace) -> pd.DataFrame:
    """Return how long each task ran on each CPU: ``cpu``, ``pid``, ``comm``, ``run_ns``, ``share``.

    ``share`` is of the time between the CPU's first and last switch. The idle task is pid 0.
    """
    ran = slices(trace)
    ran["run_ns"] = ran["end_ns"] - ran["start_ns"]
    span = ran.groupby("cpu").agg(first=("start_ns", "min"), last=("end_ns", "max"))
    frame = ran.groupby(["cpu", "pid", "comm"], observed=True)["run_ns"].sum().reset_index()
    whole = (span["last"] - span["first"]).reindex(frame["cpu"]).to_numpy()
    frame["share"] = frame["run_ns"] / whole
    return frame


def intervals(trace: Trace) -> pd.DataFrame:
    """Return what each task was in from when to when: one row an interval, in order of its end.

    Columns: ``pid``, ``comm`` (the name at the interval's last switch), ``state`` (of
    `STATES`), ``start_ns``, ``end_ns``, ``cpu`` (where it ran or was switched in at the end; -1
    for an interval that ends otherwise), ``waker`` (row of sched_waking that made it runnable; -1
    otherwise). Intervals open at the trace's edges are left out, and so is the idle task.

    Errors: MissingEventError without sched_switch and sched_waking.
    """
    trace.require("intervals", "sched_switch", "sched_waking")
    switch, waking = trace.frame("sched_switch"), trace.frame("sched_waking")
    count, woken = len(switch), len(waking)
    times = switch["timestamp_ns"].to_numpy()
    # In the order of equal times: out of the CPU, woken, into the CPU.
    time = np.concatenate([times, waking["timestamp_ns"].to_numpy(), times])
    pids = [switch["prev_pid"], waking["pid"], switch["next_pid"]]
    pid = np.concatenate([p.to_numpy() for p in pids]).astype(np.int64)
    kind = np.repeat(np.array([0, 1, 2], np.int8), [count, woken, count])
    row = np.concatenate([np.arange(count), np.arange(woken), np.arange(count)])
    order = np.argsort(time, kind="stable")
    dense, unique = pd.factorize(pid)
    cpu = switch["common_cpu"].to_numpy()
    left = _left_in(trace, switch["prev_state"].to_numpy()).astype(np.int8)
    made = _walk(time[order], dense[order], kind[order], row[order], left, cpu, unique.size)
    who, state, start, end, where, waker, last = (column[: made[0]] for column in made[1:])
    keep = unique[who] != 0
    who, state, start, end, where, waker, last = (
        column[keep] for column in (who, state, start, end, where, waker, last)
    )
    # An interval ends with a switch of its task (`last` is its row; negative: a switch in).
    codes = (
        np.where(
            last >= 0,
            switch["prev_comm"].cat.codes.to_numpy()[np.maximum(last, 0)],
            switch["next_comm"].cat.codes.to_numpy()[~np.minimum(last, -1)],
        )
        if count
        else np.empty(0, np.int8)
    )
    names = pd.CategoricalDtype(switch["prev_comm"].cat.categories)
    frame = pd.DataFrame(
        {
            "pid": unique[who],
            "comm": pd.Categorical.from_codes(codes, dtype=names),
            "state": pd.Categorical.from_codes(state, dtype=_STATE),
            "start_ns": start,
            "end_ns": end,
            "cpu": where,
            "waker": waker,
        }
    )
    return frame


def time_in_state(trace: Trace) -> pd.DataFrame:
    """Return nanoseconds in each state by task: index ``pid``, ``comm``; columns of `STATES`."""
    found = intervals(trace)
    found["ns"] = found["end_ns"] - found["start_ns"]
    return found.pivot_table(
        index=["pid", "comm"],
        columns="state",
        values="ns",
        aggfunc="sum",
        fill_value=0,
        observed=True,
    )


def waits(trace: Trace) -> pd.DataFrame:
    """Return every wait for a CPU after a wake-up, from sched_waking to the switch in.

    Columns: ``pid``, ``comm``, ``woken_ns``, ``in_ns``, ``wait_ns``, ``cpu``, ``waker_pid``,
    ``waker_comm`` and ``interrupt``: woken in a hard or soft interrupt, so that the waker is only
    whoever was interrupted. The name of a waker that never left a CPU in the trace is the saved
    one, or missing.

    Errors: MissingEventError without sched_switch and sched_waking.
    """
    found = intervals(trace)
    mine = found[(found["state"] == "runnable") & (found["waker"] >= 0)]
    waking = trace.frame("sched_waking").iloc[mine["waker"].to_numpy()]
    waker = waking["common_pid"].to_numpy()
    names = _names(trace)
    return pd.DataFrame(
        {
            "pid": mine["pid"].to_numpy(),
            "comm": mine["comm"].array,
            "woken_ns": mine["start_ns"].to_numpy(),
            "in_ns": mine["end_ns"].to_numpy(),
            "wait_ns": (mine["end_ns"] - mine["start_ns"]).to_numpy(),
            "cpu": mine["cpu"].to_numpy(),
            "waker_pid": waker,
            "waker_comm": pd.Categorical(pd.Series(waker).map(names)),
            "interrupt": (waking["common_flags"].to_numpy() & _INTERRUPT) != 0,
        }
    )


def waits_by_pair(trace: Trace, *, interrupts: bool = False) -> pd.DataFrame:
    """Return the waits of `waits` by (waker_comm, comm): count, sum, mean, median, p99, max (ns).

    Wake-ups from interrupts have no waker and are left out unless `interrupts`.
    """
    found = waits(trace)
    if not interrupts:
        found = found[~found["interrupt"]]
    grouped = found.groupby(["waker_comm", "comm"], observed=True)["wait_ns"]
    frame = grouped.agg(["count", "sum", "mean", "median", "max"])
    frame.insert(4, "p99", grouped.quantile(0.99))
    return frame.sort_values("sum", ascending=False)


def preemptions(trace: Trace) -> pd.DataFrame:
    """Return every time a task was put off its CPU while runnable (R+), until it ran again.

    Columns: ``pid``, ``comm``, ``start_ns``, ``end_ns``, ``wait_ns``, ``cpu`` (where it came
    back), ``by_pid``, ``by_comm`` (who took the CPU), ``ran_ns`` (how long it had run; NA where
    that began before the trace).

    Errors: MissingEventError without sched_switch and sched_waking.
    """
    found = intervals(trace)
    switch = trace.frame("sched_switch")
    mine = found[found["state"] == "preempted"]
    # The switch that began it: this task's switch out at the interval's start.
    keys = pd.MultiIndex.from_arrays([switch["prev_pid"], switch["timestamp_ns"]])
    keys = keys[~keys.duplicated()]
    first = np.flatnonzero(~switch.duplicated(["prev_pid", "timestamp_ns"]).to_numpy())
    at = first[keys.get_indexer(pd.MultiIndex.from_frame(mine[["pid", "start_ns"]]))]
    running = found[found["state"] == "running"].set_index(["pid", "end_ns"])["start_ns"]
    running = running[~running.index.duplicated()]
    began = running.reindex(pd.MultiIndex.from_frame(mine[["pid", "start_ns"]])).to_numpy()
    frame = mine[["pid", "comm", "start_ns", "end_ns", "cpu"]].reset_index(drop=True)
    frame.insert(4, "wait_ns", frame["end_ns"] - frame["start_ns"])
    frame["by_pid"] = switch["next_pid"].to_numpy()[at]
    frame["by_comm"] = switch["next_comm"].array[at]
    frame["ran_ns"] = (frame["start_ns"] - pd.Series(began).astype("Int64")).astype("Int64")
    return frame


def migrations(trace: Trace) -> pd.DataFrame:
    """Return every move of a task to another CPU and the time since its last one.

    Columns: ``timestamp_ns``, ``pid``, ``comm``, ``from_cpu``, ``to_cpu``, ``interval_ns`` (NA at
    the first).

    Errors: MissingEventError without sched_migrate_task.
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


def _left_in(trace: Trace, prev_state: NDArray[Any]) -> NDArray[np.int8]:
    """Return the code of the state a task left its CPU in, by the file's own print format."""
    event = trace.formats["sched_switch"]
    letters = re.findall(r'\{\s*(0x[0-9a-fA-F]+|\d+)\s*,\s*"(\w)"\s*\}', event.print_format)
    codes = np.full(prev_state.size, _OTHER, np.int8)
    for number, letter in letters or [("1", "S"), ("2", "D")]:
        codes[(prev_state & int(number, 0)) != 0] = _LETTERS.get(letter, _OTHER)
    codes[prev_state == 0] = _RUNNABLE
    bit = preempted_bit(event)
    if bit:
        codes[(prev_state & bit) != 0] = _PREEMPTED
    return codes


def _names(trace: Trace) -> dict[int, str]:
    """Return each task's name: as it last left a CPU, else as saved in the file."""
    switch = trace.frame("sched_switch")
    last = switch.drop_duplicates("prev_pid", keep="last")
    seen = zip(last["prev_pid"].tolist(), last["prev_comm"].tolist(), strict=True)
    return {**trace.comms, **dict(seen)}


@numba.njit(cache=True, nogil=True)
def _walk(time: Any, who: Any, kind: Any, row: Any, left: Any, cpu: Any, tasks: Any) -> Any:
    """Turn switches out (0), wake-ups (1) and switches in (2) of all tasks into intervals."""
    n = time.size
    a_who, a_state = np.empty(n, np.int64), np.empty(n, np.int8)
    a_start, a_end = np.empty(n, np.int64), np.empty(n, np.int64)
    a_cpu, a_waker, a_last = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
    state = np.full(tasks, -1, np.int8)
    since = np.zeros(tasks, np.int64)
    waker = np.full(tasks, -1, np.int64)
    # A wake-up ends an interval that a switch out began, which has the name.
    named = np.zeros(tasks, np.int64)
    count = 0
    for i in range(n):
        p = who[i]
        k = kind[i]
        r = row[i]
        now = state[p]
        if k == 1 and now in (0, 1, 2):
            continue  # awake already
        if k != 1:
            named[p] = r if k == 0 else -1 - r
        # A switch out of a task that was not in, or in of one that was: events are missing.
        fits = now >= 0 and (now == 0) == (k == 0)
        if fits and since[p] <= time[i]:
            a_who[count] = p
            a_state[count] = now
            a_start[count] = since[p]
            a_end[count] = time[i]
            a_cpu[count] = cpu[r] if k != 1 else -1
            a_waker[count] = waker[p]
            a_last[count] = named[p]
            count += 1
        waker[p] = -1
        since[p] = time[i]
        if k == 0:
            state[p] = left[r]
        elif k == 1:
            state[p] = 1
            waker[p] = r
        else:
            state[p] = 0
    return count, a_who, a_state, a_start, a_end, a_cpu, a_waker, a_last
