# SPDX-License-Identifier: MIT
"""The process of a command: its standard streams, and the signals that end it as Ctrl-C does."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO

from iolab_base.errors import IolabError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# The shells' exit code of a program that SIGPIPE ended.
CLOSED_PIPE: Final = 128 + signal.SIGPIPE
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Stream(io.FileIO):
    """A descriptor that is written until a write fails; later output is dropped."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._works = True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write; a first failure on standard output is SystemExit (no reader) or IolabError."""
        if self._works:
            try:
                return super().write(data)
            except OSError as error:
                self._works = False
                # A command continues without showing its progress.
                if self.fileno() == 1:
                    if isinstance(error, BrokenPipeError):
                        raise SystemExit(CLOSED_PIPE) from None
                    words = f"cannot write to standard output: {error.strerror}"
                    raise IolabError(words) from error
        return memoryview(data).nbytes


def open_streams() -> None:
    """Reopen the standard streams, so that no other file gets their descriptors."""
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            os.set_inheritable(os.open(os.devnull, mode), True)
    sys.stdin = sys.stdin or open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stdout, sys.stderr = _text(1, sys.stdout), _text(2, sys.stderr)


def _text(number: int, before: TextIO | None) -> TextIO:
    """Return the replacement of a standard stream; it escapes unencodable characters."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Stream(number)),
        encoding=None if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=number == 2 or os.isatty(number),
    )


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
    # Only the main thread can receive signals.
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
            # nohup ignores SIGHUP.
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, end)
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupt_says(words: str) -> Iterator[None]:
    """Let an interrupt in a ``with`` block end the command with these words."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(words) from None
