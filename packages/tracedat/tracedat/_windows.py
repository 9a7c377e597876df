# SPDX-License-Identifier: MIT
"""Read a trace that is larger than memory, one window of time after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from iolab.errors import UserError
from tracedat._decode import Plan, plan, run
from tracedat._file import TraceFile
from tracedat._index import Index
from tracedat._memory import Room
from tracedat._trace import Trace

__all__ = ["windows"]

_LAST = (1 << 63) - 1


def windows(
    path: str | Path, ns: int, events: Sequence[str] | None = None, *, buffer: str | None = None
) -> Iterator[Trace]:
    """Yield a trace in windows of `ns` nanoseconds, counted from the time of its first page.

    Every event is in exactly one window; windows without events are skipped. Memory holds one
    window and about a MiB for each CPU. The kernel's loss counters carry no time: every window's
    losses have them.

    Parameters
    ----------
    path : str or Path
        A trace.dat.
    ns : int
        Length of a window in nanoseconds.
    events, buffer
        As for `tracedat.read`.

    Yields
    ------
    Trace
        The events of one window; `Trace.between` has its limits.

    Raises
    ------
    UserError
        If `ns` is not positive, or as `tracedat.read`.
    TraceError
        As `tracedat.read`; damaged records raise it when their window is reached.

    Examples
    --------
    >>> from iolab.paths import REFERENCE
    >>> path = REFERENCE / "traces" / "small_v7_mono.dat"
    >>> sum(w.events["sched_switch"] for w in windows(path, 100_000_000, ["sched_switch"]))
    16154
    """
    if ns <= 0:
        raise UserError(f"a window of {ns} ns: its length must be positive")
    with TraceFile(Path(path)) as file:
        todo = plan(file, events, buffer)
        index = Index(file, todo.container, todo.sources)
        if index.first is None:
            return
        origin = todo.clock.time_of(index.first)
        number: int | None = 0
        while number is not None:
            between = (origin + number * ns, origin + (number + 1) * ns)
            begin, end = todo.clock.raw_span(between)
            room = Room(file.path)
            parts = index.parts(begin, end, room)
            trace = run(todo, parts, begin, end, between, room=room)
            if any(trace.events.values()):
                yield trace
                number += 1
            else:
                number = _next(todo, index, end, origin, ns)


def _next(todo: Plan, index: Index, end: int, origin: int, ns: int) -> int | None:
    """Return the number of the next window with an event at raw time `end` or later."""
    times = []
    # A step that begins before `end` may hold later events.
    room = Room(todo.file.path)
    rest = run(todo, index.parts(end, end + 1, room), end, _LAST, None, room=room)
    if any(rest.events.values()):
        times.append(rest.span[0])
    following = index.following(end)
    if following is not None:
        times.append(todo.clock.time_of(following))
    return (min(times) - origin) // ns if times else None
