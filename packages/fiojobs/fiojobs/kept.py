# SPDX-License-Identifier: MIT
"""The texts that the commands of a script print, read and keep in files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from fiojobs.arithmetic import whole
from fiojobs.plain import AS_IT_IS, FIO
from fiojobs.starters import SHELLS, SILENT, program_of
from fiojobs.variables import filled, is_set_by, parts_of, with_variables
from fiojobs.words import APPENDED, GIVEN, READ, shown

_OF_ECHO: Final = re.compile("-[neE]+")
# What reads the commands of a text, beside shells.
_READERS: Final = ("ssh", "source", ".")
# What prints another text than it reads.
_CHANGES: Final = frozenset(
    ("sed", "awk", "tr", "grep", "cut", "head", "tail", "perl", "m4", "jq", "sort", "envsubst")
)
# What printf(1) fills in, and the characters that a backslash stands before.
_FILLED_IN: Final = re.compile(r"%(%|[-0]?\d{0,3}[sbdiu])")
_ESCAPED: Final = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", '\\"': '"'}
_SPECIAL: Final = re.compile(r'\\[nt\\"]')
# Of printf(1) and of cat(1).
_MOST_ROUNDS: Final = 1000
_LONGEST: Final = 1 << 20


class Kept(NamedTuple):
    """A text, None if it is not known, and what must hold so that it is this one."""

    text: str | None
    condition: str = ""

    def holds_under(self, condition: str) -> bool:
        """Return whether the text is this one wherever a condition holds."""
        return f"{condition} and ".startswith(f"{self.condition} and ") or not self.condition

    def followed_by(self, other: Kept) -> Kept:
        """Return both texts as one."""
        if self.text is None or other.text is None:
            return Kept(None)
        # None of these says when both hold.
        alike = other.holds_under(self.condition) or self.holds_under(other.condition)
        text = f"{self.text}{other.text}"
        longer = max(self.condition, other.condition, key=len)
        return Kept(text if alike and len(text) <= _LONGEST else None, longer)


class Files:
    """The files of a script whose texts it has, or changes.

    Parameters
    ----------
    documents : dict of str to str
        Its here-documents, by their names.
    here : str, optional
        A text that may stand for a file of any name.
    """

    def __init__(self, documents: Mapping[str, str], here: str | None) -> None:
        self._documents = documents
        self._here = here
        # Whether a command reads it, not a loop.
        self._is_read = not documents
        self._kept: dict[str, Kept] = {}

    def held(
        self,
        words: Sequence[str],
        read: Sequence[str],
        piped: Kept | None,
        known: Mapping[str, str],
        condition: str,
    ) -> Kept:
        """Return the text that a command reads or prints."""
        self._is_read |= any(name.removeprefix(READ) in self._documents for name in read)
        given = next((self._read(name, known, condition) for name in read[-1:]), piped)
        name, *rest = words or [""]
        if not _CHANGES.isdisjoint(map(program_of, words[:2])):
            return Kept(None)
        if name in ("echo", "printf"):
            return Kept(printed(words, known), condition)
        if name in SILENT or is_set_by(name):
            return Kept("", condition)
        operands = [with_variables(word, known) for word in rest if word[:1] != "-" or word == "-"]
        if name == "cat" and operands:
            texts = [(given if o == "-" else self._of(o)) or Kept(None) for o in operands]
            plain = not any(word.startswith("-") and word != "-" for word in rest)
            found = Kept("", condition)
            for text in texts:
                found = found.followed_by(text)
            return found if plain else Kept(None)
        return given or Kept(None)

    def _of(self, name: str) -> Kept | None:
        return Kept("") if name == "/dev/null" else self._kept.get(name.removeprefix("./"))

    def _read(self, name: str, known: Mapping[str, str], condition: str) -> Kept | None:
        text = given_to([name], self._documents, known)
        if text is None:
            return self._of(with_variables(name.removeprefix(READ), known))
        return Kept(text, condition)

    def keep(self, held: Kept, names: Sequence[str]) -> None:
        """Keep what a command writes under the names of its files."""
        for given in names:
            name = given.removeprefix(APPENDED).removeprefix("./")
            # It is made if it is not there.
            missing = re.compile(rf"(?:^| and )not \[\[? -[efs] {re.escape(name)} \]\]?$")
            held = held._replace(condition=missing.sub("", held.condition))
            before = self._kept.get(name, Kept(None)) if name != given.removeprefix("./") else None
            if name != "/dev/null":
                self._kept[name] = held if before is None else before.followed_by(held)

    def follow(self, words: Sequence[str], known: Mapping[str, str], condition: str) -> None:
        """Follow a command that removes files, or makes empty ones."""
        name, *rest = words[words[0] in ("sudo", "doas") and len(words) > 1 :]
        operands = [filled(w, known).removeprefix("./") for w in rest if not w.startswith("-")]
        for operand in operands if name in ("rm", "touch") else ():
            there = [kept for kept in self._kept if fnmatchcase(kept, operand)]
            for file in (*there, operand) if name == "rm" else (operand,):
                if name == "rm" or file not in self._kept:
                    self._kept[file] = Kept("", condition)

    def jobs(self, words: Sequence[str], condition: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the texts that a call may read, by the names of their files; "" stands for any.

        The second are sentences that say why others are not known.
        """
        found = dict[str, str]()
        faults = dict[str, str]()
        named = {word.rpartition("/")[2] for word in words}
        for name, kept in self._kept.items():
            if name.rpartition("/")[2] not in named:
                continue
            if (fault := fault_of(kept, shown(name), condition)) or kept.text is None:
                faults[name] = fault
            else:
                found[name] = kept.text
        elsewhere = any(kept.text == self._here for kept in self._kept.values())
        if self._here is not None and self._is_read and not elsewhere:
            found[""] = self._here
        return found, faults

    def has_calls(self, words: Sequence[str], held: Kept) -> bool:
        """Return whether a shell reads calls of fio from what stands in the script."""
        shells = [n for n, word in enumerate(words) if program_of(word) in (*_READERS, *SHELLS)]
        named = [word for place in (-1, *shells) for word in words[place + 1 : place + 2]]
        given = [held.text] if shells else []
        given += [t.text for name, t in self._kept.items() if any(n.endswith(name) for n in named)]
        return any(text is not None and FIO.search(text) is not None for text in given)


def given_to(
    files: Sequence[str], documents: Mapping[str, str], known: Mapping[str, str]
) -> str | None:
    """Return the text that a command is given, in its line or as a here-document."""
    for name in files:
        if name.startswith(GIVEN):
            return f"{filled(name.removeprefix(GIVEN), known)}\n"
        plain = name.removeprefix(READ)
        if plain in documents:
            text = documents[plain]
            return text if plain.endswith(AS_IT_IS) else filled(text, known)
    return None


def fault_of(kept: Kept, name: str, condition: str) -> str:
    """Return why a text is not known where a condition holds; "" if it is."""
    reads = "give the text that fio reads"
    if kept.condition and (kept.text is None or not kept.holds_under(condition)):
        return f"the fio job has a condition ({kept.condition[:60]}) for {name}: {reads}"
    return f"the fio job: a command changes {name}: {reads}" if kept.text is None else ""


def standard_input(read: Sequence[str], known: Mapping[str, str]) -> str:
    """Return the name of the file that is a command's standard input, or "-"."""
    named = with_variables(read[0].removeprefix(READ), known) if read else "-"
    return "-" if named.startswith("/dev/") else named


def teed(words: Sequence[str]) -> list[str]:
    """Return the files to which a command copies what it reads."""
    behind = words[words.index("tee") + 1 :] if "tee" in words else ()
    appended = APPENDED if {"-a", "--append"} & set(behind) else ""
    return [f"{appended}{word}" for word in behind if not word.startswith("-")]


def printed(words: Sequence[str], known: Mapping[str, str]) -> str | None:
    """Return what echo or printf prints; None for what iolab does not know."""
    name, *rest = words
    if name == "printf":
        values = [value for word in rest[1:] for value in parts_of(word, known)]
        return _formatted(filled(rest[0], known), values) if rest else None
    options = list(itertools.takewhile(_OF_ECHO.fullmatch, rest))
    text = _special(filled(" ".join(rest[len(options) :]), known))
    return text if any("n" in option for option in options) else f"{text}\n"


def _special(text: str) -> str:
    return _SPECIAL.sub(lambda match: _ESCAPED[match[0]], text)


def _formatted(form: str, values: list[str]) -> str | None:
    """Return what printf prints: it takes its format again as long as there are values."""
    kinds = _FILLED_IN.findall(form)
    if "%" in _FILLED_IN.sub("", form):
        return None
    taken = sum(kind != "%" for kind in kinds)
    rest = iter(values)

    def value(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        given = next(rest, "")
        if match[1][-1] in "sb":
            return f"%{match[1][:-1]}s" % (_special(given) if match[1][-1] == "b" else given)
        return f"%{match[1][:-1]}d" % (whole(given or "0") or 0)

    ends = itertools.cycle([kind[-1] for kind in kinds if kind != "%"] or ["s"])
    pairs = zip(values, ends, strict=False)
    if any(end not in "sb" and whole(number) is None for number, end in pairs):
        return None
    rounds = max(-(-len(values) // taken), 1) if taken else 1
    if rounds > _MOST_ROUNDS:
        return None
    return "".join(_FILLED_IN.sub(value, _special(form)) for _ in range(rounds))
