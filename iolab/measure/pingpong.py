# SPDX-License-Identifier: MIT
"""Two tasks that take turns on a CPU: how often, how long, how much of it an I/O costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from iolab.errors import UserError
from iolab.trace.trace import Trace

__all__ = ["PingPong", "ping_pong"]


@dataclass(frozen=True)
class PingPong:
    """What `ping_pong` finds.

    Attributes
    ----------
    switches
        Switches from one of the pair straight to the other.
    ios
        Completed block I/Os in the trace; None if block_rq_complete was not recorded.
    runs
        A frame of uninterrupted alternations on one CPU (two switches or more): ``cpu``,
        ``start_ns``, ``end_ns``, ``switches``.
    span_ns
        Time between the first and the last switch of the trace.
    """

    switches: int
    ios: int | None
    runs: pd.DataFrame
    span_ns: int

    @property
    def switches_per_io(self) -> float:
        """Switches of the pair for one completed I/O; NaN without I/Os."""
        return self.switches / self.ios if self.ios else float("nan")

    @property
    def share(self) -> float:
        """Part of the span that a CPU spent in runs of alternation; more than 1 on several CPUs."""
        if not self.span_ns:
            return float("nan")
        return float((self.runs["end_ns"] - self.runs["start_ns"]).sum()) / self.span_ns


def ping_pong(trace: Trace, one: str, other: str) -> PingPong:
    """Return how two tasks alternate; each is a pattern (regular expression) for task names.

    Errors: MissingEventError without sched_switch; UserError if a pattern fits no task or a task
    fits both.
    """
    trace.require("ping_pong", "sched_switch")
    switch = trace.frame("sched_switch")
    names = switch["prev_comm"].cat.categories
    first, second = (names.str.fullmatch(pattern) for pattern in (one, other))
    for pattern, fits in ((one, first), (other, second)):
        if not fits.any():
            raise UserError(f"no task of {trace.path} is called {pattern!r}")
    if (first & second).any():
        raise UserError(f"{one!r} and {other!r} both fit {names[first & second][0]!r}")
    side = np.where(first, 1, np.where(second, 2, 0))
    order = np.argsort(switch["common_cpu"].to_numpy(), kind="stable")
    cpu = switch["common_cpu"].to_numpy()[order]
    time = switch["timestamp_ns"].to_numpy()[order]
    before = side[switch["prev_comm"].cat.codes.to_numpy()[order]]
    after = side[switch["next_comm"].cat.codes.to_numpy()[order]]
    turn = before + after == 3
    turn &= before * after == 2
    # A run goes on while each switch on the CPU is a turn.
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
    span = int(time.max() - time.min()) if time.size else 0
    return PingPong(int(turn.sum()), ios, runs, span)
