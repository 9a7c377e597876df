# SPDX-License-Identifier: MIT
"""What the agent itself uses of the measured machine while a cell is measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Cost"]


class Cost:
    """The agent's own CPU time, all of its threads, around the looks that it takes."""

    def __init__(self) -> None:
        # Of each look: when it began and ended, on the clock and in CPU time of this process.
        self._looks: list[tuple[int, int, int, int]] = []

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Note that the agent takes a look."""
        began, began_cpu = time.monotonic_ns(), time.process_time_ns()
        yield
        self._looks.append((began, time.monotonic_ns(), began_cpu, time.process_time_ns()))

    def spent(self) -> dict[str, int]:
        """Return what was used between the first look's end and the last one's beginning, in ns.

        ``cpu_ns`` of ``window_ns``; ``with_looks_cpu_ns`` of ``with_looks_ns`` has the two looks,
        too. What the agent starts (the job, trace-cmd) is not in it.
        """
        (began, first_end, began_cpu, first_cpu), *_, (last, ended, last_cpu, ended_cpu) = (
            self._looks
        )
        return {
            "cpu_ns": last_cpu - first_cpu,
            "window_ns": last - first_end,
            "with_looks_cpu_ns": ended_cpu - began_cpu,
            "with_looks_ns": ended - began,
        }
