# SPDX-License-Identifier: MIT
"""The functions of a script, and which of its commands call fio."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from fiojobs.carriers import commands_of, is_call, starts_fio
from fiojobs.conditions import condition_for
from fiojobs.grammar import Compound, Node, Simple, tree_of
from fiojobs.starters import STARTERS, program_of
from fiojobs.state import ShellState
from fiojobs.variables import VARIABLE, filled, is_set_by
from fiojobs.words import substituted
from iolab_base.errors import UserError

# What ends a loop, a function or the script.
LEAVES: Final = ("break", "continue", "return", "exit")
_BEFORE: Final = ("!", "sudo", "time", "eval")
# Functions that call functions.
_DEEPEST: Final = 16


class Functions(dict[str, Sequence[Node]]):
    """The bodies of functions by their names, and the state of the shell that has them."""

    def __init__(self, state: ShellState) -> None:
        super().__init__()
        self._state = state

    def with_program(self, words: list[str]) -> list[str]:
        """Return a command with the program, or the call of fio, that a variable holds."""
        known = self._state.known
        while words and words[0].startswith("$"):
            # SUDO=, or TIME="time -p"
            first = filled(words[0], known).split()
            if first and program_of(first[0]) not in STARTERS:
                break
            words = [*first, *words[1:]]
        starts = bool(words) and program_of(words[0]) in STARTERS
        for place, given in enumerate(words if starts else words[:1]):
            match = VARIABLE.fullmatch(given)
            name = (match[1] or match[2]) if match else None
            if name in self._state.unsure and place == len(words) - 1:
                raise condition_for(name)
            value = filled(given, known)
            if place == 0 and value != given and next(iter(value.split()), None) in self:
                return [*value.split(), *words[1:]]
            if value != given and starts_fio(value):
                with suppress(ValueError):
                    return [*words[:place], *shlex.split(value), *words[place + 1 :]]
        return words

    def define(self, name: str, body: Sequence[Node], *, sure: bool) -> None:
        """Keep a function."""
        before = self.get(name, body)
        if not sure and before != body and self.call_fio([*before, *body]):
            raise UserError(f"the fio job has a condition for {name}(): give the call that runs")
        self[name] = body

    def leave(self, body: Sequence[Node], depth: int = 0) -> bool:
        """Return whether commands end a loop, a function or the script."""
        last = body[-1] if body else None
        if not isinstance(last, Simple) or depth > _DEEPEST:
            return False
        inner = self.get(last.words[0])
        return last.words[0] in LEAVES or (inner is not None and self.leave(inner, depth + 1))

    def call_fio(self, nodes: Sequence[Node], depth: int = 0) -> bool:
        """Return whether commands call fio."""
        return depth <= _DEEPEST and any(self._calls(node, depth + 1) for node in nodes)

    def _calls(self, node: Node, depth: int) -> bool:
        """Return whether one command calls fio: itself, by a function, a variable or ``$(...)``."""
        if isinstance(node, Compound):
            parts = [] if node.kind == "function" else node.parts
            return any(self.call_fio([*part.test, *part.body], depth) for part in parts)
        words = [word for word in node.words if word not in _BEFORE and not is_set_by(word)] or [""]
        first = next(iter(words[0].split()), "")
        held = self._state.environment.get(first.strip("${}"), "") if "$" in first else ""
        if is_call(words) or starts_fio(held):
            return True
        names = {first, next(iter(held.split()), "")} & self.keys()
        inner = [tree_of(commands_of(text)) for word in node.words for text in substituted(word)]
        others = [*(self[name] for name in names), *inner]
        return any(self.call_fio(nodes, depth) for nodes in others)
