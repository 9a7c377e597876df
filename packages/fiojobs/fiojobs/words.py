# SPDX-License-Identifier: MIT
"""The words of commands, as a shell reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from iolab_base.errors import UserError

# What stands before the name of a file to which a command appends, of one that it reads, and before
# a text that it reads.
APPENDED: Final = ">>"
READ: Final = "<"
GIVEN: Final = "<<<"
_ERRORS: Final = "2>"
# In the place of a value: a page's <device> or {read|write}.
_PLACEHOLDER: Final = re.compile(r"<[^<>\n]*>|\{[^{}\n]*[,|][^{}\n]*\}")
# Another value behind one, as a page has --rw=read|write: no program's name.
_EITHER: Final = re.compile(r"\|(?:read|write|trim|rw|rand(?:read|write|rw|trim)|\d+[a-zA-Z]?)\b")
_REDIRECTION: Final = re.compile(r"[<>&|]+[ \t]*")
_SEPARATOR: Final = re.compile(r"[ \t]+|[;|&\n]+")
_LAST: Final = re.compile(r"\$([A-Za-z_]\w*)\Z", re.ASCII)
# ${NAME:-SOME WORDS}
_BRACED: Final = re.compile(r"\$\{[^{}\n\"'`]*\}")
_COMMANDS: Final = re.compile(r"[$<>]\(")
# Commands within commands, and quotes within these.
_DEEPEST: Final = 8


class Bare(str):
    """A word with a variable outside of quotes: a shell may make several words of its value."""

    __slots__ = ()


def shown(word: str) -> str:
    """Return a word as a sentence has it."""
    return repr(word[:40])


def no_other_program(text: str) -> UserError:
    """Return the error for a value that another program would print."""
    return UserError(
        f"the fio job: iolab runs no other program for a value: {text[:40]!r}: give what it prints"
    )


def _check_value(word: str, text: str, at: int) -> None:
    """Raise UserError for a word that goes on with what stands for a value, or with another."""
    if word.endswith("=") and (match := _PLACEHOLDER.match(text, at)):
        raise UserError(f"the fio job: {shown(word + match[0])} stands for a value: give one")
    if "=" in word and (match := _EITHER.match(text, at)):
        raise UserError(f"the fio job: {shown(word + match[0])} names several values: give one")


def substituted(word: str) -> Iterator[str]:
    """Yield the commands within each ``$(...)`` of a word."""
    at = 0
    while match := _COMMANDS.search(word, at):
        try:
            inside, at = _balanced(word, match.start(), 0)
        except UserError:
            return
        yield inside[2:-1]


def simple_commands(text: str) -> Iterator[tuple[list[str], list[str], str]]:
    """Yield the words of each command, the files that it is redirected to, and what ends it.

    What a command takes from another one, ``$(...)``, stays in its word. Files that a command does
    not just write have `APPENDED`, `READ` or `GIVEN` before their names.
    """
    words: list[str] = []
    files: list[str] = []
    # None between words: quotes may hold an empty one.
    word: str | None = None
    redirected, prefix = False, ""
    kind: type[str] = str
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            word = (word or "") + text[at + 1 : at + 2]
            at += 2
            continue
        if character in "'\"`" or text.startswith("$(", at):
            inside, at = _quoted(text, at, 0)
            word = _ended(word or "", inside) + _ended(inside, text[at : at + 1])
            continue
        if character == "#" and word is None:
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        _check_value(word or "", text, at)
        if text.startswith(("<(", ">("), at):
            inside, at = _balanced(text, at, 0)
            word = (word or "") + inside
            continue
        redirects = character in "<>" or text.startswith("&>", at)
        if not redirects and character not in " \t\n;|&":
            braced = _BRACED.match(text, at)
            word = (word or "") + (braced[0] if braced else character)
            kind = Bare if character == "$" else kind
            at = braced.end() if braced else at + 1
            continue
        # The digit of 2> is no word.
        number = word if redirects and word and word.isdigit() else ""
        if word is not None and not number:
            (files if redirected else words).append(f"{prefix}{word}" if redirected else kind(word))
            redirected = False
        word, kind = None, str
        operator = (_REDIRECTION if redirects else _SEPARATOR).match(text, at)
        at = operator.end() if operator else at + 1
        if redirects and operator:
            redirected, prefix = True, _prefix(operator[0].strip(), number)
        if operator and not redirects and (end := _end_of(operator[0])):
            yield from _command(words, files, end)
            words, files = [], []
    if word is not None:
        (files if redirected else words).append(f"{prefix}{word}" if redirected else kind(word))
    yield from _command(words, files, "")


def _command(
    words: list[str], files: list[str], end: str
) -> Iterator[tuple[list[str], list[str], str]]:
    """Yield a command without the files of its errors; one without words empties a file."""
    files = [name for name in files if not name.startswith(_ERRORS)]
    if words or any(not name.startswith(READ) for name in files):
        yield words or [":"], files, end


def _prefix(operator: str, number: str) -> str:
    """Return what stands before the name of a file of a redirection."""
    if number not in ("", "0", "1"):
        return _ERRORS
    if ">" in operator:
        return APPENDED if ">>" in operator else ""
    return GIVEN if operator == GIVEN else READ if operator.startswith(READ) else ""


def _end_of(operator: str) -> str:
    """Return what ends a command; raise UserError for what goes on in the next branch."""
    if ";&" in operator:
        raise UserError("the fio job: ;& goes on with the next branch: give the call that runs")
    return operator.strip() or operator.strip(" \t")[:1]


def _ended(text: str, after: str) -> str:
    """Return a text whose last variable ends at a quote, whatever stands behind that."""
    return _LAST.sub(r"${\1}", text) if re.match(r"\w", after) else text


def _quoted(text: str, start: int, depth: int) -> tuple[str, int]:
    """Return what stands in quotes or ``$(...)``, and where the text goes on."""
    unclosed = UserError(f"the fio job: No closing quotation: {text[start : start + 60]!r}")
    if depth > _DEEPEST:
        raise unclosed
    if text[start] in "'`":
        end = text.find(text[start], start + 1)
        if end < 0:
            raise unclosed
        inside = text[start + 1 : end]
        return (inside if text[start] == "'" else f"$({inside})"), end + 1
    if text[start] == "$":
        return _balanced(text, start, depth)
    found, at = list[str](), start + 1
    while at < len(text):
        if text[at] == '"':
            return "".join(found), at + 1
        if text[at] == "`" or text.startswith("$(", at):
            inside, at = _quoted(text, at, depth + 1)
            found.append(inside)
            continue
        # A backslash is one, unless it is before one of these or the end of a line.
        escaped = re.match(r'\\([$`"\\]|\n)', text[at : at + 2])
        found.append(escaped[1].strip("\n") if escaped else text[at])
        at += 2 if escaped else 1
    raise unclosed


def _balanced(text: str, start: int, depth: int) -> tuple[str, int]:
    """Return a ``$(...)``, as `_quoted` does."""
    at, brackets = start + 2, 1
    while at < len(text) and brackets:
        if text[at] in "'\"`":
            at = _quoted(text, at, depth + 1)[1]
            continue
        brackets += {"(": 1, ")": -1}.get(text[at], 0)
        at += 2 if text[at] == "\\" else 1
    if brackets:
        raise UserError(f"the fio job: No closing parenthesis: {text[start : start + 60]!r}")
    return text[start:at], at
