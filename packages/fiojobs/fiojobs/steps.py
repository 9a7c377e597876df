# SPDX-License-Identifier: MIT
"""What a shell does when it runs a script: one command after another, until it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fiojobs.carriers import commands_of, is_call
from fiojobs.conditions import asks_the_machine, is_test
from fiojobs.grammar import Compound, Node, Simple, reads_on, shown_test, tree_of
from fiojobs.kept import given_to
from fiojobs.starters import HARMLESS, SILENT
from fiojobs.state import READS_LINE, Test
from fiojobs.variables import DECLARES, is_set_by
from fiojobs.words import APPENDED, READ, shown
from iolab_base.errors import UserError

# Commands that call no function.
_OWN: Final = HARMLESS.union(DECLARES).difference(("trap", "command"))


@dataclass(frozen=True)
class ShellStep:
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


def in_background(steps: Iterable[ShellStep]) -> Iterator[ShellStep]:
    """Yield the steps of a construct in the background, and say so with the last call."""
    found = list(steps)
    places = [place for place, step in enumerate(found) if is_call(step.words)]
    if places:
        last = places[-1]
        several = len(places) > 1
        found[last] = replace(found[last], end=found[last].end if several else "&", apart=several)
    yield from found


def redirected(steps: Iterable[ShellStep], files: Sequence[str]) -> Iterator[ShellStep]:
    """Yield the steps of a construct whose output goes to files: each after the first appends."""
    written = list(files)
    for step in steps:
        silent = step.words[0] in SILENT or is_set_by(step.words[0])
        own = silent or step.end == "|" or not all(name.startswith(READ) for name in step.files)
        yield step if own else replace(step, files=[*step.files, *written])
        if not own:
            written = [f"{APPENDED}{name.removeprefix(APPENDED)}" for name in written]


def check_named(
    words: Sequence[str],
    functions: Mapping[str, Sequence[Node]],
    has_call: Callable[[Sequence[Node]], bool],
) -> None:
    """Raise UserError for a command that may call fio later, or a function that does."""
    if words[0] == "trap" and has_call(tree_of(commands_of(" ".join(words[1:2])))):
        raise UserError("the fio job: trap calls fio: leave it out, or call fio by itself")
    if words[0] in _OWN:
        return
    for name in {part for word in words for part in word.split()} & functions.keys():
        if has_call(functions[name]):
            raise UserError(f"the fio job: {shown(words[0])} calls {name}(): call it by itself")


def check_skipped(test: Test | None, body: Sequence[Node]) -> None:
    """Raise UserError for what may leave out rounds of a loop, and the text does not tell."""
    if test is None or not test.text or asks_the_machine(test.text):
        return
    last = body[-1] if body else None
    if isinstance(last, Simple) and last.words[0] in ("break", "continue"):
        raise UserError(
            f"the fio job has a condition ({test.text[:60]}) for {last.words[0]}: give the calls "
            "that run"
        )


def lines_of(
    group: Compound, documents: Mapping[str, str], known: Mapping[str, str]
) -> list[str] | None:
    """Return the lines that a loop reads one by one; None if the text does not have them."""
    test, body = group.parts[0].test, group.parts[0].body
    # read || [ -n "$NAME" ]
    if len(test) > 1 and test[0].end == "||" and is_test(shown_test(test[1:]).split()):
        test = test[:1]
    if group.kind != "while" or len(test) != 1 or reads_on(body):
        return None
    if not READS_LINE.match(shown_test(test)):
        return None
    text = given_to(group.files, documents, known)
    return None if text is None else text.removesuffix("\n").split("\n") if text else []


def too_long(group: Compound, rounds: int) -> UserError:
    """Return the error for a loop that has more rounds than some."""
    return UserError(
        f"the fio job: the loop {shown(' '.join(group.head))} has more than {rounds} rounds"
    )
