# SPDX-License-Identifier: MIT
"""Export recorded calls to Perfetto: by task, as counters, and as a schedule."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from iolab_base.errors import UserError
from iolab_base.files import write_output

# The counters have a value for each of these intervals.
_COUNTER_NS: Final = 1_000_000
_SEQUENCE: Final = 1
_ARGUMENTS: Final = ("arg0", "arg1", "arg2")
# TASK_RUNNING and TASK_INTERRUPTIBLE of include/linux/sched.h: the calls show no other state.
_RUNNABLE, _ASLEEP = 0, 1


def write_calls(
    path: Path | str, events: pd.DataFrame, switches: pd.DataFrame | None = None
) -> int:
    """Write recorded calls as a protobuf file for ui.perfetto.dev.

    Each call is an instant on the track of its task, with its CPU and arguments. Each function has
    a counter with its number of calls in each millisecond. Switches become kernel events, from
    which Perfetto draws CPUs, the states of tasks, and who woke whom. Times are the guest's.

    `events` are as `iolab.store.profiles.ProfileStore.events` returns them, `switches` as
    `guestprof.switches` does. Returns the number of calls. Raises UserError if there is none.
    """
    if events.empty:
        raise UserError("no call was recorded in this cell: Perfetto has nothing to show")
    packets = [*_tasks(events), *_counters(events)]
    if switches is not None:
        packets += _schedule(switches)
    write_output(Path(path), protos.Trace(packet=packets).SerializeToString())
    return len(events)


def _packet(at_ns: int, **event: object) -> protos.TracePacket:
    return protos.TracePacket(
        timestamp=at_ns, trusted_packet_sequence_id=_SEQUENCE, track_event=event
    )


def _tasks(events: pd.DataFrame) -> Iterator[protos.TracePacket]:
    kind = protos.TrackEvent.TYPE_INSTANT
    for number, ((task, pid), calls) in enumerate(events.groupby(["task", "pid"], sort=True), 1):
        yield protos.TracePacket(track_descriptor={"uuid": number, "name": f"{task} {pid}"})
        for call in calls.to_dict("records"):
            notes = [{"name": "cpu", "uint_value": int(call["cpu"])}]
            notes += [{"name": n, "pointer_value": int(call[n])} for n in _ARGUMENTS]
            name = str(call["function"])
            yield _packet(
                int(call["at_ns"]),
                type=kind,
                track_uuid=number,
                name=name,
                debug_annotations=notes,
            )


def _schedule(switches: pd.DataFrame) -> Iterator[protos.TracePacket]:
    for cpu, rows in switches.groupby("cpu", sort=True):
        kernel = [event for row in rows.to_dict("records") for event in _kernel_events(row)]
        kernel.sort(key=lambda event: event.timestamp)
        yield protos.TracePacket(ftrace_events={"cpu": int(str(cpu)), "event": kernel})


def _kernel_events(row: Mapping[Hashable, Any]) -> Iterator[protos.FtraceEvent]:
    """Yield a switch, and the wake-up before it, on the CPU of the switch."""
    at_ns, following = int(row["at_ns"]), int(row["next_pid"])
    if row["waker_pid"] >= 0:
        woken_ns = at_ns - int(row["wait_ns"])
        waking = {"comm": row["next"], "pid": following, "target_cpu": int(row["cpu"])}
        yield protos.FtraceEvent(timestamp=woken_ns, pid=int(row["waker_pid"]), sched_waking=waking)
    switch = {
        "prev_comm": row["prev"],
        "prev_pid": int(row["prev_pid"]),
        "prev_state": _RUNNABLE if row["preempted"] else _ASLEEP,
        "next_comm": row["next"],
        "next_pid": following,
    }
    yield protos.FtraceEvent(timestamp=at_ns, pid=int(row["prev_pid"]), sched_switch=switch)


def _counters(events: pd.DataFrame) -> Iterator[protos.TracePacket]:
    kind = protos.TrackEvent.TYPE_COUNTER
    after = events.groupby(["task", "pid"]).ngroups
    intervals = events["at_ns"] // _COUNTER_NS
    every = range(int(intervals.min()), int(intervals.max()) + 2)
    for number, (function, calls) in enumerate(events.groupby("function", sort=True), after + 1):
        name = f"{function}, calls per ms"
        yield protos.TracePacket(track_descriptor={"uuid": number, "name": name, "counter": {}})
        counts = (calls["at_ns"] // _COUNTER_NS).value_counts()
        for at, count in counts.reindex(every, fill_value=0).items():
            event = {"type": kind, "track_uuid": number, "counter_value": int(count)}
            yield _packet(int(str(at)) * _COUNTER_NS, **event)
