# SPDX-License-Identifier: MIT
"""Plain text of 72 columns: paragraphs, tables, long shell commands, a folded subject."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

WIDTH: Final = 72
# Digits after the decimal point, from this size on.
_DIGITS: Final = ((1000, 0), (100, 1), (10, 2), (0.1, 3), (0.01, 4))
_THOUSANDS: Final = 10_000
_NOTHING: Final = 0.00005


def paragraph(words: str, first: str = "", others: str = "") -> str:
    """Return words as a paragraph, its first line and the others with their indents."""
    return textwrap.fill(
        words,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def bullet(words: str) -> str:
    """Return words as an item of a list."""
    return paragraph(words, "- ", "  ")


def fold_subject(words: str) -> str:
    """Return a mail's subject, folded onto lines that begin with a space if long (RFC 5322)."""
    return paragraph(f"Subject: {words}", others=" ")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows (the first is the head) as columns, one space apart if they are too wide."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    wide = sum(widths) + 2 * (len(widths) - 1) > WIDTH
    lines = (
        (" " if wide else "  ").join(w.ljust(n) for w, n in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def command(words: Sequence[str], indent: str = "") -> str:
    """Return the quoted words of a shell command, broken after a backslash if long."""
    lines, line = [], indent
    for word in words:
        joined = f"{line} {word}" if line.strip() else f"{line}{word}"
        # Room for the backslash.
        if len(joined) > WIDTH - 2 and line.strip():
            lines.append(f"{line} \\")
            joined = f"{indent}    {word}"
        line = joined
    return "\n".join([*lines, line])


def plain_number(value: float) -> str:
    """Return a number with the digits that a reader compares, such as "66.7k" or "0.0151"."""
    size = abs(value)
    if size < _NOTHING:
        return "0"
    if size >= _THOUSANDS:
        return f"{value / 1000:.1f}k"
    digits = next((d for limit, d in _DIGITS if size >= limit), 4)
    return f"{value:.{digits}f}"
