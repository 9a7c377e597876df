# SPDX-License-Identifier: MIT
"""Damaged files: an error that says where, or a whole trace; never a crash, a hang, a surprise."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.trace_writer import EVENTS, Page, encode, trace_v6, trace_v7
from tracedat import Trace, TraceError, read


def content() -> list[list[Page]]:
    rng = random.Random(3)
    cpus = []
    for cpu in range(2):
        pages = [Page(1_000_000 + cpu, size=1024)]
        for i in range(40):
            kind = rng.choice(list(EVENTS.values()))
            values = {
                "comm": f"c{i % 7}",
                "workqueue": "kblockd",
                "cmd": "",
                "tail": "tail" * 8,
                "rwbs": "R",
            }
            fill = {
                f: values.get(f, b"") if a else rng.randrange(1 << 31) for _, f, a in kind.fields
            }
            data = encode(kind, 100 + cpu, fill)
            if not pages[-1].room(len(data) + 40):
                pages.append(Page(1_000_000 + 5000 * i, size=1024, lost=i))
            pages[-1].extend(1 << 5).event(rng.randrange(90), data).discarded(3, 12)
        cpus.append(pages)
    return cpus


BASES: dict[str, Callable[[], bytes]] = {
    "v6": lambda: trace_v6(list(EVENTS.values()), content(), comms={1: "init"}, page_size=1024),
    **{
        how: lambda how=how: trace_v7(  # type: ignore[misc]
            list(EVENTS.values()),
            {"": content(), "other": content()},
            compression=how,
            comms={1: "init", 100: "a b"},
            stats={0: {"overrun": 3}},
            page_size=1024,
        )
        for how in ("none", "zlib", "zstd")
    },
}


def mutate(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(made))
        match rng.randrange(8):
            case 0 | 1 | 2:
                made[at] ^= 1 << rng.randrange(8)
            case 3:
                made[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 4:
                number = rng.choice([0, 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1])
                width = rng.choice([4, 8])
                made[at : at + width] = struct.pack("<Q", number)[:width]
            case 5:
                del made[at:]
            case 6:
                made[at : at + rng.randrange(64)] = bytes(rng.randrange(64))
            case _:
                other = rng.randrange(len(made))
                made[at : at + 32] = made[other : other + 32]
        if not made:
            break
    return bytes(made)


def examine(trace: Trace) -> None:
    for name, count in trace.events.items():
        frame = trace.frame(name)
        assert len(frame) == count
        assert frame["timestamp_ns"].is_monotonic_increasing
        for column in frame.select_dtypes("category"):
            codes = frame[column].cat.codes
            assert not count or 0 <= codes.min() <= codes.max() < len(frame[column].cat.categories)


@pytest.mark.parametrize("mutations", [200, pytest.param(2600, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("base", BASES)
def test_mutated_files(tmp_path: Path, base: str, mutations: int) -> None:
    data = BASES[base]()
    path = tmp_path / "t.dat"
    path.write_bytes(data)
    examine(read(path))
    rng = random.Random(7)
    errors = 0
    for i in range(mutations):
        path.write_bytes(mutate(data, rng))
        try:
            trace = read(path)
        except TraceError as error:
            errors += str(path) in str(error)
        else:
            if i % 10 == 0:
                examine(trace)
    assert errors > mutations // 4
