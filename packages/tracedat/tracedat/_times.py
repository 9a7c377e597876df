# SPDX-License-Identifier: MIT
"""Convert raw ring-buffer time to the trace's time, as ``trace-cmd report`` does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clock"]

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Clock:
    """The conversion ``time = (raw * multiplier >> shift) + offset_ns``.

    Times are nanoseconds, except for clocks that count something else (``counter``, ``uptime``,
    an unconverted cycle counter; see Documentation/trace/ftrace.rst): those keep their own unit.

    Parameters
    ----------
    offset_ns : int
        Added to every time.
    tsc : (int, int), optional
        Multiplier and shift of a cycle counter; None for clocks in nanoseconds.
    """

    offset_ns: int
    tsc: tuple[int, int] | None

    def convert(self, times: NDArray[np.int64]) -> None:
        """Convert an array of raw times in place.

        Parameters
        ----------
        times : int64[n]
            Raw times; overwritten by nanoseconds.
        """
        if self.tsc and self.tsc[0]:
            multiplier, shift = self.tsc
            # The product has 96 bits: computed in two halves, it is exact.
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
        """Convert one raw time to nanoseconds."""
        if self.tsc and self.tsc[0]:
            raw = raw * self.tsc[0] >> self.tsc[1]
        return raw + self.offset_ns

    def raw_span(self, between: tuple[int, int] | None) -> tuple[int, int]:
        """Convert a span of time to raw time.

        Parameters
        ----------
        between : (int, int), optional
            Start and end in nanoseconds; None means all time.

        Returns
        -------
        (int, int)
            The first raw times whose conversion is not less than start and end.
        """
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
