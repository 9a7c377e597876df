# SPDX-License-Identifier: MIT
"""Traces in which fio and a kworker take turns."""

from __future__ import annotations

from pathlib import Path

from tests.support.story import PREEMPTED, Line, switch, waking, work, write
from tracedat import Trace, read

FIO, WORKER, IDLE = (10, "fio"), (20, "kworker/0:1"), (0, "swapper/0")
LANES = {"fio": "fio", "kworker": "kworker/.*"}
KALLSYMS = b"0000000000000f00 t iomap_dio_complete_work\n0000000000001f00 t last\n"


def turns(count: int, start: int = 1000, every: int = 100_000) -> list[Line]:
    """Return turns of 100 µs: the worker runs 40, wakes fio at 10, is put off by it for 60."""
    lines: list[Line] = []
    for t in range(start, start + every * count, every):
        lines.append(switch(t, 0, FIO, 1, WORKER))
        lines.append(work(t + 2_000, 0, 20, "start", 0xA))
        lines.append(waking(t + 10_000, 0, 20, FIO))
        lines.append(work(t + 12_000, 0, 20, "end", 0xA))
        lines.append(switch(t + 40_000, 0, WORKER, PREEMPTED, FIO))
    return lines


def turning(path: Path, count: int = 9) -> Trace:
    queued = work(500, 0, 10, "queue", 0xA)
    return read(write(path / "turns.dat", [queued, *turns(count)], kallsyms=KALLSYMS))
