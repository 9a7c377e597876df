# SPDX-License-Identifier: MIT
"""Lines on standard output that cannot control the terminal, whatever they quote."""

from __future__ import annotations

import click

from iolab import shown

__all__ = ["echo"]


def echo(text: str = "", *, bold: bool = False) -> None:
    """Print a line to standard output."""
    words = shown.terminal(text)
    click.echo(click.style(words, bold=True) if bold else words)
