# SPDX-License-Identifier: MIT
"""Raw ring-buffer time and the time a trace is read in, as ``trace-cmd report`` computes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clock"]

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Clock:
    """``time = (raw * multiplier >> shift) + offset_ns``; no cycle conversion if `tsc` is None.

    The result is in nanoseconds, but for clocks that count something else (``counter``,
    ``uptime``, an unconverted cycle counter): then in that clock's own unit.
    """

    offset_ns: int
    tsc: tuple[int, int] | None

    def convert(self, times: NDArray[np.int64]) -> None:
        """Convert an array of raw times in place."""
        if self.tsc and self.tsc[0]:
            multiplier, shift = self.tsc
            # 96 bits of product in two halves: exact.
            high = (times >> 32) * multiplier
            low = (times & 0xFFFFFFFF).astype(np.uint64) * np.uint64(multiplier)
            if shift <= 32:
                rest = (low >> np.uint64(shift)).astype(np.int64)
                times[:] = (high << (32 - shift)) + rest
            else:
                times[:] = (high + (low >> np.uint64(32)).astype(np.int64)) >> (shift - 32)
        if self.offset_ns:
            times += self.offset_ns

    def time_of(self, raw: int) -> int:
        """Convert one raw time."""
        if self.tsc and self.tsc[0]:
            raw = raw * self.tsc[0] >> self.tsc[1]
        return raw + self.offset_ns

    def raw_span(self, between: tuple[int, int] | None) -> tuple[int, int]:
        """Return the raw (start, end) whose conversion is just inside `between`."""
        if between is None:
            return _FIRST, _LAST
        start, end = (self._raw(int(t)) for t in between)
        return start, end

    def _raw(self, time: int) -> int:
        raw = time - self.offset_ns
        if self.tsc and self.tsc[0]:
            multiplier, shift = self.tsc
            raw = -((-raw << shift) // multiplier)
        return min(max(raw, _FIRST), _LAST)
