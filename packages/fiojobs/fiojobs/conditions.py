# SPDX-License-Identifier: MIT
"""Variables that a script sets under a condition: what they hold behind it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from iolab_base.errors import UserError

_BEGIN: Final = ("then", "else")
# ": ${NAME:=VALUE}"
_DEFAULT: Final = re.compile(r"\$\{([A-Za-z_]\w*):?=([^{}]*)\}", re.ASCII)
_TESTS: Final = ("[", "[[", "test", "((", "!", "grep")


@dataclass
class _Branch:
    """An ``if``: its condition, what was set before it, and what its branches have set.

    `taken` is whether a shell runs the branch, None if the text does not tell.
    """

    condition: str
    taken: bool | None
    before: dict[str, str | None] = field(default_factory=dict)
    changed: dict[str, str | None] = field(default_factory=dict)


@dataclass
class Conditions:
    """Follow a script's conditions, so that no value of a branch holds behind it.

    A value that a branch gives to an empty variable is its default, and holds.

    Parameters
    ----------
    environment : dict of str to str
        Values of the script's variables so far; those that a condition makes unsure are removed.
    unsure : set of str
        Their names.
    """

    environment: dict[str, str]
    unsure: set[str] = field(default_factory=set)
    _branches: list[_Branch] = field(default_factory=list)
    _arrays: set[str] = field(default_factory=set)
    _last: list[str] = field(default_factory=list)
    _result: bool | None = None

    @property
    def is_known(self) -> bool:
        """Whether a shell runs the innermost branch."""
        return bool(self._branches) and self._branches[-1].taken is True

    def skips(self, operator: str) -> bool:
        """Return whether a shell does not run what stands here, behind an operator."""
        beside = {"&&": self._result is False, "||": self._result is True}.get(operator, False)
        return beside or any(branch.taken is False for branch in self._branches)

    def follow(self, given: Sequence[str], filled: Sequence[str], operator: str) -> None:
        """Follow the words that begin and end branches, with and without their variables.

        Raises UserError for an array that a condition changes: its words stand where it is used.
        """
        if array := re.match(
            r"([A-Za-z_]\w*)\+?=\(", given[min(given[0] in _BEGIN, len(given) - 1)]
        ):
            if array[1] in self._arrays and (self._open or operator in ("&&", "||")):
                raise condition_for(array[1])
            self._arrays.add(array[1])
        if given[0] == "if":
            self._branches.append(_Branch(" ".join(given[1:]), _result(filled[1:])))
        elif given[0] in ("else", "elif", "fi") and self._branches:
            branch = self._branches[-1]
            for name, value in branch.before.items():
                branch.changed[name] = self.environment.get(name)
                self._set(name, value)
            branch.before.clear()
            if branch.taken is not None:
                branch.taken = not branch.taken if given[0] == "else" else None
            if given[0] == "fi":
                self._branches.pop()
                for name, value in branch.changed.items():
                    self._settle(name, value, is_empty=_is_empty(branch.condition, name))

    def note(self, words: Sequence[str], before: Mapping[str, str], operator: str) -> None:
        """Note what a command has set, which stands behind an operator such as ``&&``."""
        for name, value in _DEFAULT.findall(" ".join(words)) if words[0] == ":" else ():
            self.environment.setdefault(name, os.environ.get(name) or value)
        for name in [n for n, value in self.environment.items() if before.get(n) != value]:
            self.unsure.discard(name)
            if self._open:
                self._open.before.setdefault(name, before.get(name))
            test = " ".join(self._last)
            tested = bool(self._last) and self._last[0].startswith(_TESTS)
            if self._result is None and (operator == "||" or (operator == "&&" and tested)):
                value = self.environment[name]
                self._set(name, before.get(name))
                is_empty = (_is_set if operator == "||" else _is_empty)(test, name)
                self._settle(name, value, is_empty=is_empty)
        self._last = list(words)

    def end(self, filled: Sequence[str]) -> None:
        """Note how a command ends, if its words tell."""
        self._result = _result(filled)

    @property
    def _open(self) -> _Branch | None:
        """The innermost branch that a shell may run or not."""
        return next((one for one in reversed(self._branches) if one.taken is None), None)

    def _set(self, name: str, value: str | None) -> None:
        if value is None:
            self.environment.pop(name, None)
        else:
            self.environment[name] = value

    def _settle(self, name: str, value: str | None, *, is_empty: bool) -> None:
        """Give a variable the value that it may have behind a condition, or none."""
        before = self.environment.get(name)
        if value == before:
            return
        if self._open:
            self._open.before.setdefault(name, before)
        if not is_empty or before:
            self.unsure.add(name)
            self._set(name, None)
        elif not os.environ.get(name):
            self._set(name, value)


def condition_for(name: str) -> UserError:
    """Return the error for a variable whose value a condition makes unsure."""
    return UserError(f"the fio job has a condition for {name!r}: give the value that holds")


def _result(filled: Sequence[str]) -> bool | None:
    """Return what a test of two words is, None for any other command."""
    test = re.fullmatch(
        r"(?:\[\[?|test) ([^\s$*?]+) (==?|!=|-eq|-ne) ([^\s$*?]+)(?: \]\]?)?", " ".join(filled)
    )
    return None if test is None else (test[1] == test[3]) is (test[2] in ("=", "==", "-eq"))


def _is_empty(condition: str, name: str) -> bool:
    """Return whether a condition is that a variable is empty, and no more."""
    used = _use_of(name)
    return _matches(condition, rf"-z {used}|! (?:-n )?{used}|{used} ==?")


def _is_set(condition: str, name: str) -> bool:
    """Return whether a condition is that a variable is not empty, and no more."""
    used = _use_of(name)
    return _matches(condition, rf"(?:-n )?{used}|! -z {used}|{used} !=")


def _use_of(name: str) -> str:
    return rf"\$(?:{name}|\{{{name}(?:[:+-][^}}]*)?\}})"


def _matches(condition: str, test: str) -> bool:
    return re.fullmatch(rf"(?:\[\[?|test) (?:{test})(?: *\]\]?)? *", condition) is not None
