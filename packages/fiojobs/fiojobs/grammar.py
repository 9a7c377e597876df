# SPDX-License-Identifier: MIT
"""The loops, branches and functions of a script, as a tree of its commands."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from iolab_base.errors import UserError

# Commands in a shell of their own.
SUBSHELL: Final = "({"
_DEEPEST: Final = 32
# What each construct ends with, and what stands alone before a command.
_CLOSES: Final = {
    "if": "fi",
    "for": "done",
    "while": "done",
    "until": "done",
    "case": "esac",
    "{": "}",
    SUBSHELL: "}",
}
_ALONE: Final = ("if", "then", "elif", "else", "while", "until", "do", "{", SUBSHELL)
# What a page may have torn off: it opens or closes nothing.
_DROPPED: Final = ("if", "then", "else", "fi", "{", "}", SUBSHELL)
_FUNCTION: Final = re.compile(r"([A-Za-z_][\w.:-]*)\(\)(\{?)")
# A pattern of a case: "read)", "-b)", "*)", "(a)".
_PATTERN: Final = re.compile(r"\(?([^()`]*)\)")


@dataclass(frozen=True)
class Simple:
    """A simple command: its words, the files that it is redirected to, and what ends it."""

    words: list[str]
    files: list[str]
    end: str


@dataclass
class Branch:
    """A branch or a body: what is tested for it, and its commands."""

    test: list[Simple | Compound]
    body: list[Simple | Compound]
    patterns: list[str] = field(default_factory=list)


@dataclass
class Compound:
    """An ``if``, a loop, a ``case``, commands in braces or a function, its files and its end."""

    kind: str
    head: list[str]
    parts: list[Branch]
    end: str
    files: list[str] = field(default_factory=list)


Node = Simple | Compound


class _Token(NamedTuple):
    kind: str
    words: list[str]
    files: list[str]
    end: str


def tree_of(commands: Iterable[tuple[list[str], list[str], str]]) -> list[Node]:
    """Return a text's commands as a tree; keywords that open or close nothing stay commands."""
    tokens: list[_Token] = []
    cases = 0
    for command in commands:
        for token in _tokens(*command, in_case=cases > 0):
            cases += {"case": 1, "esac": -1}.get(token.kind, 0)
            last = tokens[-1] if tokens else None
            if (
                last is not None
                and last.words[0] == "[["
                and "]]" not in last.words
                and last.end in ("&&", "||")
            ):
                # Both are a part of the test.
                words = [*last.words, last.end, *token.words]
                tokens[-1] = token._replace(words=words, kind="")
                continue
            tokens.append(token)
    return _Reader(tokens).nodes()


def _tokens(given: list[str], files: list[str], end: str, *, in_case: bool) -> Iterable[_Token]:
    """Yield the keywords before a command, and the command."""
    words = list(given)
    for depth in itertools.count():
        if not words:
            return
        if depth > _DEEPEST:
            raise UserError(f"the fio job has commands more than {_DEEPEST} deep")
        word = words[0]
        function = _FUNCTION.fullmatch(word)
        if function or words[1:2] in (["()"], ["(){"]) or (word == "function" and words[1:]):
            place = 1 if word == "function" else 0
            name = words[place].rstrip("(){")
            rest = words[place + 1 :]
            opens = words[place].endswith("{") or rest[:1] == ["(){"]
            rest = rest[1:] if rest[:1] in (["()"], ["(){"]) else rest
            yield _Token("function", [name], [], "\n")
            words = ["{", *rest] if opens else rest
        elif word == "time" and words[1:2] and words[1] in _CLOSES:
            words = words[1:]
        elif word in _ALONE:
            yield _Token(word, words[:1], [], "\n")
            words = words[1:]
        elif word in _CLOSES.values():
            yield _Token(word, words[:1], files, end)
            words = words[1:]
        elif word == "case" and words[2:3] == ["in"]:
            yield _Token(word, words[:3], [], "\n")
            words, in_case = words[3:], True
        elif in_case and _PATTERN.fullmatch(word) and words[1:]:
            yield _Token("", words[:1], [], "\n")
            words = words[1:]
        else:
            # "for i do"
            head = 2 if word == "for" and words[2:3] == ["do"] else len(words)
            rest, words = words[head:], words[:head]
            yield _Token("for" if word == "for" else "", words, files, "\n" if rest else end)
            words = rest


class _Reader:
    """Read tokens into nodes."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.tokens = tokens
        self.at = 0
        # Where a construct opens or closes that does both.
        self.paired: set[int] = set()
        opened: list[int] = []
        for place, token in enumerate(tokens):
            if token.kind in _CLOSES:
                opened.append(place)
            elif token.kind in _CLOSES.values():
                kinds = [_CLOSES[tokens[other].kind] for other in opened]
                if token.kind in kinds:
                    last = len(kinds) - 1 - kinds[::-1].index(token.kind)
                    self.paired |= {opened[last], place}
                    del opened[last:]
            if len(opened) > _DEEPEST:
                raise UserError(f"the fio job has commands more than {_DEEPEST} deep")

    def nodes(self, *ends: str) -> list[Node]:
        """Return the commands up to one of some keywords."""
        found: list[Node] = []
        while self.at < len(self.tokens):
            token, paired = self.tokens[self.at], self.at in self.paired
            if token.kind in ends and (paired or token.kind not in _CLOSES.values()):
                break
            self.at += 1
            if token.kind == "function":
                found.append(self._function(token))
            elif paired:
                found.append(self._group(token))
            elif token.kind not in _DROPPED:
                found.append(Simple(token.words, token.files, token.end))
        return found

    def _function(self, token: _Token) -> Node:
        """Return a function, or the command that looks like one."""
        if self.at in self.paired and self.tokens[self.at].kind in _CLOSES:
            self.at += 1
            body = self._group(self.tokens[self.at - 1])
            return Compound("function", token.words, [Branch([], [body])], "\n")
        return Simple([*token.words, "()"], [], token.end)

    def _group(self, token: _Token) -> Compound:
        end = _CLOSES[token.kind]
        parts: list[Branch] = []
        if token.kind == "if":
            keyword = "if"
            while keyword != "fi":
                test = [] if keyword == "else" else self._until("then", "else", "elif", "fi")
                body = self.nodes("elif", "else", "fi")
                parts.append(Branch(test, body))
                keyword = self._take()
        elif token.kind == "case":
            parts = self._cases()
        else:
            test = [] if end == "}" else self._until("do", end)
            parts = [Branch(test, self.nodes(end))]
            self._take()
        last = self.tokens[self.at - 1]
        return Compound(token.kind, token.words, parts, last.end, last.files)

    def _take(self) -> str:
        """Return the keyword that comes next."""
        self.at += 1
        return self.tokens[self.at - 1].kind

    def _until(self, keyword: str, *ends: str) -> list[Node]:
        """Return the commands before a keyword, and take that."""
        found = self.nodes(keyword, *ends)
        if self.tokens[self.at].kind == keyword:
            self.at += 1
        return found

    def _cases(self) -> list[Branch]:
        parts: list[Branch] = []
        body: list[Node] = []
        for node in self.nodes("esac"):
            match = _PATTERN.fullmatch(node.words[0]) if isinstance(node, Simple) else None
            if match is None:
                body.append(node)
                continue
            patterns = [match[1]]
            # "a | b)" is in two commands.
            while body and isinstance(last := body[-1], Simple) and last.end == "|":
                patterns.append(last.words[0].lstrip("("))
                body.pop()
            body = []
            parts.append(Branch([], body, patterns))
        self._take()
        return parts


def shown_test(test: Sequence[Node]) -> str:
    """Return a test as a sentence has it."""
    return " ".join(word for node in test if isinstance(node, Simple) for word in node.words)[:60]


def reads_on(nodes: Sequence[Node]) -> bool:
    """Return whether commands read what the loop around them reads, too."""
    return any(
        any(reads_on([*part.test, *part.body]) for part in node.parts)
        if isinstance(node, Compound)
        else "read" in node.words[:2]
        for node in nodes
        if not node.files
    )


def mentions(group: Compound, pattern: re.Pattern[str]) -> bool:
    """Return whether a command within a construct matches a pattern."""
    for part in group.parts:
        for node in (*part.test, *part.body):
            if isinstance(node, Compound):
                if mentions(node, pattern):
                    return True
            elif pattern.match(" ".join(node.words)):
                return True
    return False
