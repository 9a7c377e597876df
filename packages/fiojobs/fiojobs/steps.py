# SPDX-License-Identifier: MIT
"""What a shell does when it runs a script: one command after another, until it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fiojobs.carriers import is_call


@dataclass(frozen=True)
class Step:
    """One simple command that a shell runs.

    Parameters
    ----------
    words, files : list of str
        As `fiojobs.words.simple_commands` yields them.
    before, end : str
        The operators before and behind it.
    condition : str
        What must hold for it, and the text does not tell.
    environment : dict of str to str
        Values of the script's variables at its beginning.
    unsure : frozenset of str
        Names of those that a condition makes unsure.
    apart : bool
        Whether it ends commands that run in the background, one after another.
    """

    words: list[str]
    files: list[str]
    before: str
    end: str
    condition: str
    environment: dict[str, str]
    unsure: frozenset[str]
    apart: bool = False


class LeaveError(Exception):
    """A ``break``, ``continue``, ``return`` or ``exit``."""

    def __init__(self, kind: str, levels: int = 1, result: bool | None = None) -> None:
        super().__init__(kind)
        self.kind, self.levels, self.result = kind, levels, result


def in_background(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps of a construct in the background, and say so with the last call."""
    found = list(steps)
    places = [place for place, step in enumerate(found) if is_call(step.words)]
    if places:
        last = places[-1]
        several = len(places) > 1
        found[last] = replace(found[last], end=found[last].end if several else "&", apart=several)
    yield from found
