# SPDX-License-Identifier: MIT
"""Order of Debian's version numbers (deb-version(7))."""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["satisfies", "version_key"]

_OPERATORS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">>": operator.gt,
}
# Letters and number where a version has ended: it sorts after a tilde and before all else.
_END: Final = ((0,), 0)


def satisfies(version: str, relation: str, wanted: str) -> bool:
    """Return whether a version stands in a relation (``<<``, ``<=``, ``=``, ``>=``, ``>>``)."""
    return _OPERATORS[relation](_compare(version, wanted), 0)


def _compare(first: str, second: str) -> int:
    for one, other in zip(_split(first), _split(second), strict=True):
        for pair in itertools.zip_longest(_parts(one), _parts(other), fillvalue=_END):
            if pair[0] != pair[1]:
                return 1 if pair[0] > pair[1] else -1
    return 0


version_key = functools.cmp_to_key(_compare)


def _split(version: str) -> tuple[str, str, str]:
    """Return epoch, upstream version and revision."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "", version
    upstream, hyphen, revision = rest.rpartition("-")
    return (epoch, upstream, revision) if hyphen else (epoch, rest, "")


def _parts(text: str) -> list[tuple[tuple[int, ...], int]]:
    return [
        ((*map(_weight, letters), 0), int(digits or 0))
        for letters, digits in re.findall(r"([^0-9]*)([0-9]*)", text)
    ]


def _weight(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)
