# SPDX-License-Identifier: MIT
"""The description of a trace.dat: its head, sections and options."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.trace_writer import EVENTS, Page, _option, encode, trace_v6, trace_v7
from tracedat import TooLargeError, TraceError, read
from tracedat._container import Container, read_container
from tracedat._file import TraceFile

WAKING = EVENTS["sched_waking"]
# The first bytes of a zstd frame (RFC 8878).
_FRAME = struct.pack("<I", 0xFD2FB528)


def small(**different: object) -> bytes:
    data = encode(EVENTS["sched_waking"], 7, {"comm": "a", "pid": 9})
    pages = [Page(1000 * i).event(5, data) for i in range(3)]
    return trace_v7([EVENTS["sched_waking"]], [pages], **different)  # type: ignore[arg-type]


def _read(path: Path, data: bytes) -> Container:
    path.write_bytes(data)
    with TraceFile(path) as file:
        return read_container(file)


@pytest.mark.parametrize("version", [6, 7])
def test_a_file_says_what_was_recorded(version: int, tmp_path: Path) -> None:
    pages = [[Page(5)], [], [Page(6), Page(7)]]
    options = _option(5, b"Linux host 6.1\0") + _option(9, b"3.1\0") + _option(7, b"-5\0")
    options += _option(1, b"0x10\0")
    write = trace_v6 if version == 6 else trace_v7
    data = write([WAKING], pages, comms={7: "a b"}, kallsyms=b"1 t f\n", options=options)
    found = _read(tmp_path / "t.dat", data)
    assert (found.version, found.compression) == (version, "none")
    assert found.formats == [("sched", WAKING.text())]
    assert (found.cmdlines, found.kallsyms()) == ("7 a b\n", b"1 t f\n")
    assert found.options == {"uname": "Linux host 6.1", "trace-cmd": "3.1"}
    assert found.offset_ns == 16_000 - 5
    (buffer,) = found.buffers
    assert (buffer.name, buffer.clock, buffer.compressed) == ("", "mono", False)
    assert [(cpu.cpu, cpu.size) for cpu in buffer.cpus] == [(0, 4096), (1, 0), (2, 8192)]
    # The first 8 bytes of a page are its time.
    times = [data[cpu.offset : cpu.offset + 8] for cpu in buffer.cpus if cpu.size]
    assert times == [struct.pack("<Q", 5), struct.pack("<Q", 6)]


def test_the_top_buffer_is_the_first(tmp_path: Path) -> None:
    buffers = {"b": [[Page(1)]], "": [[Page(2)]], "a": [[Page(3)]]}
    found = _read(tmp_path / "t.dat", trace_v7([WAKING], buffers, compression="zlib"))
    assert [buffer.name for buffer in found.buffers] == ["", "b", "a"]
    assert all(buffer.compressed for buffer in found.buffers)
    assert found.buffers[0].page_size == 4096


@pytest.mark.parametrize(
    ("options", "noun"),
    [
        (_option(14, struct.pack("<IIQ", 1, 64, 0)), "shift"),
        (_option(12, bytes(4)), "host and guest"),
        (_option(7, b"soon\0"), "number"),
        (_option(22, bytes(8)), "latency"),
        (_option(8, struct.pack("<I", 1 << 16)), "CPUs"),
        (_option(7, str(1 << 63).encode() + b"\0"), "offset"),
        (struct.pack("<HI", 99, 1 << 20), "truncated"),
    ],
)
def test_an_option_that_cannot_be_is_named(options: bytes, noun: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=noun):
        _read(tmp_path / "t.dat", small(options=options))


@pytest.mark.parametrize("version", [6, 7])
def test_pages_beyond_the_end_of_the_file_are_named(version: int, tmp_path: Path) -> None:
    write = trace_v6 if version == 6 else trace_v7
    data = write([WAKING], [[Page(5)], [Page(6)]])
    size = struct.pack("<Q", 4096)
    at = data.rindex(size, 0, data.rindex(size))
    with pytest.raises(TraceError, match="CPU 0"):
        _read(tmp_path / "t.dat", data[:at] + struct.pack("<Q", 1 << 40) + data[at + 8 :])


def test_cpus_that_share_pages_are_refused(tmp_path: Path) -> None:
    data = trace_v7([WAKING], [[Page(5)] * 8, [Page(6)] * 8])
    place, size = data.rindex(struct.pack("<Q", 8 * 4096)), 8 * 4096
    cpu = struct.pack("<Q", size)
    first = data.rindex(cpu, 0, place)
    # The second CPU has the pages of both.
    both = data[: place - 8] + data[first - 8 : first] + struct.pack("<Q", 2 * size)
    with pytest.raises(TooLargeError, match="share"):
        _read(tmp_path / "t.dat", both + data[place + 8 :])


@pytest.mark.parametrize("size", [0, 1, 9, 10, 12, 17, 40, 300])
def test_truncated_heads(tmp_path: Path, size: int) -> None:
    path = tmp_path / "t.dat"
    path.write_bytes(small(compression="zstd")[:size])
    with pytest.raises(TraceError):
        read(path)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, b"\x18", "magic"),
        (10, b"5", "version '5'"),
        (12, b"\1", "byte order big endian"),
        (12, b"\7", "byte order 7"),
        (13, b"\3", "long of 3 bytes"),
        (18, b"lzma", "compression 'lzma'"),
    ],
)
def test_foreign_heads(tmp_path: Path, offset: int, value: bytes, message: str) -> None:
    data = bytearray(small(compression="zstd"))
    data[offset : offset + len(value)] = value
    path = tmp_path / "t.dat"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("text", "overrun"),
    [("9" * 400, None), ("9" * 19, None), ("9" * 16, 10**16), ("\u0662", None), ("7", 7)],
)
def test_a_counter_has_the_digits_of_a_counter(
    text: str, overrun: int | None, tmp_path: Path
) -> None:
    counters = _option(2, f"CPU: 0\noverrun: {text}\n".encode() + b"\0")
    (tmp_path / "t.dat").write_bytes(small(options=counters))
    losses = read(tmp_path / "t.dat").losses
    assert [int(n) for n in losses["count"]] == ([] if overrun is None else [overrun])


def test_a_task_is_named_by_a_number(tmp_path: Path) -> None:
    names = {"1": "init", "\u00b2": "no digit", "9" * 5000: "no pid", "12": "a b"}
    (tmp_path / "t.dat").write_bytes(small(comms=names))
    assert read(tmp_path / "t.dat").comms == {1: "init", 12: "a b"}


def test_damaged_symbols_show_at_the_first_name(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = small(compression="zstd", kallsyms=b"0000000000000f00 t here\n" * 2)
    path.write_bytes(data)
    assert read(path).symbol(0xF00) == "here"
    # The sections in order: headers, formats, symbols.
    at = len(_FRAME.join(data.split(_FRAME)[:3]))
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    trace = read(path)
    assert trace.events == {"sched_waking": 3}
    with pytest.raises(TraceError, match="section 'kallsyms' is damaged"):
        trace.symbol(0xF00)
