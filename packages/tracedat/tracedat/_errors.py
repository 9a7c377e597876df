# SPDX-License-Identifier: MIT
"""What is wrong with a file, or with what a call asks of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class TraceError(Exception):
    """A trace file is damaged, or not a trace file.

    Attributes
    ----------
    path : Path
        The file, or the folder of an export.
    problem : str
        The problem; it names the section, if any. It may hold text of the file.
    offset : int or None
        The position of the problem in the file.
    """

    def __init__(self, path: Path, problem: str, offset: int | None = None) -> None:
        super().__init__(path, problem, offset)
        self.path = path
        self.problem = problem
        self.offset = offset

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at offset {self.offset:#x}"
        return f"{self.path}{place}: {self.problem}"

    def _render_traceback_(self) -> list[str]:
        # IPython shows this instead of a traceback (InteractiveShell.showtraceback).
        return [f"tracedat: {self}"]


class TooLargeError(TraceError):
    """A trace file claims more than a trace holds, or than there is memory for."""


class MissingEventError(TraceError):
    """An analysis needs an event type that was not recorded or not read."""


class RequestError(TraceError):
    """A call names an event, a window or a place to write that cannot be had."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known name that is most like `name`, or ``""``."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def printable(text: str, most: int) -> str:
    """Return at most `most` characters of a file's text, "?" for each that cannot be printed."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
