# SPDX-License-Identifier: MIT
"""Printed traces: what trace-cmd prints of a trace.dat, read again, is the trace.dat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import iolab
import tracedat
from iolab.measure import intervals, io_path
from iolab.paths import REFERENCE
from iolab_base import process
from tests.support.needs import needs
from tracedat import RequestError, Trace, TraceError

_SCHED = """\
# tracer: nop
#
#           TASK-PID     TGID    CPU#  |||||  TIMESTAMP  FUNCTION
 Web Content-3121    (   3099) [001] d..2.   10.000001: sched_switch: prev_comm=Web Content \
prev_pid=3121 prev_prio=120 prev_state=R+ ==> next_comm=kworker/1:0 next_pid=17 next_prio=120
 kworker/1:0-17      (-------) [001] d..2.   10.000001: sched_switch: prev_comm=kworker/1:0 \
prev_pid=17 prev_prio=120 prev_state=I ==> next_comm=swapper/1 next_pid=0 next_prio=120
CPU:1 [LOST 52 EVENTS]
          <idle>-0      (-------) [000] dNh4.   10.000003: sched_waking: comm=fio pid=9 prio=120 \
target_cpu=000
"""
# How trace-cmd begins the lines of two buffers.
_OF_A, _OF_B = (f" {name}: {task:>16}-1 [000]" for name, task in (("a", "x"), ("b", "y")))


def printed(path: Path, into: Path, *options: str) -> Trace:
    """Return a trace.dat as it is read from its printed form."""
    into.write_text(process.run(["trace-cmd", "report", *options, str(path)], timeout_s=600).stdout)
    return tracedat.read(into)


def values(trace: Trace, event: str, column: str) -> list[object]:
    """Return a column, functions by their names."""
    found = trace.frame(event)[column].tolist()
    return [trace.symbol(value) for value in found] if column == "function" else found


@needs("trace-cmd")
@pytest.mark.parametrize("options", [["-R", "-t"], ["-t"], ["-N", "-t"]], ids=" ".join)
@pytest.mark.parametrize("name", ["traces/small_v7_mono.dat", "dio_kworker/traces"])
def test_what_trace_cmd_prints_is_the_trace(name: str, options: list[str], tmp_path: Path) -> None:
    path = REFERENCE / name
    path = path if path.is_file() else min(path.iterdir())
    exact, text = tracedat.read(path), printed(path, tmp_path / "report.txt", *options)
    assert text.events == {event: n for event, n in exact.events.items() if n}
    assert "unread" not in text.info.options
    assert text.info.cpus == exact.info.cpus
    assert text.info.buffers in (exact.info.buffers, exact.info.buffers[1:])
    compared = 0
    for event in ("sched_switch", "sched_waking", "sched_migrate_task", "block_rq_issue"):
        for column in map(str, text.frame(event) if event in text.events else ()):
            # A report has no flags, and trace-cmd's own form of a switch does not tell preempted
            # tasks from others that run.
            if column != "common_flags" and (column, options) != ("prev_state", ["-t"]):
                assert values(text, event, column) == values(exact, event, column), column
                compared += 1
    assert compared > 20


@needs("trace-cmd")
def test_an_analysis_of_a_text_is_that_of_its_trace(tmp_path: Path) -> None:
    path = min((REFERENCE / "dio_kworker/traces").iterdir())
    exact, text = tracedat.read(path), printed(path, tmp_path / "report.txt", "-N", "-t")
    ours, theirs = io_path(text).ios, io_path(exact).ios
    assert len(ours) > 100
    for column in ours:
        assert ours[column].astype(str).tolist() == theirs[column].astype(str).tolist(), column
    assert intervals(text)["end_ns"].tolist() == intervals(exact)["end_ns"].tolist()


@needs("trace-cmd")
def test_events_of_one_microsecond_keep_their_order(tmp_path: Path) -> None:
    path = REFERENCE / "traces/small_v7_mono.dat"
    exact, text = tracedat.read(path), printed(path, tmp_path / "report.txt")
    both = [
        np.concatenate([of.frame(event)["timestamp_ns"] for event in text.events])
        for of in (exact, text)
    ]
    assert np.abs(both[0] - both[1]).max() < 1000
    assert np.unique(both[1]).size == both[1].size
    assert (np.argsort(both[0], kind="stable") == np.argsort(both[1], kind="stable")).all()


def test_the_kernels_own_text_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(_SCHED)
    trace = tracedat.read(path, between=(10_000_001_000, 10_000_002_000))
    switch = trace.frame("sched_switch")
    assert switch["timestamp_ns"].tolist() == [10_000_001_000, 10_000_001_001]
    assert switch["prev_comm"].tolist() == ["Web Content", "kworker/1:0"]
    assert switch["prev_state"].tolist() == [256, 128]
    assert trace.formats["sched_switch"].preempted_bit == 256
    assert tracedat.read(path).frame("sched_waking")["common_flags"].tolist() == [0x08]
    assert trace.comms[3121] == "Web Content"
    assert trace.events == {"sched_switch": 2, "sched_waking": 0}
    assert trace.losses[["cpu", "count"]].to_dict("records") == [{"cpu": 1, "count": 52}]


def test_what_is_no_event_is_counted_and_said(tmp_path: Path) -> None:
    path = tmp_path / "mail.txt"
    path.write_text(
        f"Hello,\nhere is my trace:\n{_SCHED}\nfio-9 [000] 11.0: half a line\n" + "x" * 9999
    )
    with (
        pytest.warns(UserWarning, match="4 lines"),
        pytest.warns(UserWarning, match="lost events"),
    ):
        trace = iolab.read_trace(path)
    assert len(trace.frame("sched_switch")) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello,\nhere is no trace.\n", "neither a"),
        (f"{_OF_A} 1.000000: e: k=1\n{_OF_B} 1.000000: e: k=1\n", "several buffers"),
        ("  fio-9   0d..2.  1.000000: sched_switch: 7:9 [120] S ==> a:8 [120]\n", "without -l"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        tracedat.read(path)


def test_a_time_beyond_all_traces_is_no_event(tmp_path: Path) -> None:
    late = _SCHED.replace("10.000003", "9999999999.000003")
    (tmp_path / "late.txt").write_text(late)
    trace = tracedat.read(tmp_path / "late.txt")
    assert trace.events == {"sched_switch": 2}
    assert trace.info.options == {"unread": "1"}


def test_a_buffer_and_an_event_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(f"{_OF_A} 1.000000: e: k=1\n{_OF_B} 1.000000: f: k=2\n")
    assert tracedat.read(path, buffer="b").events == {"f": 1}
    with pytest.raises(RequestError, match="no buffer"):
        tracedat.read(path, buffer="c")
    with pytest.raises(RequestError, match="did you mean"):
        tracedat.read(path, ["ef"], buffer="a")


@pytest.mark.parametrize(
    "value",
    [
        "9" * 5000,
        "0x" + "f" * 17,
        "-1 x",
        "",
        "18446744073709551615",
        "-9223372036854775809",
        "8:0",
    ],
)
def test_a_value_of_any_kind_is_a_number_or_a_text(value: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    names = ("dev", "work", "function", "k", "prev_state")
    path.write_text(
        "".join(
            f"x-1 [000] 1.00000{n}: sched_switch: {name}={value}\n" for n, name in enumerate(names)
        )
    )
    if len(value) > 1024:
        with pytest.raises(TraceError, match="neither a"):
            tracedat.read(path)
    else:
        assert len(tracedat.read(path).frame("sched_switch")) == 1


def test_a_task_may_be_named_as_a_number_and_a_line_be_quoted(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("> >   7-9 [000] 1.000000: sched_wakeup: 7:9 [120] CPU:000\n")
    trace = tracedat.read(path)
    assert trace.frame("sched_wakeup")["comm"].tolist() == ["7"]
    assert trace.comms == {9: "7"}


@pytest.mark.parametrize(
    ("comm", "state", "number"),
    [
        ("tmux: server", "S", 1),
        ("a b=c", "S", 1),
        ("fi\u2028o", "I", 128),
        ("my-app 7", "P", 64),
        ("fio", "R", 0),
        ("fio", "S ==&gt;", None),
    ],
)
def test_a_task_of_any_name_and_state_is_read_or_its_line_counted(
    comm: str, state: str, number: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "text"
    front = f"{comm:>16}-12    [000] 1.000000: sched_switch:"
    path.write_text(
        "\ufeffversion = 6\nCPU 1 is empty\ncpus=2\n"
        f"{front} {comm}:12 [120] {state} ==> fio:13 [120] Latency: 1.500 usecs\n"
        f"{front} (+3)   prev_comm={comm} prev_pid=12 prev_prio=120 prev_state={state} ==> "
        "next_comm=fio next_pid=13 next_prio=120\n"
        f"{front.replace('sched_switch', '(+3)   sched_wakeup')} comm={comm} pid=12\n"
    )
    trace = tracedat.read(path)
    read = [] if number is None else trace.frame("sched_switch")["prev_state"].tolist()
    assert read == [number] * len(read)
    assert set(trace.comms.values()) == {comm}
    assert trace.frame("sched_wakeup")["comm"].tolist() == [comm]
    assert trace.info.options.get("unread", "0") == str(2 - len(read))


def test_lines_that_a_mail_has_cut_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(
        "x-1 [000] 1.000: sched_switch: prev_comm=x prev_pid=1 prev_prio=120 prev_state=S\n"
    )
    with pytest.raises(RequestError, match="next_comm"):
        intervals(tracedat.read(path))
    with pytest.raises(RequestError, match="next_comm"):
        tracedat.perfetto_bytes(tracedat.read(path))


def test_an_old_kernel_prints_no_function_at_the_end_of_a_work_item(tmp_path: Path) -> None:
    path = tmp_path / "text"
    front = "x-1 [000] 1.0000"
    path.write_text(
        f"{front}: workqueue_execute_start: work struct ffff1234: function flush\n"
        f"{front}: workqueue_execute_end: work struct ffff1234\n"
    )
    assert b"flush" in tracedat.perfetto_bytes(tracedat.read(path))
