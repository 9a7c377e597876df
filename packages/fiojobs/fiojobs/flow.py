# SPDX-License-Identifier: MIT
"""Run a script as a shell would, as far as its text tells: its commands in their order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from fiojobs.arithmetic import expression_of, number, whole
from fiojobs.carriers import carried, commands_of, is_call, opens_shell
from fiojobs.conditions import asks_the_machine, condition_for, is_test, matches, outcome
from fiojobs.functions import LEAVES, Functions
from fiojobs.grammar import SUBSHELL, Compound, Node, Simple, mentions, shown_test, tree_of
from fiojobs.kept import given_to
from fiojobs.plain import FIO
from fiojobs.state import READS_LINE, ShellState, Test
from fiojobs.steps import (
    LeaveError,
    ShellStep,
    check_named,
    check_skipped,
    in_background,
    lines_of,
    redirected,
    too_long,
)
from fiojobs.variables import filled, is_set_by, names_in, parts_of, values_of, words_of
from fiojobs.words import READ, shown, substituted
from iolab_base.errors import UserError

# What ends or follows a command that runs in a shell of its own.
_SHARES: Final = frozenset(("|", "|&", "&"))
_MOST_ROUNDS: Final = 1000
_MOST_STEPS: Final = 5000
_DEEPEST: Final = 16
# A loop over the arguments of a script, which is read as if it had none.
_OVER_ARGUMENTS: Final = re.compile(r"getopts |shift\b|.*\$(?:#|\{#\})")
_ENDS: Final = re.compile("break|return|exit")
_Steps = Generator[ShellStep, None, None]


class Script:
    """A shell that runs a script, with its arguments, and its here-documents by their names."""

    def __init__(
        self, arguments: Sequence[str] | None = None, documents: Mapping[str, str] | None = None
    ) -> None:
        self._documents = documents or {}
        self._state = ShellState(arguments)
        self._functions = Functions(self._state)
        self._conditions: list[str] = []
        # What the last test found, and its words.
        self._result: bool | None = None
        self._last: list[str] = []
        # Texts within texts that eval and shells run, and whether a round of a loop calls fio.
        self._depth, self._calling = 0, False
        # The test that decides about the commands joined by "&&".
        self._test: Test | None = None
        # Shells that a person has opened, which `exit` closes, and the commands so far.
        self._shells, self._count = 0, 0
        # Pipes out of constructs, and the one that the next command reads.
        self._pipes = 0
        self._read: list[str] = []

    def run(self, nodes: Sequence[Node]) -> Iterator[ShellStep]:
        """Yield the commands that a shell runs.

        Raises UserError for a loop or a condition on which calls of fio depend, and that the text
        does not decide.
        """
        for place, node in enumerate(nodes):
            try:
                yield from self._node(node, nodes[place - 1].end if place else "")
            except LeaveError as leave:
                if leave.kind == "exit" and self._functions.call_fio(nodes[place + 1 :]):
                    raise UserError(
                        "the fio job: a call of fio stands behind exit: leave out what does not run"
                    ) from leave
                if leave.kind == "exit":
                    return

    @property
    def uncalled(self) -> str | None:
        """A function that calls fio, if the script has one."""
        calling = (n for n, body in self._functions.items() if self._functions.call_fio(body))
        return next(calling, None)

    def _nodes(self, nodes: Sequence[Node]) -> _Steps:
        before = ""
        for node in nodes:
            yield from self._node(node, before)
            before = node.end

    def _node(self, node: Node, before: str) -> _Steps:
        if {"&&": self._result is False, "||": self._result is True}.get(before, False):
            return
        if isinstance(node, Compound) and node.kind == "function":
            self._functions.define(node.head[0], node.parts[0].body, sure=not self._conditions)
            return
        behind_test = before == "&&" and (is_test(self._last) or self._test is not None)
        test = None
        if self._result is None and (before == "||" or behind_test):
            test = (before == "&&" and self._test) or Test(" ".join(self._last), before == "||")
            last = Simple(self._last, [], "")
            if (
                before == "||"
                and self._last
                and self._functions.call_fio([last])
                and self._functions.call_fio([node])
            ):
                raise UserError("the fio job has a condition (||): give the call that runs")
        if isinstance(node, Simple):
            yield from self._simple(node, before, test)
            self._test = test if before == "&&" else None
            return
        kinds: Mapping[str, Callable[[Compound], _Steps]] = {
            "if": self._if,
            "case": self._case,
            "for": self._for,
            "while": self._while,
            "until": self._while,
        }
        run = kinds.get(node.kind)
        steps = run(node) if run else self._nodes(node.parts[0].body)
        apart = node.kind == SUBSHELL or not _SHARES.isdisjoint((before, node.end))
        steps = self._written(self._own_shell(steps) if apart else steps, node, before)
        yield from self._in_place(steps, node.end, test)
        self._result = self._result if node.kind == "{" and test is None else None
        self._test = test if before == "&&" else None

    def _written(self, steps: _Steps, node: Node, before: str) -> _Steps:
        """Yield the steps of a construct or a function whose output goes to a file or a pipe."""
        piped = node.end == "|" and not self._functions.call_fio([node])
        self._pipes += piped
        pipe = f"/dev/pipe/{self._pipes}"
        files = [pipe] if piped else [n for n in node.files if not n.startswith(READ)]
        files = [filled(name, self._state.known) for name in files]
        if files and before not in ("|", "|&"):
            # A shell opens them first.
            yield self._step(Simple([":"], files, "\n"), "")
        yield from redirected(steps, files)
        self._read = [f"{READ}{pipe}"] if piped else []

    def _script(self, script: str) -> _Steps:
        """Yield the steps of a text."""
        if self._depth > _DEEPEST:
            raise UserError(f"the fio job: {shown(script)} runs itself without an end")
        self._depth += 1
        try:
            yield from self._nodes(tree_of(commands_of(script)))
        finally:
            self._depth -= 1

    def _own_shell(self, steps: _Steps) -> _Steps:
        """Yield the steps of a shell within the shell, which changes nothing of the outer one."""
        with suppress(LeaveError), self._state.kept():
            yield from steps

    def _in_place(self, steps: _Steps, end: str, test: Test | None) -> _Steps:
        """Yield the steps of one command: maybe under a test, maybe in the background."""
        if test is not None:
            steps = self._either([test], [steps], exhaustive=False)
        yield from in_background(steps) if end == "&" else steps

    def _simple(self, node: Simple, before: str, test: Test | None) -> _Steps:
        read, self._read = (self._read if before == "|" else []), []
        negated = node.words[:1] == ["!"]
        words = [w for word in node.words[negated:] for w in words_of(word, self._state.known)]
        words = self._functions.with_program(words)
        if not words:
            return
        known = self._state.known
        split = words[0] != "[[" and not words[0].startswith("((")
        values = [v for w in words for v in (parts_of(w, known) if split else [filled(w, known)])]
        values, result = values or [""], self._result
        # Where a function's name would stand.
        place = next((n for n, w in enumerate(words) if w != "time" and not is_set_by(w)), 0)
        name = words[place if words[place] in self._functions else 0]
        if name in LEAVES and not FIO.search(" ".join(words)):
            if test is None:
                self._leave(name, values[1:])
            check_skipped(test if self._calling else None, [node])
            return
        yield from self._substituted(words)
        script = carried(values)
        if name in self._functions:
            steps = self._call(name, words[place + 1 :], values[place + 1 :], words[:place])
        elif script is not None and (FIO.search(script) or name == "eval"):
            steps = self._script(script)
        else:
            files = [*node.files, *read]
            steps = self._command(Simple(words, files, node.end), before, values)
        simple = name not in self._functions and script is None
        if not simple and not _SHARES.isdisjoint((before, node.end)):
            steps = self._own_shell(steps)
        steps = steps if simple else self._written(steps, node, before)
        if values[1:2] == ["$?"] and not is_test(self._last):
            # What is done before goes well, unless the script says what that is.
            values[1] = "0" if {*self._last[:1]}.isdisjoint(self._functions) else "$?"
        self._result = None
        yield from self._in_place(steps, "" if simple else node.end, test)
        option = self._state.next_option(values)
        found = outcome(values, self._state.known) if option is None else option
        found = self._result if name in self._functions else found
        if negated:
            calls = name not in self._functions and self._functions.call_fio([node])
            found = (False if calls else None) if found is None else not found
        if words[0] == "exec" and is_call(words) and test is None:
            raise LeaveError("exit")
        if result is None and before in ("&&", "||") and found is not (before == "||"):
            found = None
        self._last, self._result = list(node.words), found

    def _command(self, node: Simple, before: str, values: list[str]) -> _Steps:
        """Yield a command, and set the variables that it sets."""
        text = given_to(node.files, self._documents, self._state.known)
        if text is not None and READS_LINE.match(" ".join(values)):
            self._state.read(values, text)
            return
        if self._state.carries_out(values):
            return
        yield self._step(node, before)
        check_named(node.words, self._functions, self._functions.call_fio)
        self._state.sets(node.words)
        self._shells += opens_shell(values)

    def _step(self, node: Simple, before: str) -> ShellStep:
        self._count += 1
        if self._count > _MOST_STEPS:
            raise UserError(f"the fio job runs more than {_MOST_STEPS} commands: give its calls")
        conditions = " and ".join(dict.fromkeys(filter(None, self._conditions)))
        environment, unsure = self._state.copy()
        return ShellStep(
            node.words, node.files, before, node.end, conditions, environment, frozenset(unsure)
        )

    def _substituted(self, words: Sequence[str]) -> _Steps:
        """Yield the commands within ``$(...)``, if one is a call of fio."""
        for inside in (inside for word in words for inside in substituted(word)):
            nodes = tree_of(commands_of(inside))
            if self._functions.call_fio(nodes):
                yield from self._own_shell(self._nodes(nodes))

    def _leave(self, kind: str, values: Sequence[str]) -> None:
        if kind == "exit" and self._shells:
            self._shells -= 1
            return
        level = whole(values[0]) if values else None
        raise LeaveError(kind, level or 1, None if level is None else level == 0)

    def _call(
        self, name: str, given: Sequence[str], values: Sequence[str], before: Sequence[str]
    ) -> _Steps:
        """Yield the commands of a function; what stands before it holds as long."""
        if self._state.depth >= _DEEPEST:
            raise UserError(f"the fio job: {shown(name)} calls itself without an end")
        # Those of the script itself are not in its text.
        arguments = None if "$@" in given or "$*" in given else values
        with self._state.function(arguments):
            self._state.sets(["local", *(word for word in before if word != "time")])
            try:
                yield from self._nodes(self._functions[name])
            except LeaveError as leave:
                if leave.kind != "return":
                    raise
                self._result = leave.result

    def _decide(self, test: Sequence[Node]) -> Generator[ShellStep, None, bool | None]:
        """Yield the commands of a test; return what it finds, None if the text does not tell."""
        self._result = None
        yield from self._nodes(test)
        return self._result

    def _if(self, group: Compound) -> _Steps:
        tests: list[Test] = []
        bodies: list[Sequence[Node]] = []
        taken: bool | None = False
        for part in group.parts:
            test, taken = "", True
            if part.test:
                test, taken = shown_test(part.test), (yield from self._decide(part.test))
            if taken is False:
                continue
            first = tests[0].text if tests else ""
            tests.append(Test(test or first, fails=not part.test))
            bodies.append(part.body)
            if taken:
                break
        yield from self._branches(tests, bodies, exhaustive=taken is True)

    def _case(self, group: Compound) -> _Steps:
        word = group.head[1]
        value = filled(word, self._state.known)
        parts = group.parts
        exhaustive = any("*" in part.patterns for part in parts)
        if "$" not in value:
            patterns = [[filled(p, self._state.known) for p in part.patterns] for part in parts]
            places = [n for n, each in enumerate(patterns) for p in each if matches(value, p)]
            parts, exhaustive = [parts[place] for place in places[:1]], True
        tests = [Test(f"case {word} in {' | '.join(p.patterns)}", fails=False) for p in parts]
        yield from self._branches(tests, [part.body for part in parts], exhaustive=exhaustive)

    def _branches(
        self, tests: Sequence[Test], bodies: Sequence[Sequence[Node]], *, exhaustive: bool
    ) -> _Steps:
        """Yield the commands of branches of which a shell runs one, or none."""
        if exhaustive and len(bodies) == 1:
            yield from self._nodes(bodies[0])
            return
        # A branch that ends the script measures nothing: it is not the one that the user means.
        calls = [self._functions.call_fio(body) for body in bodies]
        kept = [
            (test, body)
            for test, body, calling in zip(tests, bodies, calls, strict=True)
            if calling or not self._functions.leave(body)
        ]
        for test, body in zip(tests, bodies, strict=True):
            check_skipped(test if self._calling else None, body)
        calling = list(itertools.compress(tests, calls))
        if len(calling) > 1:
            raise UserError(
                f"the fio job has a condition ({calling[0].text}): give the call that runs"
            )
        if exhaustive and len(kept) == 1:
            yield from self._nodes(kept[0][1])
        elif kept:
            steps = [self._nodes(body) for _, body in kept]
            yield from self._either([test for test, _ in kept], steps, exhaustive=exhaustive)

    def _either(
        self, tests: Sequence[Test], alternatives: Iterable[_Steps], *, exhaustive: bool
    ) -> _Steps:
        """Yield all steps of which a shell runs some, and keep the values that hold behind them."""
        endings = [] if exhaustive else [self._state.copy()]
        for test, steps in zip(tests, alternatives, strict=True):
            noted = bool(test.text) and (test.fails or not asks_the_machine(test.text))
            self._conditions.append(f"{'not ' * test.fails}{test.text}" if noted else "")
            # An ending that leaves the script, or the loop, is none.
            with suppress(LeaveError), self._state.kept():
                yield from steps
                endings.append(self._state.copy())
            self._conditions.pop()
        self._state.settle(endings, tests)

    def _for(self, group: Compound) -> _Steps:
        name, *listed = group.head[1:] or [""]
        if name.startswith("(("):
            yield from self._counts(group, expression_of([name, *listed]))
            return
        listed = listed or ["in", "$@"]
        values = values_of(listed[1:], self._state.known) if listed[:1] == ["in"] else None
        if values is None:
            none = "@" not in self._state.environment and listed in (["in", "$@"], ["in", "$*"])
            if not none or self._functions.call_fio(group.parts[0].body):
                yield from self._unknown(group, listed, name)
            return
        for value in values:
            self._state.give(name, value)
            if not (yield from self._round(group)):
                break

    def _counts(self, group: Compound, head: str) -> _Steps:
        """Yield the steps of ``for ((FIRST; TEST; NEXT))``."""
        first, test, after = [*head.split(";"), "", ""][:3]
        self._state.calculate(first)
        for _ in range(_MOST_ROUNDS):
            value = number(filled(test, self._state.known), self._state.known)
            if value is None:
                yield from self._unknown(group, [test])
                return
            if not value or not (yield from self._round(group)):
                return
            self._state.calculate(after)
        raise too_long(group, _MOST_ROUNDS)

    def _while(self, group: Compound) -> _Steps:
        part = group.parts[0]
        lines = lines_of(group, self._documents, self._state.known)
        if lines is not None and isinstance(test := part.test[0], Simple):
            values = [filled(word, self._state.known) for word in test.words]
            for line in lines:
                self._state.read(values, line)
                if not (yield from self._round(group)):
                    return
            # It reads nothing in the end.
            self._state.read(values, "")
            return
        unknown, calls = "@" not in self._state.environment, self._functions.call_fio(part.body)
        if unknown and mentions(group, _OVER_ARGUMENTS) and not calls:
            return
        shown_words = shown_test(part.test).split()
        ends = calls and mentions(group, _ENDS)
        if shown_words in (["true"], [":"]) and not ends:
            yield from self._unknown(group, shown_words)
            return
        for _ in range(_MOST_ROUNDS):
            holds = yield from self._decide(part.test)
            if holds is None:
                yield from self._unknown(group, shown_words)
                return
            if holds is (group.kind == "until") or not (yield from self._round(group)):
                return
        raise too_long(group, _MOST_ROUNDS)

    def _round(self, group: Compound) -> Generator[ShellStep, None, bool]:
        """Yield the steps of one round of a loop; return whether another one may follow."""
        body, before = group.parts[0].body, self._calling
        self._calling = self._functions.call_fio(body)
        try:
            yield from self._nodes(body)
        except LeaveError as leave:
            if leave.kind not in ("break", "continue"):
                raise
            if leave.levels > 1:
                raise LeaveError(leave.kind, leave.levels - 1) from leave
            return leave.kind == "continue"
        finally:
            self._calling = before
        return True

    def _unknown(self, group: Compound, listed: Sequence[str], name: str = "") -> _Steps:
        """Yield the steps of a loop whose rounds the text does not tell, if none is a call."""
        body = group.parts[0].body
        head = group.head if group.kind == "for" else [group.kind, *listed]
        if self._functions.call_fio(body):
            for variable in names_in(" ".join(listed)):
                if variable in self._state.unsure:
                    raise condition_for(variable.split("[")[0])
            raise UserError(
                f"the fio job: {shown(' '.join(head))} is a shell's: give one call of fio, and "
                "what differs as --vary OPTION=VALUE,VALUE"
            )
        if name:
            self._state.give(name, next((word for word in listed if word.startswith("/")), None))
        rounds = Test(shown(" ".join(head)), fails=False)
        yield from self._either([rounds], [self._nodes(body)], exhaustive=False)
        if name:
            self._state.forget(name)
