# SPDX-License-Identifier: MIT
"""Tests of a shell: what they find, where the text tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from fiojobs.arithmetic import expression_of, number, whole
from iolab_base.errors import UserError

# What a test begins with; another command before "&&" is one that is expected to succeed.
_TESTS: Final = ("[", "[[", "test", "((", "!", "grep")
_NUMBERS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": lambda one, other: one == other,
    "-ne": lambda one, other: one != other,
    "-lt": lambda one, other: one < other,
    "-le": lambda one, other: one <= other,
    "-gt": lambda one, other: one > other,
    "-ge": lambda one, other: one >= other,
}
_CLASSES: Final = {
    "digit": "0-9",
    "alpha": "a-zA-Z",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": " \t\n",
}
# Words of a comparison of two values.
_COMPARISON: Final = 3
# Of a text that a regular expression is tried on.
_LONGEST: Final = 1000
# A regular expression that means the same everywhere.
_SIMPLE: Final = re.compile(r"\^?[\w#/, :=-]*(?:\[\^?(?:a-z|A-Z|0-9|\w)+\][+*]?)?[\w#/,: =-]*\$?")
# What a script asks of the machine before it goes on: whether something is there, or went well.
_OF_MACHINE: Final = re.compile(
    r"(?:! )*(?:(?:\[\[?|test) (?:! )?-[bcdefhLrswx] |(?:command|which|type|hash) "
    r"|.*\$\? (?:-eq|==?) 0\b|.*\bfio )"
)


def matches(value: str, pattern: str) -> bool:
    """Return whether a pattern of a shell matches a value."""
    for name, characters in _CLASSES.items():
        pattern = pattern.replace(f"[:{name}:]", characters)
    return fnmatchcase(value, pattern.replace("[^", "[!"))


def is_test(words: Sequence[str]) -> bool:
    """Return whether a command only tests something."""
    return bool(words) and words[0].startswith(_TESTS)


def asks_the_machine(condition: str) -> bool:
    """Return whether a condition holds on any machine on which the script is of use."""
    return _OF_MACHINE.match(condition) is not None


def outcome(words: Sequence[str], known: Mapping[str, str]) -> bool | None:
    """Return what a test with its variables filled in finds; None if the text does not tell."""
    if words[:1] == ["!"]:
        inner = outcome(words[1:], known)
        return None if inner is None else not inner
    if words in (["true"], [":"], ["false"]):
        return words != ["false"]
    if words and words[0].startswith("(("):
        return _calculated(expression_of(words), known)
    known_test = bool(words) and words[0] in ("[", "[[", "test")
    return _tested(words, known) if known_test else None


def _tested(words: Sequence[str], known: Mapping[str, str]) -> bool | None:
    """Return what a test in brackets finds; None if the text does not tell."""
    tested = [word for word in words[1:] if word not in ("]", "]]")]
    either, both = ("||", "&&") if words[0] == "[[" else ("-o", "-a")
    if {either, both, "("} & set(tested) and len(tested) > _COMPARISON:
        if "(" in tested:
            return None
        parts = [
            _all([outcome([words[0], *part], known) for part in _split(each, both)])
            for each in _split(tested, either)
        ]
        return _any(parts)
    negated = tested[:1] == ["!"]
    unknown = any(re.search(r"\$.|`", word) for word in tested)
    found = None if unknown else _compared(tested[negated:], patterns=words[0] == "[[")
    return None if found is None else found is not negated


def _split(words: Sequence[str], by: str) -> list[list[str]]:
    """Return the words between those that are `by`."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == by:
            found.append([])
        else:
            found[-1].append(word)
    return found


def _all(results: Sequence[bool | None]) -> bool | None:
    """Return whether all hold; None if that is not known."""
    return False if False in results else None if None in results else True


def _any(results: Sequence[bool | None]) -> bool | None:
    """Return whether one holds; None if that is not known."""
    return True if True in results else None if None in results else False


def _calculated(expression: str, known: Mapping[str, str]) -> bool | None:
    """Return whether an expression is not 0; None if that is not known."""
    if re.search(r"&&|\|\|", expression) and "(" not in expression:
        either = [part.split("&&") for part in expression.split("||")]
        return _any([_all([_calculated(part, known) for part in both]) for both in either])
    found = number(expression, known)
    return None if found is None else found != 0


def _compared(tested: Sequence[str], *, patterns: bool) -> bool | None:
    """Return what a comparison finds, None if it is none."""
    match tested:
        case [] | [_]:
            return tested not in ([], [""])
        case ["-z" | "-n" as kind, value]:
            return (value == "") is (kind == "-z")
        case [first, operator, second] if operator in _NUMBERS:
            one, other = whole(first), whole(second)
            return None if one is None or other is None else _NUMBERS[operator](one, other)
        case [first, "=" | "==" | "!=" as operator, second]:
            same = matches(first, second) if patterns else first == second
            return same is (operator != "!=")
        case [first, "=~", pattern] if patterns and max(len(first), len(pattern)) < _LONGEST:
            return re.search(pattern, first) is not None if _SIMPLE.fullmatch(pattern) else None
    return None


def condition_for(name: str) -> UserError:
    """Return the error for a variable whose value a condition makes unsure."""
    return UserError(f"the fio job has a condition for {name!r}: give the value that holds")


def unknown_change(name: str) -> UserError:
    """Return the error for braces that change a value in a way that iolab does not know."""
    return UserError(
        f"the fio job: iolab does not know what a shell makes of ${{{name[:40]}}}: give its value"
    )


def is_empty(condition: str, name: str) -> bool:
    """Return whether a condition is that a variable is empty, and no more."""
    used = _use_of(name)
    return _matches(condition, rf"-z {used}|! (?:-n )?{used}|{used} ==?")


def is_set(condition: str, name: str) -> bool:
    """Return whether a condition is that a variable is not empty, and no more."""
    used = _use_of(name)
    return _matches(condition, rf"(?:-n )?{used}|! -z {used}|{used} !=")


def _use_of(name: str) -> str:
    return rf"\$(?:{re.escape(name)}|\{{{re.escape(name)}(?:[:+-][^}}]*)?\}})"


def _matches(condition: str, test: str) -> bool:
    return re.fullmatch(rf"(?:\[\[?|test) (?:{test})(?: *\]\]?)? *", condition) is not None
