# SPDX-License-Identifier: MIT
"""Interrupts: the signals that end a command as Ctrl-C does, deferred, explained and forgotten."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_DEFERRED: Final = (signal.SIGINT, *_ENDING)


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
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt during a ``with`` block; yield the signal."""
    ending = Ending()
    if not _receives_signals():
        yield ending
        return
    before = {number: signal.getsignal(number) for number in _ENDING}

    def end(number: int, frame: FrameType | None) -> None:
        ending.number = signal.Signals(number)
        for other in _ENDING:
            # Not SIG_IGN: processes that the clean-up starts would inherit it.
            signal.signal(other, lambda *_: None)
        raise KeyboardInterrupt

    try:
        for number in _ENDING:
            # nohup ignores SIGHUP.
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, end)
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_held() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP to the end of a ``with`` block."""
    # An exception between a process's start and its registration would leave it running. Children
    # started in the block do not inherit the mask.
    if not _receives_signals():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.getsignal(number) for number in _DEFERRED}
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _receives_signals() -> bool:
    """Return whether Python runs handlers of signals in this thread: it does in the main one."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interrupt_says(words: str) -> Iterator[None]:
    """Let an interrupt in a ``with`` block end the command with these words."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(words) from None


def forget_interrupt() -> None:
    """Let Python exit with the given code, although an interrupt was caught."""
    # Python remembers an interrupt that is raised while a string is executed, as in the making of a
    # dataclass: ``python -m`` then kills itself with SIGINT at its end (`Py_RunMain` in
    # Modules/main.c of 3.11). Executing another string clears it.
    exec("pass")  # noqa: S102 - see above
