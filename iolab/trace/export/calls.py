# SPDX-License-Identifier: MIT
"""Export recorded calls to Perfetto: each call on its task's track, and a counter per function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pandas as pd
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from iolab.errors import UserError
from iolab.files import atomic_write

__all__ = ["COUNTER_NS", "write_calls"]

# The counters have a value for each of these intervals.
COUNTER_NS: Final = 1_000_000
_SEQUENCE: Final = 1
_ARGUMENTS: Final = ("arg0", "arg1", "arg2")


def write_calls(path: Path | str, events: pd.DataFrame) -> int:
    """Write recorded calls as a protobuf file for ui.perfetto.dev.

    Each call is an instant on the track of its task, with its CPU and arguments. Of each function
    a counter has the number of calls in each millisecond. Times are the guest's.

    Parameters
    ----------
    path : Path or str
        The file.
    events : DataFrame
        The calls, as `iolab.store.profiles.ProfileStore.events` returns them.

    Returns
    -------
    int
        Number of calls.

    Raises
    ------
    UserError
        If there is no call.
    """
    if events.empty:
        raise UserError("no call was recorded in this cell: there is nothing that Perfetto shows")
    packets = [*_tasks(events), *_counters(events)]
    atomic_write(Path(path), protos.Trace(packet=packets).SerializeToString())
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


def _counters(events: pd.DataFrame) -> Iterator[protos.TracePacket]:
    kind = protos.TrackEvent.TYPE_COUNTER
    after = events.groupby(["task", "pid"]).ngroups
    intervals = events["at_ns"] // COUNTER_NS
    every = range(int(intervals.min()), int(intervals.max()) + 2)
    for number, (function, calls) in enumerate(events.groupby("function", sort=True), after + 1):
        name = f"{function}, calls per ms"
        yield protos.TracePacket(track_descriptor={"uuid": number, "name": name, "counter": {}})
        counts = (calls["at_ns"] // COUNTER_NS).value_counts()
        for at, count in counts.reindex(every, fill_value=0).items():
            event = {"type": kind, "track_uuid": number, "counter_value": int(count)}
            yield _packet(int(str(at)) * COUNTER_NS, **event)
