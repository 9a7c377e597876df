# SPDX-License-Identifier: MIT
"""Measure the agent's own CPU time while a cell is measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Cost"]


class Cost:
    """The CPU time of all the agent's threads, during and between its samples."""

    def __init__(self) -> None:
        # Start and end of each sample, on the monotonic clock and in CPU time of this process.
        self._samples: list[tuple[int, int, int, int]] = []

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Record that the ``with`` block takes a sample."""
        began, began_cpu = time.monotonic_ns(), time.process_time_ns()
        yield
        self._samples.append((began, time.monotonic_ns(), began_cpu, time.process_time_ns()))

    def spent(self) -> dict[str, int]:
        """Return the CPU time between the first and the last sample.

        ``cpu_ns`` of ``window_ns`` is from the end of the first sample to the start of the last;
        ``with_looks_cpu_ns`` of ``with_looks_ns`` includes both. Commands that the agent started
        (the job, trace-cmd) do not count.
        """
        (began, first_end, began_cpu, first_cpu), *_, (last, ended, last_cpu, ended_cpu) = (
            self._samples
        )
        return {
            "cpu_ns": last_cpu - first_cpu,
            "window_ns": last - first_end,
            "with_looks_cpu_ns": ended_cpu - began_cpu,
            "with_looks_ns": ended - began,
        }
