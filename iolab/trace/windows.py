# SPDX-License-Identifier: MIT
"""A trace larger than memory, one window of time after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from iolab.errors import UserError
from iolab.trace.cursor import TraceFile
from iolab.trace.decode import Plan, plan, run
from iolab.trace.index import Index
from iolab.trace.trace import Trace

__all__ = ["windows"]

_LAST = (1 << 63) - 1


def windows(
    path: str | Path, ns: int, events: Sequence[str] | None = None, *, buffer: str | None = None
) -> Iterator[Trace]:
    """Give a trace in windows of `ns` nanoseconds, counted from its first page's time.

    Every event is in exactly one window; windows without events are left out. Memory is that of
    one window and about a MiB for each CPU. The sums of the kernel's own loss counters, which
    have no time, are in each window's losses.

    Errors: those of `read`, for damage when its window is reached; UserError for a window that
    is not longer than nothing.
    """
    if ns <= 0:
        raise UserError(f"a window of {ns} ns")
    with TraceFile(Path(path)) as file:
        what = plan(file, events, buffer)
        index = Index(file, what.container, what.sources)
        if index.first is None:
            return
        origin = what.clock.time_of(index.first)
        number: int | None = 0
        while number is not None:
            between = (origin + number * ns, origin + (number + 1) * ns)
            begin, end = what.clock.raw_span(between)
            trace = run(what, index.parts(begin, end), begin, end, between)
            if any(trace.events.values()):
                yield trace
                number += 1
            else:
                number = _next(what, index, end, origin, ns)


def _next(what: Plan, index: Index, end: int, origin: int, ns: int) -> int | None:
    """Return the number of the next window with an event at raw time `end` or later."""
    times = []
    # A step that begins before may go on behind.
    rest = run(what, index.parts(end, end + 1), end, _LAST, None)
    if any(rest.events.values()):
        times.append(rest.span[0])
    following = index.following(end)
    if following is not None:
        times.append(what.clock.time_of(following))
    return (min(times) - origin) // ns if times else None
