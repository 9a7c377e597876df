# SPDX-License-Identifier: MIT
"""Grammars of fio's values: what an option takes, in words and as a test.

No grammar admits the name of a file, a program or a host, nor anything that fio or a shell
interprets: variables, arithmetic, quotes, blanks. Every number has bounds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable

from iolab_agent.cgroup_files import cores_of

# ASCII: without it "k" matches the Kelvin sign.
_AMOUNT = re.compile(r"(-?[0-9]{1,15})([a-z]*)", re.ASCII | re.IGNORECASE)
# To fio "kib" is 1000 bytes; the larger 1024 bounds both.
_BYTES = {
    "": 1,
    **{
        letter + end: 1 << 10 * power
        for power, letter in enumerate("kmgtp", 1)
        for end in ("", "b", "ib")
    },
}
_US = {"": 1, "us": 1, "usec": 1, "ms": 1000, "msec": 1000, "s": 10**6, "m": 60 * 10**6}
_US["h"] = 60 * _US["m"]
_US["d"] = 24 * _US["h"]
_DECIMAL = r"[0-9]{1,3}(\.[0-9]{1,9})?"


@dataclass(frozen=True)
class Grammar:
    """What an option of fio takes: in words that follow "must be", and as a test.

    ``alone``: the option may stand without a value.
    """

    takes: str
    accepts: Callable[[str], bool]
    alone: bool = False


def _amount(text: str, units: Mapping[str, int]) -> int | None:
    match = _AMOUNT.fullmatch(text)
    unit = None if match is None else units.get(match[2].lower())
    return None if match is None or unit is None else int(match[1]) * unit


def _between(least: int, most: int, units: Mapping[str, int]) -> Callable[[str], bool]:
    def accepts(value: str) -> bool:
        amount = _amount(value, units)
        return amount is not None and least <= amount <= most

    return accepts


def bytes_of(text: str) -> int:
    """Return a size such as ``4k`` in bytes; 0 if it is not a size."""
    return _amount(text, _BYTES) or 0


def time_us(text: str) -> int | None:
    """Return a time such as ``10ms`` in us, a plain number as it is; None if it is not a time."""
    return _amount(text, _US)


def number(least: int, most: int) -> Grammar:
    """Return the grammar of a whole number; fio takes suffixes such as k here, too."""
    return Grammar(f"{least} to {most}", _between(least, most, _BYTES))


def size(least: str, most: str) -> Grammar:
    """Return the grammar of a size, in bytes or with a suffix."""
    accepts = _between(bytes_of(least), bytes_of(most), _BYTES)
    return Grammar(f"a size from {least} to {most} such as 4k", accepts)


def duration(most: str) -> Grammar:
    """Return the grammar of a time, in us or with a suffix."""
    accepts = _between(0, _amount(most, _US) or 0, _US)
    return Grammar(f"a time up to {most} such as 100us", accepts)


def words(*known: str) -> Grammar:
    """Return the grammar of one of several words."""
    return Grammar(f"one of {', '.join(known)}", lambda value: value in known)


def matching(pattern: str, takes: str) -> Grammar:
    """Return the grammar of a regular expression."""
    compiled = re.compile(pattern, re.ASCII)
    return Grammar(takes, lambda value: compiled.fullmatch(value) is not None)


def parts(separator: str, *grammars: Grammar, least: int, takes: str) -> Grammar:
    """Return the grammar of parts with a separator, `least` of them or more."""

    def accepts(value: str) -> bool:
        found = value.split(separator)
        each = zip(grammars, found)
        return least <= len(found) <= len(grammars) and all(g.accepts(part) for g, part in each)

    return Grammar(takes, accepts)


def each_way(grammar: Grammar) -> Grammar:
    """Return the grammar of up to three values: for reads, writes and trims."""
    own = Grammar("", lambda value: not value or grammar.accepts(value))
    listed = parts(",", own, own, own, least=1, takes=f"{grammar.takes}, or READS,WRITES,TRIMS")
    return Grammar(listed.takes, lambda value: bool(value.strip(",")) and listed.accepts(value))


def or_percent(grammar: Grammar) -> Grammar:
    """Return a grammar that takes a percentage such as ``10%``, too."""

    def accepts(value: str) -> bool:
        part = value[:-1] if value.endswith("%") else None
        return grammar.accepts(value) if part is None else PERCENT.accepts(part)

    return Grammar(f"{grammar.takes}, or 10%", accepts)


def shares(first: Grammar, *rest: Grammar, most: int, takes: str) -> Grammar:
    """Return the grammar of parts with a colon, each with what follows a slash: 4k/60:8k/40."""
    one = parts("/", first, *rest, least=1, takes="")
    return parts(":", *[one] * most, least=1, takes=takes)


BOOLEAN = words("0", "1")
SET = Grammar("0, 1 or nothing", lambda value: value in ("", "0", "1"), alone=True)
PERCENT = number(0, 100)
CORES = Grammar("a list of cores such as 0-2,5", lambda value: cores_of(value) is not None)
NODES = Grammar("a list of nodes such as 0-1, or all", lambda v: v == "all" or CORES.accepts(v))

_NOTHING = Grammar("", lambda value: not value)
_SHAPE = matching(f"|{_DECIMAL}(:{_DECIMAL})?", "")
_DISTRIBUTIONS = {
    "random": _NOTHING,
    **dict.fromkeys(("zipf", "pareto", "normal"), _SHAPE),
    # fio documents lists for reads, writes and trims, and takes none here (3.33).
    "zoned": shares(PERCENT, PERCENT, most=256, takes=""),
    "zoned_abs": shares(PERCENT, size("0", "1p"), most=256, takes=""),
}


def _is_distribution(value: str) -> bool:
    kind, _, shape = value.partition(":")
    return kind in _DISTRIBUTIONS and _DISTRIBUTIONS[kind].accepts(shape)


DISTRIBUTION = Grammar(
    "random, zipf:1.2, pareto:0.9, normal:5, zoned:60/10:40/90 or zoned_abs:60/20g:40/100g",
    _is_distribution,
)
