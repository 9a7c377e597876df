# SPDX-License-Identifier: MIT
"""Extras: parts of iolab in packages of their own, which it finds by their entry points.

iolab imports none of them. In the group `COMMANDS` is a command of click under its name, in
`PLACES` a function that opens a place where blocks are measured.
"""

from __future__ import annotations

from typing import Any, Final

from iolab_base.errors import CannotRunError

COMMANDS: Final = "iolab.commands"
PLACES: Final = "iolab.places"


def extra(group: str, name: str) -> Any:
    """Return what the entry point of an extra names; raise CannotRunError if it is not there."""
    # To load this takes longer than the rest of `iolab --help`.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = next(iter(entry_points(group=group, name=name)), None)
    if found is None:
        raise CannotRunError(f"iolab's extra {name} is not installed: install iolab again")
    try:
        return found.load()
    except ImportError as error:
        raise CannotRunError(f"iolab's extra {name} cannot be used: {error}") from error
