# SPDX-License-Identifier: MIT
"""What commands print: lines and tables on standard output, progress on standard error.

Nothing printed can control the terminal, whatever it quotes.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

import click

from iolab import shown

__all__ = ["echo", "note", "print_table"]

_GAP = "  "


def echo(text: str = "", *, bold: bool = False) -> None:
    """Print a line to standard output."""
    words = shown.terminal(text)
    click.echo(click.style(words, bold=True) if bold else words)


def note(text: str) -> None:
    """Print a line of progress to standard error."""
    click.echo(shown.terminal(text), err=True)


def print_table(rows: Sequence[Mapping[str, str]], heading: Sequence[str]) -> None:
    """Print rows of equal keys, one line each, unless the terminal is too narrow for that.

    A pipe or a file gets whole lines of any length, so that ``grep`` finds whole rows. On a narrow
    terminal, rows with the same `heading` columns become a section, each row a paragraph of it.
    """
    lines = _lines(rows)
    width = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or max(map(len, lines), default=0) <= width:
        for line in lines:
            echo(line)
        return
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
        _GAP.join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
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
