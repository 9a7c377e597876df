# SPDX-License-Identifier: MIT
"""What commands print: lines, tables and JSON on standard output, progress on standard error.

Nothing printed can control the terminal, whatever it quotes. A JSON document is all that a command
prints there; its keys are snake_case, a number's unit ends its key, and unknown values are null.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab import shown
from iolab_base.files import finite

if TYPE_CHECKING:
    import pandas as pd


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
