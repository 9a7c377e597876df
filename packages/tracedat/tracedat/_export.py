# SPDX-License-Identifier: MIT
"""Export a trace to Parquet tables, or to Perfetto.

Perfetto shows tasks, their states and wake-ups, and slices of I/Os and work items. The messages are
those of protos/perfetto/trace/ in github.com/google/perfetto.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tracedat._errors import RequestError, TraceError, printable
from tracedat._scratch import scratch
from tracedat._trace import FIELDS, WAKES, Trace

# What a file may be named after.
_EVENT = re.compile(r"[\w:.-]*\w", re.ASCII)
# Events of one packet.
_BUNDLE = 4096
_SEQUENCE = 1
# Track numbers of the first device's first lane, and of the worker with pid 0.
_IO_TRACK, _WORK_TRACK = 1 << 32, 2 << 32

# Begin, end, title.
Slice = tuple[int, int, str]
# Begin and end of what is exported, in ns of the trace.
Window = tuple[int, int]


def write_parquet(trace: Trace, folder: Path | str) -> list[Path]:
    """Write ``<event>.parquet`` for every event type with rows, and ``losses.parquet``.

    The columns are those of `Trace.frame` and `Trace.losses`: strings are dictionaries, integers
    keep the kernel's types. Each file's schema metadata describes the trace under ``tracedat``
    (JSON): file name, clock, buffers, versions of trace-cmd and of the kernel.

    The folder is new or empty, and appears when all files are complete: they are returned. Raises
    RequestError for another folder, TraceError if an event's name is not a valid file name, OSError
    if the folder cannot be written; there is then none.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(folder, "is not a new or empty folder")
    about = json.dumps(
        {
            "source": trace.path.name,
            "clock": trace.info.clock,
            "buffers": list(trace.info.buffers),
            **trace.info.options,
        }
    )
    tables = {name: trace.frame(name) for name, count in trace.events.items() if count}
    # An event's name is what its format in the file says; it becomes the name of a file here.
    for name in tables:
        if not _EVENT.fullmatch(name):
            problem = f"the event {printable(name, 80)!r} has no valid file name"
            raise TraceError(trace.path, problem)
    files = {name: f"{name.replace(':', '.')}.parquet" for name in (*tables, "losses")}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch(folder.parent) as work:
            whole = work / "whole"
            whole.mkdir()
            for name, file in files.items():
                frame = trace.losses if name == "losses" else tables[name]
                table = pa.Table.from_pandas(frame, preserve_index=False)
                described = {**(table.schema.metadata or {}), "tracedat": about}
                table = table.replace_schema_metadata(described)
                pq.write_table(table, whole / file, compression="zstd")
            whole.replace(folder)
    except OSError as error:
        # pyarrow's own errors have a number, and words for programmers.
        if error.errno:
            raise OSError(error.errno, os.strerror(error.errno), str(folder)) from error
        raise
    return [folder / file for file in files.values()]


def write_perfetto(trace: Trace, path: Path | str, *, between: Window | None = None) -> int:
    """Write a trace as a protobuf file for ui.perfetto.dev.

    The file has sched_switch, sched_waking, sched_wakeup and sched_wakeup_new as kernel events;
    Perfetto draws CPUs, tasks, their states and wake-ups from them. Each block I/O is a slice from
    its issue to its completion, on as many lanes of its device as I/Os are in flight. Each executed
    work item is a slice with its function's name on the track of its worker. Times are the
    trace's own.

    The trace needs sched_switch, a wake-up, block_rq_issue and block_rq_complete, or
    workqueue_execute_start and workqueue_execute_end. `between` is the begin and end in ns of what
    is exported: the scheduler's events in it, and the I/Os and work items that are partly in it,
    whole; by default everything. Returns the number of packets.

    Raises RequestError if the trace has none of these events, or none in the window, or is the file
    itself; OSError if the file cannot be written: an old one is then unchanged.
    """
    place = Path(path).resolve()
    if place.exists() and trace.path.exists() and place.samefile(trace.path):
        raise RequestError(trace.path, "is the trace itself: name another file")
    packets = _packets(trace, between)
    # A file in a folder of its own has the permissions of any new file; a file from mkstemp does
    # not.
    with scratch(place.parent) as work:
        whole = work / "whole"
        whole.write_bytes(b"".join(packets))
        whole.replace(place)
    return len(packets)


def perfetto_bytes(trace: Trace, *, between: Window | None = None) -> bytes:
    """Return the file that `write_perfetto` writes."""
    return b"".join(_packets(trace, between))


def _packets(trace: Trace, between: Window | None) -> list[bytes]:
    window = between or (-(1 << 63), (1 << 63) - 1)
    if window[0] >= window[1]:
        raise RequestError(
            trace.path, f"the window from {window[0]} to {window[1]} ns has no length"
        )
    parts = (_system(trace), _kernel(trace, window), _ios(trace, window), _works(trace, window))
    # A file is the concatenation of its packets, each as a message of its own.
    packets = [
        protos.Trace(packet=[packet]).SerializeToString() for part in parts for packet in part
    ]
    if len(packets) < 2:
        where = f" from {window[0]} to {window[1]} ns" if between else ""
        raise RequestError(trace.path, f"has nothing{where} that Perfetto could show")
    return packets


def _system(trace: Trace) -> Iterator[protos.TracePacket]:
    # Perfetto interprets prev_state by the kernel's release.
    packet = protos.TracePacket()
    packet.system_info.utsname.SetInParent()
    words = trace.info.options.get("uname", "").split()
    if len(words) >= 4:
        utsname = packet.system_info.utsname
        utsname.sysname, utsname.release, utsname.machine = words[0], words[2], words[-1]
    yield packet


def _kernel(trace: Trace, window: Window) -> Iterator[protos.TracePacket]:
    by_cpu: dict[int, list[tuple[int, protos.FtraceEvent]]] = {}
    for name in ("sched_switch", *WAKES):
        if trace.events.get(name):
            trace.require("Perfetto", name)
            frame = trace.frame(name)
            begin, end = np.searchsorted(frame["timestamp_ns"].to_numpy(), window)
            for time, cpu, event in _events(frame.iloc[begin:end], name):
                by_cpu.setdefault(cpu, []).append((time, event))
    for cpu, events in sorted(by_cpu.items()):
        events.sort(key=lambda pair: pair[0])
        yield from _kernel_packets(cpu, [event for _, event in events])


def _kernel_packets(cpu: int, events: Sequence[protos.FtraceEvent]) -> Iterator[protos.TracePacket]:
    """Yield the packets of a CPU's kernel events, which are in order of time."""
    for at in range(0, len(events), _BUNDLE):
        packet = protos.TracePacket()
        packet.ftrace_events.cpu = cpu
        packet.ftrace_events.event.extend(events[at : at + _BUNDLE])
        yield packet


def _events(frame: pd.DataFrame, name: str) -> Iterator[tuple[int, int, protos.FtraceEvent]]:
    fields = FIELDS[name]
    columns = [frame[field].tolist() for field in fields]
    heads = (frame[c].tolist() for c in ("timestamp_ns", "common_cpu", "common_pid"))
    for time, cpu, pid, *values in zip(*heads, *columns, strict=True):
        inner = dict(zip(fields, values, strict=True))
        yield time, cpu, protos.FtraceEvent(timestamp=time, pid=pid, **{name: inner})


def _ios(trace: Trace, window: Window) -> Iterator[protos.TracePacket]:
    if not trace.events.get("block_rq_issue") or not trace.events.get("block_rq_complete"):
        return
    trace.require("Perfetto", "block_rq_issue", "block_rq_complete")
    flying: dict[tuple[int, int], tuple[int, str]] = {}
    slices: dict[int, list[Slice]] = {}
    merged = heapq.merge(
        _requests(trace.frame("block_rq_issue"), completes=False),
        _requests(trace.frame("block_rq_complete"), completes=True),
    )
    for time, completes, dev, sector, title in merged:
        if not completes:
            flying[dev, sector] = (time, title)
        elif (issue := flying.pop((dev, sector), None)) and _touches(issue[0], time, window):
            slices.setdefault(dev, []).append((issue[0], time, issue[1]))
    for dev, of_device in sorted(slices.items()):
        # MAJOR() and MINOR() of the kernel's include/linux/kdev_t.h.
        name = f"I/O {dev >> 20}:{dev & 0xFFFFF}"
        for number, lane in enumerate(_lanes(sorted(of_device))):
            yield from _track(_IO_TRACK + (dev << 8) + number, f"{name} lane {number}", lane)


def _touches(begin: int, end: int, window: Window) -> bool:
    return begin < window[1] and end >= window[0]


def _requests(frame: pd.DataFrame, *, completes: bool) -> Iterator[tuple[int, bool, int, int, str]]:
    columns = ("timestamp_ns", "dev", "sector", "nr_sector", "rwbs")
    for time, dev, sector, count, kind in zip(*(frame[c].tolist() for c in columns), strict=True):
        yield time, completes, dev, sector, f"{kind} {sector}+{count}"


def _lanes(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Spread slices, ordered by their begin, over the fewest lanes on which none overlap."""
    lanes: list[list[Slice]] = []
    free: list[tuple[int, int]] = []
    for begin, end, title in slices:
        if free and free[0][0] <= begin:
            number = heapq.heappop(free)[1]
        else:
            number = len(lanes)
            lanes.append([])
        lanes[number].append((begin, end, title))
        heapq.heappush(free, (end, number))
    return lanes


def _works(trace: Trace, window: Window) -> Iterator[protos.TracePacket]:
    if not trace.events.get("workqueue_execute_start"):
        return
    if "workqueue_execute_end" not in trace.events:
        return
    trace.require("Perfetto", "workqueue_execute_start")
    running: dict[int, tuple[int, int]] = {}
    slices: dict[int, list[Slice]] = {}
    # At equal times the end of an item comes before the start of the next one.
    merged = heapq.merge(
        _executions(trace.frame("workqueue_execute_end"), starts=False),
        _executions(trace.frame("workqueue_execute_start"), starts=True),
    )
    for time, starts, worker, function in merged:
        if starts:
            running[worker] = (time, function)
        elif (start := running.pop(worker, None)) and _touches(start[0], time, window):
            slices.setdefault(worker, []).append((start[0], time, trace.symbol(start[1])))
    for worker, of_worker in sorted(slices.items()):
        name = trace.comms.get(worker, "worker")
        yield from _track(_WORK_TRACK + worker, f"work of {name} {worker}", of_worker)


def _executions(frame: pd.DataFrame, *, starts: bool) -> Iterator[tuple[int, bool, int, int]]:
    # Kernels before 5.6 print no function at the end.
    columns = ("timestamp_ns", "common_pid", "function" if starts else "common_pid")
    for time, worker, function in zip(*(frame[c].tolist() for c in columns), strict=True):
        yield time, starts, worker, function


def _track(uuid: int, name: str, slices: Iterable[Slice]) -> Iterator[protos.TracePacket]:
    yield protos.TracePacket(track_descriptor={"uuid": uuid, "name": name})
    kinds = protos.TrackEvent.TYPE_SLICE_BEGIN, protos.TrackEvent.TYPE_SLICE_END
    for begin, end, title in slices:
        for time, event in (
            (begin, {"type": kinds[0], "track_uuid": uuid, "name": title}),
            (end, {"type": kinds[1], "track_uuid": uuid}),
        ):
            yield protos.TracePacket(
                timestamp=time, trusted_packet_sequence_id=_SEQUENCE, track_event=event
            )
