# SPDX-License-Identifier: MIT
"""Factors: what an experiment varies, the levels they take, and the words for a level."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from iolab.pathology.interventions import InterventionFactor
from iolab_base.errors import UserError
from iolab_base.names import one_of

Condition = Mapping[str, int | str | None]
Grid = Mapping[str, tuple[int | str, ...]]


@dataclass(frozen=True)
class IntegerFactor:
    """A factor of whole numbers from `low` to `high`.

    ``label`` is what an axis of it is called, with the unit if it has one: ``"cpu.weight"``.
    ``phrase`` is a level in words, with ``{}`` for its number (``"{} jobs"``), by default the
    label, then the number. ``words`` are levels that have words of their own: ``{1: "1 job"}``.
    ``before`` is the level of results from before the pathology had this factor; with None they are
    refused.
    """

    low: int
    high: int
    label: str
    phrase: str = ""
    words: Mapping[int, str] = field(default_factory=dict)
    before: int | None = None

    def in_words(self, level: int) -> str:
        """Return a level in words, as titles, legends and captions show it."""
        return self.words.get(level, (self.phrase or f"{self.label} {{}}").format(level))

    def parse(self, name: str, text: str) -> int:
        """Return the level that `text` names; the UserError for another one gives the range."""
        if re.fullmatch(r"\d{1,9}", text) and self._within(int(text)):
            return int(text)
        raise self._refusal(name, text)

    def check(self, name: str, level: object) -> None:
        """Raise a UserError with the range if `level` is no whole number in it."""
        if not isinstance(level, int) or isinstance(level, bool) or not self._within(level):
            raise self._refusal(name, level)

    def _within(self, level: int) -> bool:
        return self.low <= level <= self.high

    def _refusal(self, name: str, level: object) -> UserError:
        return UserError(f"{name} must be {self.low}-{self.high}, not {level!r}")


@dataclass(frozen=True)
class CategoricalFactor:
    """A factor of named levels, in the order of tables and figures.

    ``label`` is what an axis of it is called: ``"I/O scheduler"``. ``phrase`` is a level in words,
    with ``{}`` for its name (``"{} layout"``), by default the name alone. ``words`` are levels that
    have words of their own: ``{"default": "default tuning"}``. ``before`` is the level of results
    from before the pathology had this factor; with None they are refused.
    """

    levels: tuple[str, ...]
    label: str
    phrase: str = "{}"
    words: Mapping[str, str] = field(default_factory=dict)
    before: str | None = None

    def in_words(self, level: str) -> str:
        """Return a level in words, as titles, legends and captions show it."""
        return self.words.get(level, self.phrase.format(level))

    def parse(self, name: str, text: str) -> str:
        """Return the level that `text` names; the UserError for another one lists the levels."""
        self.check(name, text)
        return text

    def check(self, name: str, level: object) -> None:
        """Raise a UserError that lists the levels if `level` is none of them."""
        one_of(f"level of {name}", level if isinstance(level, str) else repr(level), self.levels)


Factor = IntegerFactor | CategoricalFactor | InterventionFactor


def first_levels(grid: Grid) -> dict[str, int | str]:
    """Return the condition of the first level of each factor of a grid."""
    return {name: levels[0] for name, levels in grid.items()}


def conditions_of(grid: Grid, names: Iterable[str]) -> Iterator[dict[str, int | str]]:
    """Yield the conditions of a grid, with their factors in the order of `names`."""
    ordered = list(names)
    for levels in itertools.product(*(grid[name] for name in ordered)):
        yield dict(zip(ordered, levels, strict=True))


def integer_level(condition: Condition, name: str) -> int:
    """Return a condition's level of an integer factor; TypeError for another kind."""
    level = condition[name]
    if not isinstance(level, int):
        raise TypeError(f"{name} has the level {level!r}, which is no integer")
    return level


def named_level(condition: Condition, name: str) -> str:
    """Return a condition's level of a categorical factor; TypeError for another kind."""
    level = condition[name]
    if not isinstance(level, str):
        raise TypeError(f"{name} has the level {level!r}, which is no name")
    return level
