# SPDX-License-Identifier: MIT
"""Calculations in values: fio's own, those of a shell, and times in seconds."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from iolab_agent.fio_values import time_us

# Of a shell's numbers.
_BITS: Final = 64
# fio has bc calculate a value with a keyword (bc_calc() in its options.c).
_MATHS: Final = re.compile(r"[0-9 ()*/+%<>=!-]+")


def _divided(one: int, other: int) -> int:
    """Return a quotient as a shell rounds it, to zero."""
    return abs(one) // abs(other) * (1 if (one < 0) is (other < 0) else -1)


def _power(one: int, other: int) -> int:
    """Return a power; raise ValueError for one that no shell can hold."""
    if not 0 <= other < _BITS:
        raise ValueError(other)
    return int(one**other)


_OPERATORS: Final[Mapping[type[ast.operator | ast.cmpop], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.Pow: _power,
    ast.LShift: lambda one, other: one * _power(2, other),
    ast.RShift: lambda one, other: one // _power(2, other),
    ast.Mod: lambda one, other: one - other * _divided(one, other),
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OF_SHELL: Final = re.compile(r"\$\(\(([^()$]*(?:\([^()$]*\)[^()$]*)*)\)\)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_WHOLE: Final = re.compile("-?[0-9]{1,18}")
_OCTAL: Final = re.compile("-?0+(?:[89]|[1-9][0-9])")
_SECOND_US: Final = 10**6


def calculated(text: str) -> str:
    """Return the value of an expression, in whole numbers; the text if it is none."""
    try:
        return str(_value(ast.parse(text, mode="eval").body)) if _MATHS.fullmatch(text) else text
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return text


def with_calculations(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the value of each ``$((...))`` that has one."""

    def value(match: re.Match[str]) -> str:
        found = number(match[1], known)
        return match[0] if found is None else str(found)

    return _OF_SHELL.sub(value, text)


def number(text: str, known: Mapping[str, str]) -> int | None:
    """Return the value of a shell's expression; None if it has none that the text shows."""

    def value(name: re.Match[str]) -> str:
        found = known.get(name[0], name[0])
        return found if found.isalnum() else f"({found})"

    found = calculated(_NAME.sub(value, text).strip())
    # To a shell, 010 is 8.
    return None if _OCTAL.match(found) else whole(found)


def expression_of(words: Iterable[str]) -> str:
    """Return what stands within the brackets of ``((...))``."""
    return " ".join(words).removeprefix("((").removesuffix("))")


def whole(text: str) -> int | None:
    """Return a whole number that a shell can hold; None for any other text."""
    return int(text) if _WHOLE.fullmatch(text) else None


def seconds_us(text: str) -> int | None:
    """Return a time in us; a plain number is in s."""
    amount = time_us(text)
    return amount * _SECOND_US if amount is not None and text.isdigit() else amount


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return int(_OPERATORS[type(op)](_value(left), _value(right)))
        # Python's -2**2 is -(2**2), a shell's (-2)**2.
        case ast.UnaryOp(op=ast.USub(), operand=ast.BinOp(op=ast.Pow())):
            pass
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return int(_OPERATORS[type(op)](_value(left), _value(right)))
    raise ValueError(ast.dump(node))
