# SPDX-License-Identifier: MIT
"""Real traces, event by event and field by field as trace-cmd reports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iolab_base import process
from tests.support.needs import lack, need, wants
from tests.support.oracle import differences, report
from tests.support.trace_writer import EVENTS, Page, encode, trace_v6, trace_v7
from tests.tracedat.conftest import big_traces
from tracedat import read

TRACEFS = Path("/sys/kernel/tracing")


def test_small_trace(small: Path, trace_cmd: str) -> None:
    assert list(differences(read(small), report(small))) == []


@pytest.mark.parametrize("path", big_traces() or [None], ids=lambda p: p.name if p else "none")
def test_big_traces(path: Path | None, trace_cmd: str) -> None:
    if path is None:
        lack("large traces", "set IOLAB_TRACES to a folder of some")
    assert list(differences(read(path), report(path))) == []


KALLSYMS = b"""\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t iomap_dio_complete_work
ffffffff81000080 T schedule
ffffffff81000100 D jiffies
ffffffffc0000000 t xfs_end_io\t[xfs]
ffffffffc0000020 t xlog_ioend_work\t[xfs]
ffffffffa0000000 t ext4_end_io_rsv_work\t[ext4]
"""
ADDRESSES = {
    0x5: "0x5",
    0xFFFFFFFF81000000: "_stext",
    0xFFFFFFFF81000040: "iomap_dio_complete_work",
    0xFFFFFFFF81000050: "iomap_dio_complete_work",
    0xFFFFFFFF81000080: "schedule",
    0xFFFFFFFFA0000000: "ext4_end_io_rsv_work",
    0xFFFFFFFFC0000000: "xfs_end_io",
    0xFFFFFFFFC0000020: "xlog_ioend_work",
    0xFFFFFFFFC0000090: "0xffffffffc0000090",
}


@pytest.mark.parametrize("version", [6, 7])
def test_symbols(version: int, tmp_path: Path, trace_cmd: str) -> None:
    start = EVENTS["workqueue_execute_start"]
    page = Page(1000)
    for address in ADDRESSES:
        page.event(10, encode(start, 7, {"function": address}))
    if version == 6:
        data = trace_v6([start], [[page]], kallsyms=KALLSYMS)
    else:
        data = trace_v7([start], [[page]], kallsyms=KALLSYMS, compression="zstd")
    path = tmp_path / "t.dat"
    path.write_bytes(data)
    trace = read(path)
    assert {address: trace.symbol(address) for address in ADDRESSES} == ADDRESSES
    text = process.run([trace_cmd, "report", str(path)], timeout_s=60).stdout
    printed = [line.split()[-1] for line in text.splitlines() if "function" in line]
    assert printed == [trace.symbol(address) for address in ADDRESSES]


def test_kernel_functions(small: Path, trace_cmd: str) -> None:
    trace = read(small, ["sched_switch"])
    listed = process.run([trace_cmd, "dump", "--kallsyms", str(small)], timeout_s=60).stdout
    functions = {
        int(words[0], 16): words[2]
        for words in map(str.split, reversed(listed.splitlines()))
        if len(words) >= 3 and words[1] in {"t", "T"}
    }
    some = sorted(functions)[::1000]
    assert len(some) > 50
    assert [trace.symbol(address) for address in some] == [functions[a] for a in some]


@pytest.fixture
def tracefs() -> Iterator[Path]:
    """Give the tracing folder; put back what a recording leaves changed."""
    need("root")
    if not (TRACEFS / "tracing_on").exists():
        lack("a mounted tracefs")
    tracer = (TRACEFS / "current_tracer").read_text().strip()
    if tracer != "nop" or (TRACEFS / "set_event").read_text().strip():
        lack("a tracefs that nobody else uses")
    kept = {
        name: (TRACEFS / name).read_text().split()[0]
        for name in ("tracing_on", "buffer_size_kb", "buffer_subbuf_size_kb")
        if (TRACEFS / name).exists()
    }
    clock = (TRACEFS / "trace_clock").read_text().partition("[")[2].partition("]")[0]
    yield TRACEFS
    # trace-cmd leaves its events, its filter, its clock and its instance behind.
    instance = TRACEFS / "instances" / "iolab_test"
    if instance.is_dir():
        instance.rmdir()
    (TRACEFS / "set_event").write_text("")
    (TRACEFS / "events" / "sched" / "filter").write_text("0")
    (TRACEFS / "trace_clock").write_text(clock)
    for name, value in kept.items():
        (TRACEFS / name).write_text(value)


RECORDINGS = {
    "v7": ["-e", "sched", "-e", "block", "-e", "irq"],
    "v7-plain": ["--compression", "none", "-e", "sched", "-e", "workqueue"],
    "v6": ["--file-version", "6", "-e", "sched", "-e", "workqueue"],
    "instance": ["-e", "sched_waking", "-B", "iolab_test", "-e", "sched"],
    "instance-v6": ["--file-version", "6", "-e", "sched_waking", "-B", "iolab_test", "-e", "sched"],
    "filtered": ["-e", "sched_switch", "-f", "prev_pid != 0 && next_prio > 100"],
    "lossy": ["-b", "8", "-e", "sched", "-e", "syscalls", "-e", "kmem"],
    "syscalls": ["-e", "syscalls"],
    "date": ["--date", "-e", "sched"],
    "cycles": ["-C", "x86-tsc", "-e", "sched"],
}


@pytest.mark.parametrize("how", RECORDINGS)
def test_recorded_now(tmp_path: Path, trace_cmd: str, tracefs: Path, how: str) -> None:
    path = tmp_path / "t.dat"
    # trace-cmd reads whole sub-buffers: enough tasks to fill some.
    load = ["sh", "-c", "for i in $(seq 200); do ls /; done | sort | head -1"]
    clock = [] if "-C" in RECORDINGS[how] else ["-C", "mono"]
    argv: list[str | Path] = [
        trace_cmd,
        "record",
        "-q",
        "-d",
        "-k",
        "-o",
        path,
        *clock,
        *RECORDINGS[how],
        *load,
    ]
    with wants("the tracer of this recording", process.CommandError):
        process.run(argv, timeout_s=60, cwd=tmp_path)
    trace = read(path)
    assert sum(trace.events.values()) > 10
    assert list(differences(trace, report(path))) == []
    if how == "lossy":
        assert (trace.losses["source"] == "page").any()


def test_larger_sub_buffers(tmp_path: Path, trace_cmd: str, tracefs: Path) -> None:
    size = tracefs / "buffer_subbuf_size_kb"
    if not size.exists():
        lack("sub-buffers of several sizes")
    with wants("sub-buffers of several sizes", OSError):
        size.write_text("16")
    test_recorded_now(tmp_path, trace_cmd, tracefs, "v7")
