# SPDX-License-Identifier: MIT
"""A trace for Perfetto's user interface: tasks, their states and wake-ups, I/O and work slices.

Field numbers: protos/perfetto/trace/ of github.com/google/perfetto.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from iolab.errors import UserError
from iolab.files import atomic_write
from iolab.trace.export.protobuf import Value, message
from iolab.trace.trace import Trace

__all__ = ["write_perfetto"]

# Trace
_PACKET = 1
# TracePacket
_FTRACE, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _SYSTEM_INFO, _TRACK_DESCRIPTOR = 1, 8, 10, 11, 45, 60
# FtraceEvent
_SWITCH, _WAKEUP, _WAKING, _WAKEUP_NEW = 4, 17, 20, 114
# TrackEvent
_TYPE, _TRACK, _NAME = 9, 11, 23
_BEGIN, _END = 1, 2

_BUNDLE = 4096
_SEQUENCE_NUMBER = 1
_IO_TRACK, _WORK_TRACK = 1 << 32, 2 << 32

_SWITCH_FIELDS = (
    "prev_comm",
    "prev_pid",
    "prev_prio",
    "prev_state",
    "next_comm",
    "next_pid",
    "next_prio",
)
_WAKE_FIELDS = (("comm", 1), ("pid", 2), ("prio", 3), ("target_cpu", 5))


def write_perfetto(trace: Trace, path: Path) -> int:
    """Write a trace as a Perfetto protobuf file, to open in ui.perfetto.dev; return its packets.

    It holds sched_switch, sched_waking, sched_wakeup and sched_wakeup_new as kernel events, from
    which Perfetto draws CPUs, tasks, their states and wake-ups; a slice for each block I/O from
    its issue to its completion, on as many lanes a device as I/Os are in flight; and a slice for
    each executed work item on a track a worker. Times are the trace's own. For a stretch of a
    longer trace, read it with `between`.

    Errors: UserError if the trace has none of these events; IolabError if the file cannot be
    written.
    """
    packets = [
        packet
        for part in (_about(trace), _kernel(trace), _ios(trace), _works(trace))
        for packet in part
    ]
    if len(packets) < 2:
        raise UserError(f"{trace.path} has nothing that Perfetto could show")
    atomic_write(path, b"".join(message((_PACKET, packet)) for packet in packets))
    return len(packets)


def _about(trace: Trace) -> Iterator[bytes]:
    # Perfetto reads prev_state by the kernel's release.
    words = trace.info.options.get("uname", "").split()
    system: list[tuple[int, Value]] = []
    if len(words) >= 4:
        system = [(1, words[0]), (3, words[2]), (4, words[-1])]
    yield message((_SYSTEM_INFO, message((1, message(*system)))))


def _kernel(trace: Trace) -> Iterator[bytes]:
    by_cpu: dict[int, list[tuple[int, bytes]]] = {}
    for name, number in (
        ("sched_switch", _SWITCH),
        ("sched_waking", _WAKING),
        ("sched_wakeup", _WAKEUP),
        ("sched_wakeup_new", _WAKEUP_NEW),
    ):
        if trace.events.get(name):
            for time, cpu, event in _events(trace.frame(name), number):
                by_cpu.setdefault(cpu, []).append((time, event))
    for cpu, events in sorted(by_cpu.items()):
        events.sort(key=lambda pair: pair[0])
        for at in range(0, len(events), _BUNDLE):
            bundle = message((1, cpu), *((2, event) for _, event in events[at : at + _BUNDLE]))
            yield message((_FTRACE, bundle))


def _events(frame: pd.DataFrame, number: int) -> Iterator[tuple[int, int, bytes]]:
    fields = (
        tuple(zip(_SWITCH_FIELDS, range(1, 8), strict=True)) if number == _SWITCH else _WAKE_FIELDS
    )
    columns = [frame[name].tolist() for name, _ in fields]
    numbers = [field for _, field in fields]
    heads = (frame[c].tolist() for c in ("timestamp_ns", "common_cpu", "common_pid"))
    for time, cpu, pid, *values in zip(*heads, *columns, strict=True):
        inner = message(*zip(numbers, values, strict=True))
        yield time, cpu, message((1, time), (2, pid), (number, inner))


def _ios(trace: Trace) -> Iterator[bytes]:
    if not trace.events.get("block_rq_issue") or not trace.events.get("block_rq_complete"):
        return
    waiting: dict[tuple[int, int], tuple[int, str]] = {}
    slices: dict[int, list[tuple[int, int, str]]] = {}
    issue, complete = (trace.frame(f"block_rq_{what}") for what in ("issue", "complete"))
    merged = heapq.merge(_requests(issue, 0), _requests(complete, 1))
    for time, what, dev, sector, text in merged:
        if what == 0:
            waiting[dev, sector] = (time, text)
        elif (begun := waiting.pop((dev, sector), None)) is not None:
            slices.setdefault(dev, []).append((begun[0], time, begun[1]))
    for dev, found in sorted(slices.items()):
        title = f"I/O {dev >> 20}:{dev & 0xFFFFF}"
        for lane, inside in enumerate(_lanes(sorted(found))):
            yield from _track(_IO_TRACK + (dev << 8) + lane, f"{title} lane {lane}", inside)


def _requests(frame: pd.DataFrame, what: int) -> Iterator[tuple[int, int, int, int, str]]:
    columns = ("timestamp_ns", "dev", "sector", "nr_sector", "rwbs")
    for time, dev, sector, count, kind in zip(*(frame[c].tolist() for c in columns), strict=True):
        yield time, what, dev, sector, f"{kind} {sector}+{count}"


def _lanes(slices: Iterable[tuple[int, int, str]]) -> list[list[tuple[int, int, str]]]:
    """Spread slices, ordered by their begin, over as few lanes as keep them apart."""
    lanes: list[list[tuple[int, int, str]]] = []
    free: list[tuple[int, int]] = []
    for one in slices:
        if free and free[0][0] <= one[0]:
            lane = heapq.heappop(free)[1]
        else:
            lane = len(lanes)
            lanes.append([])
        lanes[lane].append(one)
        heapq.heappush(free, (one[1], lane))
    return lanes


def _works(trace: Trace) -> Iterator[bytes]:
    if not trace.events.get("workqueue_execute_start"):
        return
    if "workqueue_execute_end" not in trace.events:
        return
    start, end = (trace.frame(f"workqueue_execute_{what}") for what in ("start", "end"))
    begun: dict[int, tuple[int, str]] = {}
    slices: dict[int, list[tuple[int, int, str]]] = {}
    for time, what, worker, function in heapq.merge(_executions(start, 0), _executions(end, -1)):
        if what == 0:
            begun[worker] = (time, f"work {function:#x}")
        elif (first := begun.pop(worker, None)) is not None:
            slices.setdefault(worker, []).append((first[0], time, first[1]))
    for worker, found in sorted(slices.items()):
        name = trace.comms.get(worker, "worker")
        yield from _track(_WORK_TRACK + worker, f"work of {name} {worker}", found)


def _executions(frame: pd.DataFrame, what: int) -> Iterator[tuple[int, int, int, int]]:
    columns = ("timestamp_ns", "common_pid", "function")
    for time, worker, function in zip(*(frame[c].tolist() for c in columns), strict=True):
        yield time, what, worker, function


def _track(uuid: int, name: str, slices: Iterable[tuple[int, int, str]]) -> Iterator[bytes]:
    yield message((_TRACK_DESCRIPTOR, message((1, uuid), (2, name))))
    for begin, end, title in slices:
        for time, event in (
            (begin, message((_TYPE, _BEGIN), (_TRACK, uuid), (_NAME, title))),
            (end, message((_TYPE, _END), (_TRACK, uuid))),
        ):
            yield message((_TIMESTAMP, time), (_SEQUENCE, _SEQUENCE_NUMBER), (_TRACK_EVENT, event))
