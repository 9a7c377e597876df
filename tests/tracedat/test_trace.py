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
from tracedat import RequestError, read

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
