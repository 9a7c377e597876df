# SPDX-License-Identifier: MIT
"""Every string that a measured machine can say, read from the types and sources of iolab."""

from __future__ import annotations

import ast
import copy
import inspect
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import (
    Any,
    Final,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import iolab

_ROOT: Final = Path(iolab.__file__).parents[1]
_ROOTS: Final = [_ROOT / "iolab", *(one.parent for one in _ROOT.glob("packages/*/*/__init__.py"))]
_ENTERS: Final = ("document", "read_document", "facts")

# The names that lead to a string; "[]" is each item of a list, "{}" each key of an object.
Place = tuple[str, ...]


def strings_of(kind: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the place of each string in a value of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (str, Any):
        yield place
    elif is_typeddict(kind):
        for name, field in get_type_hints(kind).items():
            yield from strings_of(field, (*place, name))
    elif origin in (Union, types.UnionType, NotRequired):
        for one in inner:
            yield from strings_of(one, place)
    elif origin is list:
        yield from strings_of(inner[0], (*place, "[]"))
    elif origin in (dict, Mapping):
        yield (*place, "{}")
        yield from strings_of(inner[1], (*place, "{}", ""))


def placed(value: Any, place: Place, text: str) -> Any:
    """Return a JSON value with a text behind each string at a place; what lacks is made."""
    if not place:
        return f"{value or ''}{text}" if value is None or isinstance(value, str) else value
    name, *rest = place
    if name == "[]":
        return [placed(one, tuple(rest), text) for one in value or [None]]
    made = copy.deepcopy(value) if isinstance(value, dict) else {}
    if name != "{}":
        made[name] = placed(made.get(name), tuple(rest), text)
    elif not rest:
        made[text] = copy.deepcopy(next(iter(made.values()), text))
    else:
        for key in list(made) or ["said"]:
            made[key] = placed(made.get(key), tuple(rest[1:]), text)
    return made


def keys_returned(function: Any) -> set[str]:
    """Return the keys of the object that a function returns, as its source has them."""
    tree = ast.parse(inspect.getsource(function))
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    (made,) = (value for value in returned if isinstance(value, ast.Dict))
    return {str(key.value) for key in made.keys if isinstance(key, ast.Constant)}


def entrances() -> set[str]:
    """Return the modules that read a document of somebody else's (`iolab_base.foreign`)."""
    found = set()
    for path in (path for root in _ROOTS for path in root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if named and node.value.id == "foreign" and node.attr in _ENTERS:  # type: ignore[attr-defined]
                (root,) = (root for root in _ROOTS if path.is_relative_to(root))
                found.add(".".join(path.relative_to(root.parent).with_suffix("").parts))
    return found
