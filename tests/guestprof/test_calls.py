# SPDX-License-Identifier: MIT
"""Recorded calls as Perfetto reads them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from guestprof.calls import write_calls
from guestprof.schedule import switches
from iolab_base.errors import UserError
from tests.guestprof.test_schedule import story


def call(at_ns: int, function: str, task: str = "fio", pid: int = 9) -> dict[str, object]:
    found = {"at_ns": at_ns, "task": task, "pid": pid, "cpu": 3, "function": function}
    return {**found, "arg0": 1, "arg1": 2, "arg2": 0xFFFF_8880_0000_0000}


def read_back(path: Path) -> protos.Trace:
    return protos.Trace.FromString(path.read_bytes())


def tracks(trace: protos.Trace) -> dict[int, str]:
    described = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    return {track.uuid: track.name for track in described}


def counts(trace: protos.Trace, track: str) -> list[tuple[int, int]]:
    counter = protos.TrackEvent.TYPE_COUNTER
    names = tracks(trace)
    return [
        (p.timestamp, p.track_event.counter_value)
        for p in trace.packet
        if p.track_event.type == counter and names[p.track_event.track_uuid] == track
    ]


def test_each_call_is_an_instant_of_its_task(tmp_path: Path) -> None:
    calls = [call(2_500_000, "dget_parent"), call(2_600_000, "dput", "dd", 7)]
    assert write_calls(tmp_path / "calls.pb", pd.DataFrame(calls)) == 2
    trace = read_back(tmp_path / "calls.pb")
    names = tracks(trace)
    assert list(names.values()) == [
        *("dd 7", "fio 9"),
        *("dget_parent, calls per ms", "dput, calls per ms"),
    ]
    instant = protos.TrackEvent.TYPE_INSTANT
    found = [p for p in trace.packet if p.track_event.type == instant]
    assert [(p.timestamp, names[p.track_event.track_uuid], p.track_event.name) for p in found] == [
        (2_600_000, "dd 7", "dput"),
        (2_500_000, "fio 9", "dget_parent"),
    ]
    notes = {note.name: note for note in found[0].track_event.debug_annotations}
    assert notes["cpu"].uint_value == 3
    assert [notes[f"arg{n}"].pointer_value for n in range(3)] == [1, 2, 0xFFFF_8880_0000_0000]


def test_each_function_is_counted_in_each_millisecond_of_all(tmp_path: Path) -> None:
    times_ns = (2_000_000, 2_999_999, 5_000_000)
    calls = [*(call(at, "dget_parent") for at in times_ns), call(3_000_000, "dput")]
    write_calls(tmp_path / "calls.pb", pd.DataFrame(calls))
    trace = read_back(tmp_path / "calls.pb")
    every = [2_000_000, 3_000_000, 4_000_000, 5_000_000, 6_000_000]
    assert counts(trace, "dget_parent, calls per ms") == list(
        zip(every, [2, 0, 0, 1, 0], strict=True)
    )
    assert counts(trace, "dput, calls per ms") == list(zip(every, [0, 1, 0, 0, 0], strict=True))
    assert not any(p.HasField("ftrace_events") for p in trace.packet)


def test_switches_become_the_kernels_events(tmp_path: Path) -> None:
    write_calls(tmp_path / "calls.pb", story(), switches(story()))
    trace = read_back(tmp_path / "calls.pb")
    (bundle,) = [p.ftrace_events for p in trace.packet if p.HasField("ftrace_events")]
    assert [event.timestamp for event in bundle.event] == [
        *(100, 250, 300, 340, 400),
        *(500, 520, 600, 700),
    ]
    found = [e.sched_switch for e in bundle.event if e.HasField("sched_switch")]
    assert [s.next_comm for s in found[:3]] == ["swapper/0", "kworker/0:1", "fio"]
    # The worker was preempted twice, all others slept.
    assert [s.prev_state for s in found] == [1, 1, 0, 1, 0, 1, 1]
    wakes = [(e.pid, e.sched_waking.pid) for e in bundle.event if e.HasField("sched_waking")]
    assert wakes == [(20, 10), (20, 10)]


def test_each_processor_has_its_own_schedule_in_the_order_of_time(tmp_path: Path) -> None:
    found = switches(story())
    # It was woken before the switch at 250.
    found.loc[found["at_ns"] == 340, "wait_ns"] = 100
    both = pd.concat([found, found.assign(cpu=1)])
    write_calls(tmp_path / "calls.pb", story(), both)
    bundles = [p.ftrace_events for p in read_back(tmp_path / "calls.pb").packet]
    assert [(b.cpu, len(b.event)) for b in bundles if b.event] == [(0, 9), (1, 9)]
    for bundle in (b for b in bundles if b.event):
        assert [event.timestamp for event in bundle.event][:4] == [100, 240, 250, 340]


def test_a_cell_without_calls_leaves_no_file(tmp_path: Path) -> None:
    empty = pd.DataFrame([call(1, "dput")]).iloc[:0]
    with pytest.raises(UserError):
        write_calls(tmp_path / "calls.pb", empty)
    assert not (tmp_path / "calls.pb").exists()
