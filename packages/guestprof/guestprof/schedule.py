# SPDX-License-Identifier: MIT
"""Who wakes and who preempts whom, from calls that the observer recorded.

A tracepoint costs the guest hundreds of instructions per hit, and can tip the balance that it
shows. Recorded calls cost it none, so this is the chain of the very cell that was measured.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from guestprof.profile import NO_PID
from iolab_base.errors import UserError

_ENTER, _SWITCH, _WAKE = "__schedule", "__switch_to", "try_to_wake_up"
SWITCH_CALLS: Final = (_ENTER, _SWITCH, _WAKE)
_INTERRUPT: Final = "[interrupt]"
# SM_PREEMPT of kernel/sched/core.c; before b4bfa3fcfe3b the argument is a bool.
_PREEMPT: Final = 1
_LOW_BYTE: Final = 0xFF


def switches(calls: pd.DataFrame) -> pd.DataFrame:
    """Return every switch of tasks of an observed cell.

    `calls` are recorded calls of the functions in `SWITCH_CALLS`, as `Comparison.calls` returns
    them. One row for each switch, in order of time.

    - ``at_ns`` (int64): virtual time
    - ``cpu``: CPU
    - ``prev``, ``prev_pid``, ``next``, ``next_pid``: the task that stops, and the one that runs
      from then on
    - ``preempted`` (bool): whether the one that stops was preempted, not asleep
    - ``waker``, ``waker_pid``: the task that woke the next one, "[interrupt]" and 0 if an
      interrupt did; "" and -1 if it was runnable all the time, or first seen here
    - ``wait_ns`` (float64, ns): from that wake-up to the switch; NaN without one

    Raises UserError if calls of a function were not recorded, or without stacks (``flat``).
    """
    if missing := _missing(calls):
        raise UserError(
            f"no calls of {', '.join(missing)} were recorded: observe the cell with "
            f"{' '.join(f'--calls {name}' for name in SWITCH_CALLS)}"
        )
    if "interrupt" not in calls:
        raise UserError(
            "these calls do not show what an interrupt does: observe the cell without --flat"
        )
    frame = calls.sort_values("at_ns", kind="stable")
    found = frame[frame["function"] == _SWITCH].rename(
        columns={"task": "prev", "pid": "prev_pid", "other": "next", "other_pid": "next_pid"}
    )
    found = found[["at_ns", "cpu", "prev", "prev_pid", "next", "next_pid"]]
    entered = frame.loc[frame["function"] == _ENTER, ["at_ns", "cpu", "arg0"]]
    entered["preempted"] = (entered.pop("arg0") & _LOW_BYTE) == _PREEMPT
    found = pd.merge_asof(found, entered, on="at_ns", by="cpu")
    # A cell may begin between the two calls.
    found["preempted"] = found["preempted"].eq(True)
    return _with_wakers(found, frame[frame["function"] == _WAKE])


def tell_switches(calls: pd.DataFrame) -> bool:
    """Return whether `switches` can be made from these calls."""
    return not _missing(calls) and "interrupt" in calls


def _missing(calls: pd.DataFrame) -> list[str]:
    recorded = set(calls["function"])
    return [name for name in SWITCH_CALLS if name not in recorded]


def _with_wakers(found: pd.DataFrame, wakes: pd.DataFrame) -> pd.DataFrame:
    """Add the waker of the next task: the first one since it went to sleep."""
    slept = found.loc[found["prev_pid"] > 0, ["at_ns", "prev_pid", "preempted"]]
    slept = slept.rename(columns={"prev_pid": "next_pid", "preempted": "was_preempted"})
    woken = wakes.rename(columns={"task": "waker", "pid": "waker_pid", "other_pid": "next_pid"})
    woken = woken.assign(
        waker=woken["waker"].mask(woken["interrupt"], _INTERRUPT),
        waker_pid=woken["waker_pid"].mask(woken["interrupt"], 0),
        woken_ns=woken["at_ns"],
    )[["at_ns", "waker", "waker_pid", "next_pid", "woken_ns"]]
    slept = pd.merge_asof(slept, woken, on="at_ns", by="next_pid", direction="forward")
    found = pd.merge_asof(found, slept, on="at_ns", by="next_pid", allow_exact_matches=False)
    asleep = found["was_preempted"].eq(False) & (found["woken_ns"] < found["at_ns"])
    found["waker"] = found["waker"].where(asleep, "")
    found["waker_pid"] = found["waker_pid"].where(asleep, NO_PID).astype(np.int64)
    found["wait_ns"] = (found["at_ns"] - found["woken_ns"]).where(asleep)
    return found.drop(columns=["was_preempted", "woken_ns"])


def switch_chain(found: pd.DataFrame, ios: int | None = None) -> pd.DataFrame:
    """Count who wakes and who preempts whom in what `switches` found, by falling count.

    The columns are ``task``, ``does`` ("wakes", "preempts", "follows", which is to run when the
    other one went to sleep), ``other``, ``count``, ``per_io`` (only with `ios`, the I/Os that the
    device completed meanwhile: `Profile.ios`), and ``wait_ns``, the mean time from a wake-up until
    the woken task ran.
    """
    woken = found[found["waker_pid"] != NO_PID]
    preempts = found["preempted"]
    parts = [
        _counted(woken, "waker", "wakes", "next"),
        _counted(found[preempts], "next", "preempts", "prev"),
        _counted(found[~preempts], "next", "follows", "prev"),
    ]
    chain = pd.concat(parts).sort_values("count", ascending=False, kind="stable", ignore_index=True)
    chain.loc[chain["does"] != "wakes", "wait_ns"] = np.nan
    if ios is None:
        return chain
    chain["per_io"] = chain["count"] / ios
    return chain[["task", "does", "other", "count", "per_io", "wait_ns"]]


def _counted(rows: pd.DataFrame, task: str, does: str, other: str) -> pd.DataFrame:
    by = rows.groupby([task, other], sort=True, as_index=False)
    counted = by.agg(count=("at_ns", "size"), wait_ns=("wait_ns", "mean"))
    counted = counted.rename(columns={task: "task", other: "other"})
    counted.insert(1, "does", does)
    return counted
