# SPDX-License-Identifier: MIT
"""Text on a terminal: what comes from another machine or a file cannot control it."""

from __future__ import annotations

import click

from iolab.shown import terminal

__all__ = ["echo", "plain"]


def plain(text: str) -> str:
    """Return text with "?" for every character that a terminal would obey, newlines aside."""
    return terminal(text)


def echo(text: str = "", *, bold: bool = False) -> None:
    """Print a line to standard output."""
    click.echo(click.style(plain(text), bold=True) if bold else plain(text))
