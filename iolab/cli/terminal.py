# SPDX-License-Identifier: MIT
"""A command's standard streams: lines, tables and JSON on output, progress on standard error.

Nothing printed can control the terminal, whatever it quotes. A JSON document is all that a command
prints there; its keys are snake_case, a number's unit ends its key, and unknown values are null.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from iolab import shown
from iolab_base.errors import IolabError
from iolab_base.files import finite

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import ReadableBuffer

# The shells' exit code of a program that SIGPIPE ended.
CLOSED_PIPE: Final = 128 + signal.SIGPIPE


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


def echo(text: str = "", *, bold: bool = False) -> None:
    """Print a line to standard output."""
    words = shown.terminal(text)
    click.echo(click.style(words, bold=True) if bold else words)


def note(text: str) -> None:
    """Print a line of progress to standard error."""
    click.echo(shown.terminal(text), err=True)


def print_table(rows: Sequence[Mapping[str, str]], heading: Sequence[str]) -> None:
    """Print rows of equal keys, one line each, unless the terminal is too narrow for that."""
    lines = _lines(rows)
    width = shutil.get_terminal_size().columns
    # A pipe or a file gets lines of any length, so that `grep` finds whole rows.
    if not sys.stdout.isatty() or max(map(len, lines), default=0) <= width:
        for line in lines:
            echo(line)
        return
    # Rows with the same `heading` columns become a section, each row a paragraph of it.
    section = ""
    for row in rows:
        if (title := " ".join(row[name] for name in heading)) != section:
            section = title
            echo()
            echo(title, bold=True)
        for line in _paragraph({k: v for k, v in row.items() if k not in heading}, width):
            echo(line)


def _lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a header line and a line for each row, in aligned columns."""
    if not rows:
        return []
    table = [list(rows[0]), *(list(row.values()) for row in rows)]
    # A line break would break the row.
    table = [[" ".join(shown.terminal(text).split()) for text in line] for line in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def _paragraph(row: Mapping[str, str], width: int) -> list[str]:
    """Return a row as a paragraph: the first column, then ``name: text`` for the others."""
    (_, first), *others = row.items()
    lines = textwrap.wrap(first, width, initial_indent="  ", subsequent_indent="    ")
    for name, text in others:
        if text:
            line = f"{name}: {text}"
            lines += textwrap.wrap(line, width, initial_indent="    ", subsequent_indent="      ")
    return lines


def print_json(document: Any) -> None:
    """Print a document: mappings, sequences, dataclasses, paths, strings, numbers and None."""
    # JSON's escapes leave no control characters for a terminal.
    click.echo(json.dumps(_plain(document), indent=1, allow_nan=False, ensure_ascii=True))


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as mappings; missing values are None."""
    return [
        {str(name).replace(" ", "_"): value for name, value in row.items()}
        for row in table.astype(object).where(table.notna(), None).to_dict("records")
    ]


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str | int | float | None) and hasattr(value, "item"):
        value = value.item()  # a NumPy number
    return finite(value)


def report_warnings() -> None:
    """Print each warning of this process as one line on standard error, as errors are."""

    def show(message: Warning | str, *context: Any, **more: Any) -> None:
        print(shown.terminal(f"iolab: {message}"), file=sys.stderr)

    warnings.showwarning = show
