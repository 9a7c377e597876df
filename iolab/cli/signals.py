# SPDX-License-Identifier: MIT
"""Signals that end a command as Ctrl-C does, with all that it started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Ending", "ending_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ending:
    """The signal that ends the command: SIGINT (Ctrl-C) unless another one came."""

    def __init__(self) -> None:
        self.number = signal.SIGINT

    @property
    def exit_code(self) -> int:
        """Exit code for this signal, by the shells' convention: 128 plus its number."""
        return 128 + self.number


@contextmanager
def ending_signals() -> Iterator[Ending]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt for the duration of a ``with`` block.

    Yields the signal; only the first one counts. SIGHUP stays ignored if it was (nohup). Only the
    main thread can receive signals; in another one nothing changes.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def end(number: int, frame: FrameType | None) -> None:
        ending.number = signal.Signals(number)
        for other in _SIGNALS:
            # Not SIG_IGN: processes that the clean-up starts would inherit it.
            signal.signal(other, lambda *_: None)
        raise KeyboardInterrupt

    try:
        for number in _SIGNALS:
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, end)
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
