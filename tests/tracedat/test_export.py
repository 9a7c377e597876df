# SPDX-License-Identifier: MIT
"""Parquet and Perfetto files say what the trace says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.support.story import block, switch, waking, work, write
from tests.support.trace_writer import Page, encode, event, trace_v7
from tracedat import RequestError, TraceError, perfetto_bytes, read, write_parquet, write_perfetto


def test_parquet(small: Path, tmp_path: Path) -> None:
    trace = read(small)
    files = write_parquet(trace, tmp_path / "out")
    assert {f.stem for f in files} == {n for n, c in trace.events.items() if c} | {"losses"}
    for name, count in trace.events.items():
        if count:
            back = pd.read_parquet(tmp_path / "out" / f"{name}.parquet")
            mine = trace.frame(name)
            assert (back.dtypes == mine.dtypes).all() or len(back) == len(mine)
            assert back.astype(str).equals(mine.astype(str))
    about = pq.read_schema(tmp_path / "out" / "sched_switch.parquet").metadata[b"tracedat"]
    assert b'"clock": "mono"' in about
    with pytest.raises(TraceError, match="new or empty"):
        write_parquet(trace, tmp_path / "out")


def test_an_event_whose_name_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    hostile = event("sched", "../../elsewhere", 301, "int pid")
    page = Page(7).event(1, encode(hostile, 10, {"pid": 10}))
    (tmp_path / "t.dat").write_bytes(trace_v7([hostile], [[page]]))
    trace = read(tmp_path / "t.dat")
    assert trace.events == {"../../elsewhere": 1}
    with pytest.raises(TraceError, match=r"the event '\.\./"):
        write_parquet(trace, tmp_path / "deep" / "er" / "out")
    assert list(tmp_path.rglob("*.parquet")) == []


def test_perfetto(tmp_path: Path) -> None:
    idle, fio, worker = (0, "swapper/0"), (10, "fio"), (20, "kworker/0:1")
    lines = [
        block(90, 0, 10, "block_rq_issue", 800, dev=254 << 20 | 1),
        block(95, 0, 10, "block_rq_issue", 808, dev=254 << 20 | 1),
        switch(100, 0, fio, 1, idle),
        block(150, 0, 0, "block_rq_complete", 808, dev=254 << 20 | 1),
        block(160, 0, 0, "block_rq_complete", 800, dev=254 << 20 | 1),
        waking(170, 0, 0, worker),
        switch(200, 0, idle, 0, worker),
        work(210, 0, 20, "start", 0xA),
        work(250, 0, 20, "end", 0xA),
    ]
    kallsyms = b"0000000000000f00 t iomap_dio_complete_work\n"
    trace = read(write(tmp_path / "story.dat", lines, kallsyms=kallsyms))
    path = tmp_path / "out.perfetto-trace"
    count = write_perfetto(trace, path)
    made = protos.Trace()
    made.ParseFromString(path.read_bytes())
    assert len(made.packet) == count
    (bundle,) = (p.ftrace_events for p in made.packet if p.HasField("ftrace_events"))
    kinds = [e.WhichOneof("event") for e in bundle.event]
    assert kinds == ["sched_switch", "sched_waking", "sched_switch"]
    first = bundle.event[0]
    assert (first.timestamp, first.pid) == (100, 10)
    assert (first.sched_switch.prev_comm, first.sched_switch.prev_state) == ("fio", 1)
    assert bundle.event[1].sched_waking.pid == 20
    names = [p.track_descriptor.name for p in made.packet if p.HasField("track_descriptor")]
    assert names == ["I/O 254:1 lane 0", "I/O 254:1 lane 1", "work of worker 20"]
    events = [(p.timestamp, p.track_event.name) for p in made.packet if p.HasField("track_event")]
    assert events == [
        (90, "WS 800+8"),
        (160, ""),
        (95, "WS 808+8"),
        (150, ""),
        (210, "iomap_dio_complete_work"),
        (250, ""),
    ]


def test_perfetto_of_a_window(tmp_path: Path) -> None:
    idle, fio, worker = (0, "swapper/0"), (10, "fio"), (20, "kworker/0:1")
    lines = [
        block(100, 0, 10, "block_rq_issue", 800),
        block(200, 0, 0, "block_rq_complete", 800),
        block(290, 0, 10, "block_rq_issue", 808),
        switch(300, 0, fio, 1, worker),
        work(310, 0, 20, "start", 0xA),
        switch(399, 0, worker, 1, idle),
        switch(400, 0, idle, 0, worker),
        work(450, 0, 20, "end", 0xA),
        block(500, 0, 0, "block_rq_complete", 808),
        work(510, 0, 20, "start", 0xB),
        work(520, 0, 20, "end", 0xB),
    ]
    trace = read(write(tmp_path / "story.dat", lines))
    path = tmp_path / "out"
    count = write_perfetto(trace, path, between=(300, 400))
    assert path.read_bytes() == perfetto_bytes(trace, between=(300, 400))
    made = protos.Trace()
    made.ParseFromString(path.read_bytes())
    assert len(made.packet) == count
    times = [event.timestamp for packet in made.packet for event in packet.ftrace_events.event]
    assert times == [300, 399]
    # An I/O or work item that is partly in the window is whole.
    events = [p.timestamp for p in made.packet if p.HasField("track_event")]
    assert events == [290, 500, 310, 450]
    with pytest.raises(RequestError, match="nothing from 10000 to 20000 ns that Perfetto"):
        write_perfetto(trace, path, between=(10_000, 20_000))
    with pytest.raises(RequestError, match="from 400 to 300 ns has no length"):
        perfetto_bytes(trace, between=(400, 300))


def test_perfetto_of_a_real_trace(small: Path, tmp_path: Path) -> None:
    trace = read(small)
    write_perfetto(trace, tmp_path / "out")
    made = protos.Trace()
    made.ParseFromString((tmp_path / "out").read_bytes())
    kinds = Counter(
        event.WhichOneof("event") for packet in made.packet for event in packet.ftrace_events.event
    )
    for name in ("sched_switch", "sched_waking", "sched_wakeup"):
        assert kinds[name] == trace.events[name]
    assert made.packet[0].system_info.utsname.release.startswith("6.")


def test_an_export_spares_the_trace_and_leaves_nothing_unfinished(
    small: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "t.dat"
    copy.write_bytes(small.read_bytes())
    (tmp_path / "link").symlink_to(copy)
    trace = read(copy, ["sched_switch"])
    with pytest.raises(RequestError, match="itself"):
        write_perfetto(trace, tmp_path / "link")
    with pytest.raises(OSError, match=r"exist|directory"):
        write_parquet(trace, copy / "tables")
    with pytest.raises(FileNotFoundError):
        write_perfetto(trace, tmp_path / "nowhere" / "out")
    assert copy.read_bytes() == small.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"t.dat", "link"}


def test_nothing_to_show(small: Path, tmp_path: Path) -> None:
    trace = read(small, ["sched_stat_runtime"])
    with pytest.raises(RequestError, match="nothing"):
        write_perfetto(trace, tmp_path / "out")
