# SPDX-License-Identifier: MIT
"""Damage in one compressed part of a file: which part an error names, and when."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support.trace_writer import EVENTS, Page, encode, trace_v7
from tracedat import TraceError, read

WORK = EVENTS["workqueue_queue_work"]
# The first bytes of a zstd frame (RFC 8878).
MAGIC = struct.pack("<I", 0xFD2FB528)


def chunked() -> bytes:
    """Return a file with four chunks of two pages, and with a kernel function."""
    values: dict[str, int | str | bytes] = {field: 1 for field, _, _ in WORK.fields}
    values["workqueue"] = "events"
    data = encode(WORK, 7, values)
    pages = [Page(1000 * i).event(5, data) for i in range(8)]
    return trace_v7([WORK], [pages], compression="zstd", kallsyms=b"0000000000000f00 t here\n" * 2)


def frame_places(data: bytes) -> list[int]:
    return [at for at in range(len(data)) if data.startswith(MAGIC, at)]


def test_the_damaged_chunk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = chunked()
    at = frame_places(data)[-2]
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    with pytest.raises(TraceError, match=f"offset {at:#x}: a chunk of CPU 0 is damaged"):
        read(path)


def test_damaged_symbols_show_at_the_first_name(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    data = chunked()
    path.write_bytes(data)
    assert read(path).symbol(0xF00) == "here"
    # The sections in order: headers, formats, symbols.
    at = frame_places(data)[2]
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    trace = read(path)
    assert trace.events == {"workqueue_queue_work": 8}
    with pytest.raises(TraceError, match="section 'kallsyms' is damaged"):
        trace.symbol(0xF00)
