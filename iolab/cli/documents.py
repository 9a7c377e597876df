# SPDX-License-Identifier: MIT
"""The option ``--json`` and the documents it prints.

A command prints one document to standard output and nothing else there. Keys are snake_case; a
number's unit ends its key (``seconds``, ``begin_ns``). Unknown values are null. A key that is a
name of the user's, such as a kernel's, stays as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["json_option", "print_json", "records"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """Add ``--json`` to a command, as its parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


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
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
