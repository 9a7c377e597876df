# SPDX-License-Identifier: MIT
"""Order of Debian's version numbers (deb-version(7))."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["satisfies", "version_key"]

_END: Final = ((0,), 0)
_Part = tuple[tuple[tuple[int, ...], int], ...]
_Key = tuple[int, _Part, _Part]
_OPERATORS: Final[Mapping[str, Callable[[_Key, _Key], bool]]] = {
    "<<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">>": operator.gt,
}


def version_key(version: str) -> _Key:
    """Return what sorts as the version does: its epoch, upstream version and revision."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-")
    if not upstream:
        upstream, revision = rest, ""
    return int(epoch) if epoch.isdecimal() else 0, _part(upstream), _part(revision)


def satisfies(version: str, relation: str, wanted: str) -> bool:
    """Return whether a version stands in a relation (``<<``, ``<=``, ``=``, ``>=``, ``>>``)."""
    return _OPERATORS[relation](version_key(version), version_key(wanted))


def _part(text: str) -> _Part:
    pairs = [
        ((*map(_weight, letters), 0), int(digits or 0))
        for letters, digits in re.findall(r"([^0-9]*)([0-9]*)", text)
    ]
    # A missing number counts as 0; the end sorts after a tilde and before all else.
    while pairs and pairs[-1] == _END:
        pairs.pop()
    return (*pairs, _END)


def _weight(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)
