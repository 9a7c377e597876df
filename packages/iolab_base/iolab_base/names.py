# SPDX-License-Identifier: MIT
"""Check a name against those that exist, and arguments against their types."""

from __future__ import annotations

import ast
import difflib
import functools
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from iolab_base.errors import UserError

_WORDS: Final[Mapping[Any, str]] = {
    str: "a string",
    int: "an integer",
    bool: "True or False",
    Path: "a path",
    Sequence: "a list",
    Mapping: "a dict",
    Callable: "a function",
    tuple: "a tuple",
    list: "a list",
    type(None): "None",
}


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ``"; did you mean X?"`` for the known name that is most like `name`, or ``""``."""
    names = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=cutoff)
    return f"; did you mean {names[near[0]]}?" if near else ""


def one_of(what: str, name: str, known: Iterable[str]) -> str:
    """Return a known name; UserError lists the known ones and suggests the nearest."""
    names = sorted(known)
    if name in names:
        return name
    listed = ", ".join(names)
    raise UserError(f"unknown {what} {name!r:.80}{nearest(name, names)} (known: {listed})")


def check_types(function: Callable[..., Any], given: Mapping[str, object]) -> None:
    """Raise UserError for the first of a function's arguments that is not of its declared type.

    People give such arguments in notebooks and files, which no type checker reads.
    """
    for name, hint in _hints(function).items():
        if name in given and not _is_of(given[name], hint):
            words = " or ".join(_WORDS.get(kind, kind.__name__) for kind in _kinds(hint))
            raise UserError(f"{name} must be {words}, not {given[name]!r:.60}")


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    # What a function among the arguments takes is left out: its type may be slow to load.
    hints = {name: _without_arguments(hint) for name, hint in function.__annotations__.items()}
    names = vars(sys.modules[function.__module__])
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=hints), names)


def _without_arguments(hint: str) -> str:
    kind = ast.parse(hint, mode="eval").body
    is_function = isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Callable"
    return "Callable" if is_function else hint


def _kinds(hint: Any) -> list[Any]:
    """Return the classes of a type: of a union, those of its members."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [kind for one in typing.get_args(hint) for kind in _kinds(one)]
    return [typing.get_origin(hint) or hint]


def _is_of(value: object, hint: Any) -> bool:
    """Return whether a value is of a type; a text is no list of texts, and True no integer."""
    inner = typing.get_args(hint)
    (kind, *more) = _kinds(hint)
    if more:
        return any(_is_of(value, one) for one in inner)
    if isinstance(value, bool | str) and kind is not object:
        return kind is type(value)
    if not isinstance(value, kind):
        return False
    # Of a dict, the names: what each may be is checked where they are known.
    return kind not in (Sequence, Mapping) or all(_is_of(one, inner[0]) for one in value)
