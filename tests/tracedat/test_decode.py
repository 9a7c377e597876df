# SPDX-License-Identifier: MIT
"""What is read of a trace.dat: events, buffers, windows, times, losses."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.trace_writer import EVENTS, Page, encode, trace_v6, trace_v7
from tracedat import RequestError, TooLargeError, TraceError, check_size, read, windows
from tracedat._decode import Clock

WAKING = EVENTS["sched_waking"]


@pytest.mark.parametrize("tsc", [None, (3_000_000_001, 31), (5, 0), (1 << 31, 32), (7, 40)])
def test_a_clock_converts_without_rounding(tsc: tuple[int, int] | None) -> None:
    clock = Clock(-1000, tsc)
    raw = [0, 1, 12345, (1 << 32) - 1, 1 << 32, (1 << 40) + 3]
    # Python's numbers have any size.
    multiplier, shift = tsc or (1, 0)
    exact = [(time * multiplier >> shift) - 1000 for time in raw]
    times = np.array(raw, np.int64)
    clock.convert(times)
    assert times.tolist() == exact == [clock.time_of(time) for time in raw]


@pytest.mark.parametrize("tsc", [None, (3_000_000_001, 31), (5, 0), (7, 3)])
def test_a_span_of_raw_time_has_the_events_of_the_span(tsc: tuple[int, int] | None) -> None:
    clock = Clock(20, tsc)
    for start in range(15, 70):
        begin, end = clock.raw_span((start, start + 9))
        inside = [raw for raw in range(-60, 90) if start <= clock.time_of(raw) < start + 9]
        assert inside == [raw for raw in range(-60, 90) if begin <= raw < end]


def test_the_pages_of_a_file_are_counted_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_bytes(trace_v7([WAKING], [[Page(5)] * 3, [Page(6)]], compression="zstd"))
    check_size(path, 4 * 4096)
    with pytest.raises(TooLargeError):
        check_size(path, 4 * 4096 - 1)


def test_an_event_of_a_name_that_two_systems_have(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    one, other = (type(WAKING)(s, "go", n, (), '""', [], 8) for s, n in (("a", 1), ("b", 2)))
    page = Page(7).event(1, encode(one, 1, {})).event(1, encode(other, 2, {}))
    path.write_bytes(trace_v6([one, other], [[page]]))
    assert read(path).events == {"a:go": 1, "b:go": 1}
    assert read(path, ["b:go"]).frame("b:go")["common_pid"].tolist() == [2]


def test_losses(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = encode(WAKING, 3, {"comm": "x"})
    pages = [
        Page(100).event(1, data),
        Page(200, lost=7).event(1, data),
        Page(300, lost=0).event(1, data),
    ]
    path.write_bytes(trace_v7([WAKING], [pages], stats={0: {"overrun": 9, "dropped events": 0}}))
    losses = read(path).losses
    assert losses["source"].tolist() == ["page", "page", "overrun"]
    assert losses["timestamp_ns"].tolist() == [200, 300, pd.NA]
    assert losses["count"].tolist() == [7, pd.NA, 9]
    assert read(path, between=(250, 400)).losses["count"].tolist() == [pd.NA, 9]


def test_losses_of_many_pages_have_the_time_of_the_next_records(tmp_path: Path) -> None:
    data = encode(EVENTS["sched_waking"], 7, {"comm": "a", "pid": 9})
    pages = [Page(0, lost=n + 1) for n in range(5000)]
    pages += [Page(7000, lost=1).event(5, data), Page(9000, lost=3)]
    (tmp_path / "t.dat").write_bytes(trace_v7([EVENTS["sched_waking"]], [pages]))
    losses = read(tmp_path / "t.dat").losses
    assert losses["count"].tolist() == [*range(1, 5001), 1, 3]
    assert losses["timestamp_ns"].tolist()[:-1] == [7000] * 5001
    assert losses["timestamp_ns"].isna().tolist()[-1]


def test_buffers(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    content = {
        name: [[Page(100).event(i, encode(WAKING, i, {"comm": "x"}))]]
        for i, name in enumerate(("", "one", "two"))
    }
    path.write_bytes(trace_v7([WAKING], content, compression="zlib"))
    trace = read(path)
    assert trace.frame("sched_waking")["common_buffer"].tolist() == ["", "one", "two"]
    assert trace.info.buffers == ("", "one", "two")
    with pytest.raises(RequestError, match="several buffers"):
        trace.require("this", "sched_waking")
    single = read(path, buffer="one")
    assert single.frame("sched_waking")["common_pid"].tolist() == [1]
    assert "common_buffer" not in single.frame("sched_waking")
    single.require("this", "sched_waking")
    with pytest.raises(RequestError, match="no buffer 'three'"):
        read(path, buffer="three")


def test_offset_and_cycles(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    page = Page(1 << 40).event(3, encode(WAKING, 3, {"comm": "x"}))
    raw = (1 << 40) + 3
    options = b"".join(
        struct.pack("<HI", number, len(data)) + data
        for number, data in ((14, struct.pack("<IIQ", 3_000_000_001, 31, 0)), (7, b"-1000\0"))
    )
    path.write_bytes(trace_v6([WAKING], [[page]], options=options))
    expected = (raw * 3_000_000_001 >> 31) - 1000
    assert read(path).frame("sched_waking")["timestamp_ns"].tolist() == [expected]
    assert read(path, between=(expected, expected + 1)).events["sched_waking"] == 1
    assert read(path, between=(expected + 1, expected + 9)).events["sched_waking"] == 0


def test_between_and_windows_give_every_event_once(small: Path) -> None:
    whole = read(small)
    first, last = whole.span
    parts = list(windows(small, (last - first) // 7))
    assert len(parts) > 4
    for name in whole.events:
        frames = [part.frame(name) for part in parts if part.events[name]]
        if not frames:
            continue
        joined = pd.concat([f["timestamp_ns"] for f in frames], ignore_index=True)
        assert joined.equals(whole.frame(name)["timestamp_ns"])
    for part in parts:
        assert part.between is not None
        assert part.between[0] <= part.span[0] <= part.span[1] < part.between[1]
        again = read(small, between=part.between)
        assert again.events == part.events


def test_windows_jump_over_silence(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = encode(WAKING, 3, {"comm": "x"})
    page = Page(100).event(1, data).extend(1 << 58).event(1, data)
    path.write_bytes(trace_v7([WAKING], [[page, Page(1 << 60).event(0, data)]]))
    assert [w.span[0] for w in windows(path, 1000)] == [101, (1 << 58) + 102, 1 << 60]
    with pytest.raises(RequestError, match="not 0 ns"):
        next(windows(path, 0))


def test_empty_traces(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_bytes(trace_v7([WAKING], [[], [Page(1)]], compression="zstd"))
    trace = read(path)
    assert trace.events == {"sched_waking": 0}
    assert trace.frame("sched_waking").empty
    assert trace.losses.empty
    assert list(windows(path, 5)) == []
    with pytest.raises(TraceError, match="no event"):
        _ = trace.span
