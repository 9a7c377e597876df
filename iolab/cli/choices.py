# SPDX-License-Identifier: MIT
"""Options that choose pathologies, and warnings about unusable ones."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import click

from iolab import shown

__all__ = ["defined_in", "report_warnings"]


def defined_in(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option for pathologies of the user's own to a command that reads results."""

    def register(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> None:
        from iolab.pathology import named_pathologies

        named_pathologies(names)

    return click.option(
        "--pathology",
        multiple=True,
        metavar="FILE",
        expose_value=False,
        callback=register,
        help="File that defines the pathology, if it is one of your own (repeatable).",
    )(command)


def report_warnings() -> None:
    """Print each warning of this process as one line on standard error, as errors are."""

    def show(message: Warning | str, *context: Any, **more: Any) -> None:
        print(shown.terminal(f"iolab: {message}"), file=sys.stderr)

    warnings.showwarning = show
