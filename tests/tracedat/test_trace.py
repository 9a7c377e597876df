# SPDX-License-Identifier: MIT
"""What a Trace offers: frames, losses, names, windows, spans of time."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest

from tests.support.payloads import MARK, PAYLOADS, Attacked, controls
from tests.support.trace_writer import EVENTS, Page, encode, trace_v6, trace_v7
from tracedat import RequestError, TraceError, read, windows

WAKING, SWITCH, WORK = (EVENTS[n] for n in ("sched_waking", "sched_switch", "workqueue_queue_work"))


def test_frames_share_the_memory(small: Path) -> None:
    trace = read(small)
    frame = trace.frame("sched_switch")
    for column in ("timestamp_ns", "common_pid", "prev_state"):
        array = trace.array("sched_switch", column)
        assert np.shares_memory(array, frame[column].to_numpy())
        assert not array.flags.writeable
    codes = cast(pd.Categorical, frame["prev_comm"].array).codes
    assert np.shares_memory(codes, trace.array("sched_switch", "prev_comm"))
    assert frame is trace.frame("sched:sched_switch")
    assert frame["timestamp_ns"].dtype == np.int64
    assert frame["prev_comm"].dtype == frame["next_comm"].dtype


def test_header_columns(small: Path) -> None:
    trace = read(small, ["sched_switch"])
    frame = trace.frame("sched_switch")
    assert list(frame)[:5] == [
        "timestamp_ns",
        "common_cpu",
        "common_flags",
        "common_preempt_count",
        "common_pid",
    ]
    assert trace.info.version == 7
    assert trace.info.clock == "mono"
    assert trace.info.compression == "zstd"
    assert trace.comms[21818] == "trace-cmd"
    assert trace.formats["sched_switch"].preempted_bit == 0x100


def test_a_trace_without_kallsyms_has_no_names(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_bytes(trace_v7([WORK], [[Page(7)]]))
    assert read(path).symbol(0xFFFFFFFF81000000) == "0xffffffff81000000"
    hidden = b"0000000000000000 T _stext\n0000000000000000 t schedule\n"
    path.write_bytes(trace_v6([WORK], [[Page(7)]], kallsyms=hidden))
    assert read(path).symbol(0xFFFFFFFF81000000) == "0xffffffff81000000"


def test_an_events_own_cpu_stays(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = encode(WORK, 3, {"cpu": 5, "workqueue": "events"})
    path.write_bytes(trace_v7([WORK], [[], [Page(7).event(1, data)]]))
    frame = read(path).frame("workqueue_queue_work")
    assert frame["cpu"].tolist() == [5]
    assert frame["common_cpu"].tolist() == [1]
    assert frame["workqueue"].tolist() == ["events"]


def test_a_trace_says_what_it_is(small: Path, tmp_path: Path) -> None:
    trace = read(small)
    count, kinds = sum(trace.events.values()), sum(map(bool, trace.events.values()))
    span = (trace.span[1] - trace.span[0]) / 1e6
    words = f"{count:,} events of {kinds} types, {span:,.3f} ms, 2 CPUs, Linux 6."
    assert repr(trace).startswith(f"<Trace {small.name}: {words}")
    page = trace._repr_html_()
    assert "sched_stat_runtime (" in page
    assert f"{count:,} events" in page
    assert repr(read(small, between=(0, 1))).startswith(f"<Trace {small.name}: 0 events of 0 types")


@pytest.mark.parametrize("kind", PAYLOADS)
def test_what_a_trace_says_is_words(kind: str, tmp_path: Path) -> None:
    text = PAYLOADS[kind].encode("utf-8", "replace").decode()
    data = f"Linux host {'_'.join(text.split())} x86_64".encode() + b"\0"
    uname = struct.pack("<HI", 5, len(data)) + data
    page = Page(7).event(1, encode(EVENTS["sched_waking"], 10, {"pid": 10, "comm": "a"}))
    path = tmp_path / "<b>t.dat"
    path.write_bytes(trace_v7(list(EVENTS.values()), [[page]], options=uname))
    trace = read(path)
    read_back = Attacked(trace._repr_html_())
    assert read_back.found == []
    assert MARK in "".join(read_back.text)
    assert "<b>t.dat" in "".join(read_back.text)
    assert not controls(repr(trace))


def test_names_of_events(small: Path) -> None:
    with pytest.raises(RequestError, match="did you mean sched_switch"):
        read(small, ["sched_swtich"])
    trace = read(small, ["sched:sched_waking"])
    assert list(trace.events) == ["sched_waking"]
    with pytest.raises(RequestError, match="was not read"):
        trace.frame("sched_switch")
    with pytest.raises(RequestError, match="no event 'sched_wakign'; did you mean sched_waking"):
        trace.frame("sched_wakign")
    with pytest.raises(RequestError, match="no column 'pdi'"):
        trace.array("sched_waking", "pdi")


def test_text_ends_at_its_nul(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    page = Page(7)
    for garbage in (
        b"io\0ABCDEFGHIJKLM",
        b"io\0\0\0\0\0\0\0\0\0\0\0\0\0x",
        b"\xff\xfe\0ABCDEFGHIJKLM",
    ):
        page.event(1, encode(WAKING, 3, {"comm": garbage}))
    path.write_bytes(trace_v7([WAKING], [[page]]))
    assert read(path).frame("sched_waking")["comm"].tolist() == ["io", "io", "\\xff\\xfe"]


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
