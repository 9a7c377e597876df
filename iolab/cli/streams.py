# SPDX-License-Identifier: MIT
"""Standard input, output and error as a command finds them: closed, full, or without a reader."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Final, TextIO

from iolab_base.errors import IolabError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["CLOSED_PIPE", "open_streams"]

# The shells' exit code of a program that SIGPIPE ended.
CLOSED_PIPE: Final = 128 + signal.SIGPIPE


class _Stream(io.FileIO):
    """A descriptor that is written until a write fails; later output is dropped."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._works = True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write; raise the first failure on standard output.

        That is SystemExit if the reader is gone, as with `head`, else IolabError.
        """
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
    """Reopen the standard streams, so that no other file gets their descriptors.

    A closed standard output fails on writing; a closed standard error is silent.
    """
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
