# SPDX-License-Identifier: MIT
"""Checks of single values of a plan: numbers, names, paths, lists."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, TypeVar

from iolab_base.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TUNABLE = re.compile(r"[a-z][a-z0-9_]{0,39}")

_T = TypeVar("_T")


def check(condition: bool, fault: str) -> None:
    """Raise UserError with the fault unless the condition holds."""
    if not condition:
        raise UserError(f"plan: {fault}")


def build(kind: type[_T], raw: Any, where: str) -> _T:
    """Build a part of the plan from a JSON object; `where` names it in errors."""
    check(isinstance(raw, dict), f"{where} is not an object")
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(raw) - known)
    check(not unknown, f"{where} has unknown fields: {', '.join(unknown)}")
    try:
        return kind(**raw)
    except TypeError as error:
        raise UserError(f"plan: {where}: {error}") from error


def is_int(value: Any, low: int, high: int) -> bool:
    """Return whether a value is an integer (no bool) in ``low`` to ``high``."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def check_numbers(part: Any, where: str, bounds: dict[str, tuple[int, int]]) -> None:
    """Check that fields of a part are integers within their bounds; `where` names the part."""
    for name, (low, high) in bounds.items():
        value = getattr(part, name)
        check(is_int(value, low, high), f"{where}: {name} must be {low}-{high}, not {value!r}")


def check_flags(part: Any, where: str, *names: str) -> None:
    """Check that fields of a part are booleans."""
    for name in names:
        value = getattr(part, name)
        check(isinstance(value, bool), f"{where}: {name} must be true or false, not {value!r}")


def is_name(value: Any) -> bool:
    """Return whether a value can name a cell, a block or a device."""
    return isinstance(value, str) and bool(_NAME.fullmatch(value))


def is_text(value: Any, longest: int) -> bool:
    """Return whether a value is printable text of at most `longest` characters."""
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= longest


def is_path(value: Any) -> bool:
    """Return whether a value is an absolute path without ``.`` and ``..``."""
    if not is_text(value, 1024) or not value.startswith("/"):
        return False
    return not {"", ".", ".."} & set(value.split("/")[1:])


def is_one_of(value: Any, known: set[str]) -> bool:
    """Return whether a value is one of the known words."""
    return isinstance(value, str) and value in known


def as_list(value: Any, where: str) -> list[Any]:
    """Return a value that must be a list."""
    check(isinstance(value, list), f"{where} must be a list, not {value!r}")
    return list(value)


def check_values(values: Any, where: str) -> None:
    """Check that a value is an object of non-negative integers by name."""
    check(isinstance(values, dict), f"{where} is not an object")
    for name, value in values.items():
        check(isinstance(name, str) and bool(_TUNABLE.fullmatch(name)), f"{where}: {name!r}")
        check(is_int(value, 0, 10**12), f"{where}: {name} must be 0-10^12, not {value!r}")
