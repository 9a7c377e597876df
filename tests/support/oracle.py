# SPDX-License-Identifier: MIT
"""Comparing a Trace with ``trace-cmd report -R -t``: every event, every field it prints."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from iolab_base import process
from tracedat import Trace

_LINE = re.compile(
    r"^\s*(?:(?P<buffer>[^\s:]+):\s+)?(?P<comm>.*)-(?P<pid>\d+) +\[(?P<cpu>\d+)\] *"
    r"(?P<time>[\d.]+): (?P<event>[\w-]+): *(?P<rest>.*)$"
)
_DROPPED = re.compile(r"CPU:(?P<cpu>\d+) \[(?:(?P<count>\d+) )?EVENTS DROPPED\]")


def report(path: Path) -> str:
    """Return what trace-cmd makes of a file."""
    return process.run(["trace-cmd", "report", "-R", "-t", str(path)], timeout_s=600).stdout


def differences(trace: Trace, text: str) -> Iterator[str]:
    """Give a sentence for every difference between a trace and its report."""
    rows: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    drops: list[tuple[int, int | None]] = []
    for line in text.splitlines():
        if found := _LINE.match(line):
            rows[found["event"]].append(
                (found["buffer"] or "", found["cpu"], found["time"], found["pid"], found["rest"])
            )
        elif lost := _DROPPED.search(line):
            drops.append((int(lost["cpu"]), int(lost["count"]) if lost["count"] else None))
    counts = {name: n for name, n in trace.events.items() if n}
    if counts != {name: len(r) for name, r in rows.items()}:
        mine, theirs = sum(counts.values()), sum(map(len, rows.values()))
        yield f"{mine} events in {len(counts)} types, report has {theirs} in {len(rows)}"
        return
    for name, lines in rows.items():
        yield from _event(trace, name, lines)
    pages = trace.losses[trace.losses["source"] == "page"]
    found_drops = [
        (int(cpu), None if pd.isna(count) else int(count))
        for cpu, count in zip(pages["cpu"], pages["count"], strict=True)
    ]
    if sorted(found_drops, key=str) != sorted(drops, key=str):
        yield f"losses {found_drops[:5]}…, report has {drops[:5]}…"


def _event(trace: Trace, name: str, lines: list[tuple[str, ...]]) -> Iterator[str]:
    frame = trace.frame(name)
    head = zip(*(line[:4] for line in lines), strict=True)
    buffers, cpus, times, pids = (list(column) for column in head)
    stamps = [int(t.replace(".", "")) for t in times]
    for column, theirs in (
        ("timestamp_ns", stamps),
        ("common_cpu", [int(c) for c in cpus]),
        ("common_pid", [int(p) for p in pids]),
    ):
        if frame[column].tolist() != theirs:
            yield f"{name}.{column} differs"
    if "common_buffer" in frame and frame["common_buffer"].tolist() != buffers:
        yield f"{name}.common_buffer differs"
    fields = [
        c
        for c in trace.formats[name].columns
        if not c.name.startswith("common_") and "[" not in c.name
    ]
    # The report prints an array's elements byte by byte.
    texts = {c.name: [] for c in fields}  # type: dict[str, list[str]]
    for line in lines:
        rest = " " + line[4]
        places = [(rest.find(f" {c.name}="), c.name) for c in fields]
        cuts = sorted(p for p in places if p[0] >= 0)
        ends = [p[0] for p in cuts[1:]] + [len(rest)]
        for (at, field), end in zip(cuts, ends, strict=True):
            texts[field].append(rest[at + len(field) + 2 : end])
    for c in fields:
        theirs_text = texts[c.name]
        if len(theirs_text) != len(lines):
            continue
        values = frame[c.name].tolist()
        if c.table is None:
            yield from _integers(name, c.name, values, theirs_text, 8 * c.size)
        elif isinstance(frame[c.name].cat.categories.dtype, pd.StringDtype) or not all(
            isinstance(v, bytes) for v in values
        ):
            for mine, text in zip(values, theirs_text, strict=True):
                if str(mine).rstrip() != text.rstrip() and not text.startswith("ARRAY["):
                    yield f"{name}.{c.name}: {mine!r}, report has {text!r}"
                    break


def _integers(
    event: str, field: str, values: list[int], texts: list[str], bits: int
) -> Iterator[str]:
    mask = (1 << bits) - 1
    for mine, text in zip(values, texts, strict=True):
        # Numbers come as the print format wants them: decimal, octal, hexadecimal.
        both = {int(text, base) & mask for base in (8, 10, 16) if _number(text, base)}
        both |= {0} if text == "(nil)" else set()
        # Addresses come as symbols.
        if both and mine & mask not in both:
            yield f"{event}.{field}: {mine}, report has {text!r}"
            return


def _number(text: str, base: int) -> bool:
    try:
        int(text, base)
    except ValueError:
        return False
    return True
