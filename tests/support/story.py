# SPDX-License-Identifier: MIT
"""Small traces that tell a known story."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.trace_writer import EVENTS, Page, encode, trace_v7
from tracedat import Trace, read

# (time in ns, cpu, pid of the context, event, fields)
Line = tuple[int, int, int, str, dict[str, int | str | bytes]]

PREEMPTED = 0x100


def write(path: Path, lines: Sequence[Line], **options: object) -> Path:
    """Write the lines as a trace.dat."""
    cpus: dict[int, list[Page]] = {}
    times: dict[int, int] = {}
    for time, cpu, pid, name, fields in sorted(lines, key=lambda line: line[0]):
        flags = int(fields.get("flags", 0))
        values = {k: v for k, v in fields.items() if k != "flags"}
        data = encode(EVENTS[name], pid, values, flags=flags)
        pages = cpus.setdefault(cpu, [])
        if not pages or not pages[-1].room(len(data)):
            pages.append(Page(time))
            times[cpu] = time
        pages[-1].event(time - times[cpu], data)
        times[cpu] = time
    filled = [cpus.get(cpu, []) for cpu in range(max(cpus, default=0) + 1)]
    path.write_bytes(trace_v7(list(EVENTS.values()), filled, **options))  # type: ignore[arg-type]
    return path


def story(path: Path, lines: Sequence[Line]) -> Trace:
    """Return the lines as a Trace."""
    return read(write(path / "story.dat", lines))


def switch(time: int, cpu: int, out: tuple[int, str], state: int, into: tuple[int, str]) -> Line:
    fields: dict[str, int | str | bytes] = {
        "prev_pid": out[0],
        "prev_comm": out[1],
        "prev_state": state,
        "next_pid": into[0],
        "next_comm": into[1],
    }
    return time, cpu, out[0], "sched_switch", fields


def waking(time: int, cpu: int, by: int, task: tuple[int, str], *, flags: int = 0) -> Line:
    return time, cpu, by, "sched_waking", {"pid": task[0], "comm": task[1], "flags": flags}


def block(
    time: int, cpu: int, pid: int, name: str, sector: int, dev: int = 7, comm: str = "fio"
) -> Line:
    fields: dict[str, int | str | bytes] = {
        "dev": dev,
        "sector": sector,
        "nr_sector": 8,
        "rwbs": "WS",
        "comm": comm,
        "cmd": "",
    }
    return time, cpu, pid, name, fields


def work(time: int, cpu: int, pid: int, what: str, address: int, queue: str = "dio/sda") -> Line:
    name = {"queue": "queue_work", "start": "execute_start", "end": "execute_end"}[what]
    fields: dict[str, int | str | bytes] = {"work": address, "function": 0xF00}
    if what == "queue":
        fields |= {"workqueue": queue, "cpu": cpu}
    return time, cpu, pid, f"workqueue_{name}", fields


def writeback(time: int, cpu: int, pid: int, what: str) -> Line:
    return time, cpu, pid, f"writeback_{what}", {"name": "254:0", "nr_pages": 1024}
