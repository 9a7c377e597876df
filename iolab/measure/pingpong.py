# SPDX-License-Identifier: MIT
"""Count how often two tasks take turns on a CPU: in runs, per I/O, and per clump of completions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iolab.measure.intervals import slices
from iolab.measure.io_path import io_path, whole_matches
from iolab.measure.tasks import preemptions, waits
from iolab_base.errors import IolabError, UserError
from tracedat import Trace

# Half of the shortest timer tick (HZ=1000).
_APART_NS = 500_000


@dataclass(frozen=True)
class PingPong:
    """The result of `ping_pong`.

    Attributes
    ----------
    switches : int
        Direct switches between the two tasks.
    ios : int or None
        Completed block I/Os in the trace; None without block_rq_complete.
    runs : DataFrame
        Uninterrupted alternations of two switches or more on one CPU, in order of their start.

        - ``cpu`` (int16): CPU
        - ``start_ns``, ``end_ns`` (int64, ns): first and last switch
        - ``switches`` (int64): number of switches
    span_ns : int
        Time between the first and the last switch of the trace, in nanoseconds.
    """

    switches: int
    ios: int | None
    runs: pd.DataFrame
    span_ns: int

    @property
    def switches_per_io(self) -> float:
        """Switches between the two tasks per completed I/O; NaN without I/Os."""
        return self.switches / self.ios if self.ios else float("nan")

    @property
    def share(self) -> float:
        """Time in runs over the span; more than 1 if several CPUs alternate at the same time."""
        if not self.span_ns:
            return float("nan")
        return float((self.runs["end_ns"] - self.runs["start_ns"]).sum()) / self.span_ns


def ping_pong(trace: Trace, one: str, other: str) -> PingPong:
    """Measure the alternation of two tasks.

    The trace needs sched_switch; block_rq_complete counts I/Os. `one` and `other` are regular
    expressions for the whole names of the tasks.

    Examples
    --------
    >>> from iolab.paths import REFERENCE
    >>> from tracedat import read
    >>> trace = read(REFERENCE / "traces" / "small_v7_mono.dat")
    >>> pair = ping_pong(trace, "fio", "kworker/1:2")
    >>> pair.switches, len(pair.runs), round(pair.share, 3)
    (1497, 87, 0.004)
    """
    trace.require("ping_pong", "sched_switch")
    switch = trace.frame("sched_switch")
    order = np.argsort(switch["common_cpu"].to_numpy(), kind="stable")
    cpu = switch["common_cpu"].to_numpy()[order]
    time = switch["timestamp_ns"].to_numpy()[order]
    turn = _turns(trace, switch, one, other)[order]
    # A run lasts while each switch on the CPU is a turn.
    fresh = turn & np.concatenate([[True], ~turn[:-1] | (cpu[1:] != cpu[:-1])])
    run = np.cumsum(fresh)[turn]
    turns = pd.DataFrame({"run": run, "cpu": cpu[turn], "time": time[turn]})
    runs = turns.groupby("run").agg(
        cpu=("cpu", "first"),
        start_ns=("time", "min"),
        end_ns=("time", "max"),
        switches=("time", "size"),
    )
    runs = runs[runs["switches"] > 1].sort_values("start_ns").reset_index(drop=True)
    ios = trace.events.get("block_rq_complete")
    return PingPong(int(turn.sum()), ios, runs, int(time.max() - time.min()) if time.size else 0)


def turns_by_clump(trace: Trace, one: str, other: str) -> pd.DataFrame:
    """Count the switches between two tasks after each clump of completions.

    A clump is what a device completes at once, such as null_blk at a timer tick: completions less
    than 0.5 ms apart. It lasts until the next one begins. The first and the last clump of a trace
    are cut off by its ends and left out.

    The trace needs sched_switch and block_rq_complete; the tasks are those of `ping_pong`. One row
    for each clump, in order of time.

    - ``start_ns`` (int64, ns): its first completion
    - ``ios`` (int64): completions
    - ``switches`` (int64): switches between the two tasks on all CPUs
    - ``switches_per_io`` (float64): the one over the other

    Examples
    --------
    >>> from iolab.paths import REFERENCE
    >>> from tracedat import read
    >>> trace = read(REFERENCE / "dio_kworker" / "traces" / "6389f18c4c730da9-c042.dat")
    >>> clumps = turns_by_clump(trace, "fio", "kworker/.*")
    >>> clumps["switches_per_io"].describe()[["count", "min", "max"]].round(2).tolist()
    [70.0, 1.93, 2.03]
    """
    trace.require("turns_by_clump", "sched_switch", "block_rq_complete")
    switch = trace.frame("sched_switch")
    turns = switch["timestamp_ns"].to_numpy()[_turns(trace, switch, one, other)]
    completed = trace.frame("block_rq_complete")["timestamp_ns"].to_numpy()
    first = np.diff(completed, prepend=completed[:1] - 2 * _APART_NS) > _APART_NS
    start = completed[first][1:]
    ios, switches = (np.diff(np.searchsorted(times, start)) for times in (completed, turns))
    return pd.DataFrame(
        {
            "start_ns": start[:-1],
            "ios": ios.astype(np.int64),
            "switches": switches.astype(np.int64),
            "switches_per_io": switches / ios,
        }
    )


def costs_of_completion(trace: Trace, task: str) -> dict[str, float]:
    """Return what the writes of a task cost that kworkers complete and it preempts, per I/O."""
    # The kworker wakes the task, which preempts it and sleeps again: ``slept_again`` is the share
    # of such stays, ``stay_median_ns`` their length, ``path_..._ns`` the mean segments of the path.
    path = io_path(trace, rwbs="W.*")
    ios = trace.events["block_rq_complete"]
    if not ios:
        raise IolabError("no request was completed in it (a device without requests: zram?)")
    woken = waits(trace)
    woken = woken[(woken["comm"] == task) & woken["waker_comm"].str.startswith("kworker/")]
    put_off = preemptions(trace)
    put_off = put_off[(put_off["by_comm"] == task) & put_off["comm"].str.startswith("kworker/")]
    stays = slices(trace)
    stays = stays[(stays["comm"] == task) & stays["start_ns"].isin(put_off["start_ns"])]
    # Some kernels complete overwrites without a worker.
    names = trace.frame("sched_switch")["prev_comm"].cat.categories
    turns = ping_pong(trace, task, "kworker/.*") if names.str.startswith("kworker/").any() else None
    asleep = stays["state"].isin(["sleeping", "blocked"])
    return {
        "ios_traced": float(ios),
        "wakeups_per_io": len(woken) / ios,
        "preemptions_per_io": len(put_off) / ios,
        "turns_per_io": turns.switches_per_io if turns else 0.0,
        "turns_share": turns.share if turns else 0.0,
        "slept_again": float(asleep.mean()) if len(stays) else float("nan"),
        "stay_median_ns": float((stays["end_ns"] - stays["start_ns"]).median()),
        "ios_whole": float(len(path.whole)),
        "ios_unjoined": float(path.unjoined.sum()),
        **{f"path_{name}": float(mean) for name, mean in path.breakdown()["mean"].items()},
    }


def _turns(trace: Trace, switch: pd.DataFrame, one: str, other: str) -> NDArray[np.bool_]:
    """Return which switches are directly between the two tasks."""
    side = _sides(trace, switch["prev_comm"].cat.categories, one, other)
    before, after = (side[switch[name].cat.codes.to_numpy()] for name in ("prev_comm", "next_comm"))
    return np.asarray(before + after == 3)


def _sides(trace: Trace, names: pd.Index, one: str, other: str) -> NDArray[np.int64]:
    """Return 1 for each name that matches `one`, 2 for `other`, else 0."""
    first, second = (whole_matches(names, pattern) for pattern in (one, other))
    for pattern, matches in ((one, first), (other, second)):
        if not matches.any():
            raise UserError(f"no task of {trace.path} matches {pattern!r}")
    if (first & second).any():
        raise UserError(f"{one!r} and {other!r} both match {names[first & second][0]!r}")
    return np.where(first, 1, np.where(second, 2, 0))
