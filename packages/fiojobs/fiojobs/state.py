# SPDX-License-Identifier: MIT
"""What a shell remembers while it runs a script: variables, arguments, and which are unsure."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from fiojobs.arithmetic import expression_of, number, whole
from fiojobs.conditions import is_empty, is_set
from fiojobs.variables import argument_variables, assigned
from fiojobs.words import shown
from iolab_base.errors import UserError

# A command that reads a line, and how it splits that.
READS_LINE: Final = re.compile(r"(?:IFS=(?:\S*|[ ]) )?read ")
_SPACES: Final = " \t\n"
_TAB: Final = "$\\t"
# NAME++, NAME+=4 and NAME=NAME*2 of ((...)) and let.
_CHANGE: Final = re.compile(
    r"([A-Za-z_]\w*)[ ]*(?:(\+\+|--)|([-+*/%]|<<|>>|)=(?!=)(.*))", re.DOTALL
)
_CHANGED_FIRST: Final = re.compile(r"(\+\+|--)[ ]*([A-Za-z_]\w*)")
# What changes within a longer expression.
_CHANGES: Final = re.compile(
    r"([A-Za-z_]\w*)[ ]*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>|\*\*)?=(?!=))|(?:\+\+|--)[ ]*([A-Za-z_]\w*)"
)
_CALCULATED: Final = re.compile(r"\$\(\((.*?)\)\)")
_DEFAULT: Final = re.compile(r"\$\{([A-Za-z_]\w*):?=([^{}]*)\}", re.ASCII)
_NAME: Final = re.compile(r"([A-Za-z_]\w*)(?:\[.*\])?")
# What a script may keep in variables, and in elements of arrays.
_MOST_VARIABLES: Final = 1000
_LONGEST: Final = 1 << 17
_OWN: Final = ("local", "declare", "typeset")
_OF_ARGUMENTS: Final = re.compile("[@*#]|[0-9]+")
_ARGUMENT: Final = re.compile(r"\$(?:\{([0-9]+)\}|([0-9]))", re.ASCII)


class Test(NamedTuple):
    """What a branch depends on, and whether it is run where that fails."""

    text: str
    fails: bool


def _split(line: str, ends: str, most: int) -> list[str]:
    """Return the words of a line as ``read`` splits it, at most some times; -1 is no limit."""
    if not ends:
        return [line]
    if ends.isspace():
        line = line.strip(ends)
        return re.split(f"[{ends}]+", line, maxsplit=max(most, 0)) if line and most else [line]
    parts = re.split(f"[{re.escape(ends)}]", line, maxsplit=max(most, 0)) if most else [line]
    if most < 0:
        return parts if parts[-1] else parts[:-1]
    # What ends the last word is none of it, if nothing else does.
    last = parts[-1][:-1]
    return [*parts[:-1], parts[-1] if set(last) & set(ends) else parts[-1].rstrip(ends)]


class ShellState:
    """The variables of a script.

    Parameters
    ----------
    environment : dict of str to str
        Values of the script's own variables.
    unsure : set of str
        Names of those that a condition makes unsure; they have no value.
    known : mapping of str to str
        Values of all variables, also those of the environment.
    """

    def __init__(self, arguments: Sequence[str] | None) -> None:
        given = {} if arguments is None else argument_variables(arguments)
        self.environment: dict[str, str] = given
        self.unsure: set[str] = set()
        self.known = ChainMap(self.environment, dict(os.environ))
        # Of each function that runs: its own variables, as they were before.
        self._outside: list[dict[str, str | None]] = []
        # Declared as numbers, or otherwise so that they change what they are given.
        self._declared: set[str] = set()
        # How many files of mktemp(1) there are.
        self._made = 0

    @property
    def depth(self) -> int:
        """How many functions run."""
        return len(self._outside)

    def give(self, name: str, value: str | None) -> None:
        """Give a variable its value; None removes it."""
        if value is None:
            for key in self._keys(name):
                self.environment.pop(key, None)
        self.unsure.discard(name)
        if value is not None:
            if len(value) > _LONGEST or len(self.environment) > _MOST_VARIABLES:
                raise UserError(f"the fio job keeps too much in variables: {shown(name)}")
            self.environment[name] = value

    def forget(self, name: str) -> None:
        """Make a variable unsure: its value is its use, which nothing fills in."""
        self.give(name, None)
        if _NAME.fullmatch(name):
            self.environment[name] = f"${{{name}}}"
        self.unsure.add(name)

    def sets(self, words: Sequence[str]) -> None:
        """Set the variables that a command sets."""
        found, behind = assigned(words, self.known)
        if self._outside and words[0] in _OWN and "-g" not in words:
            for name, value in (word.partition("=")[::2] for word in words[1:]):
                if _NAME.fullmatch(name.rstrip("+")) and not value:
                    found.setdefault(name, "")
            for key in (key for name in found for key in (name, *self._keys(name))):
                self._outside[-1].setdefault(key, self.environment.get(key))
        if words[0] in _OWN and any(re.fullmatch("-[a-zA-Z]*[ilnu][a-zA-Z]*", w) for w in words):
            self._declared |= found.keys()
            for value in found.values() if "-n" in words else ():
                self.forget(value)
        for name, given in {} if behind else found.items():
            # Each file is another one.
            self._made += "$(mktemp" in given
            value = given.replace("$(mktemp", f"$(mktemp #{self._made}")
            self.give(name, value)
            if name in self._declared and (whole(value) is None or f"{name}+=" in " ".join(words)):
                self.forget(name)
        for expression in _CALCULATED.findall(" ".join(words)):
            self._forget_changed(expression)
        for name, value in _DEFAULT.findall(" ".join(words)):
            if not self.known.get(name):
                self.give(name, value)

    def carries_out(self, values: Sequence[str]) -> bool:
        """Carry out a command that only changes variables; return whether it is one."""
        # Also behind IFS=,
        name, *rest = assigned(values, {})[1] or values
        if name == "shift":
            every = self.environment.get("@")
            if every is not None:
                first = whole(rest[0]) if rest else 1
                self.environment |= argument_variables(shlex.split(every)[max(first or 0, 0) :])
        elif name == "set" and rest and (rest[0] == "--" or rest[0][:1] not in ("-", "+", "")):
            self._set_arguments(rest[rest[0] == "--" :])
        elif name in ("read", "mapfile", "readarray", "unset") or values[:2] == ["printf", "-v"]:
            rest = rest[1:2] if name == "printf" else rest
            for variable in (match[1] for match in map(_NAME.fullmatch, rest) if match):
                self.forget(variable)
                if name == "unset" and variable in rest:
                    # One that is not set is empty.
                    self.give(variable, "")
        elif name == "let":
            for expression in rest:
                self.calculate(expression)
        elif name.startswith("(("):
            self.calculate(expression_of(values))
        else:
            return name == "getopts"
        return True

    def read(self, values: Sequence[str], text: str) -> None:
        """Let ``read`` give its variables the words of a text's first line."""
        own, words = assigned(values, {})
        ends = own.get("IFS", self.known.get("IFS", _SPACES))
        ends = "\t" if ends == _TAB else ends
        at = words.index("-d") if "-d" in words[:-1] else len(words)
        whole_text = list(words[at + 1 : at + 2]) == [""]
        words = [*words[:at], *words[at + 2 :]] if whole_text else words
        options = {word for word in words[1:] if word.startswith("-")}
        names = [word for word in words[1:] if not word.startswith("-")]
        if not options <= {"-r", "-a", "-ra"} or not names or "$" in text + ends:
            self.carries_out(words)
            return
        line = text if whole_text else text.partition("\n")[0]
        is_array = not options <= {"-r"}
        most = -1 if is_array else len(names) - 1
        parts = _split(line, ends, most)
        if is_array:
            for name, value in assigned([f"{names[0]}=({shlex.join(parts)})"], {})[0].items():
                self.give(name, value)
            return
        for name, value in itertools.zip_longest(names, parts, fillvalue=""):
            self.give(name, value)

    def _keep_arguments(self) -> None:
        """Let values that hold unknown arguments of the script mean these, and no later ones."""
        for name, value in self.environment.items():
            if "$" in value:
                self.environment[name] = _ARGUMENT.sub(r"${\1\2_}", value)

    def _set_arguments(self, given: Sequence[str]) -> None:
        self._keep_arguments()
        for place in filter(_OF_ARGUMENTS.fullmatch, list(self.environment)):
            del self.environment[place]
        if not re.search(r"[$`*?]", " ".join(given)):
            self.environment |= argument_variables(given)

    def next_option(self, values: Sequence[str]) -> bool | None:
        """Return whether ``getopts`` finds one more option; None if that is not known."""
        every = self.known.get("@")
        if values[0] != "getopts" or every is None or not values[2:]:
            return None
        place = max(whole(self.known.get("OPTIND", "1")) or 1, 1)
        word, after = [*shlex.split(every)[place - 1 :], "", ""][:2]
        if not re.match("-[^-]", word):
            return False
        known = word[1] in values[1]
        takes = known and f"{word[1]}:" in values[1]
        self.give(values[2], word[1] if known else "?")
        self.give("OPTARG", (word[2:] or after) if takes else "")
        self.give("OPTIND", str(place + (2 if takes and not word[2:] else 1)))
        return True

    def calculate(self, expression: str) -> None:
        """Change the variables that an expression of a shell changes."""
        for part in map(str.strip, expression.split(",")):
            if match := _CHANGED_FIRST.fullmatch(part):
                name, sign, other = match[2], match[1][0], "1"
            elif match := _CHANGE.fullmatch(part):
                name, sign, other = (
                    match[1],
                    match[2][:1] if match[2] else match[3],
                    match[4] or "1",
                )
            else:
                self._forget_changed(part)
                continue
            value = number(f"{name}{sign}({other})" if sign else other, self.known)
            if value is None:
                self.forget(name)
            else:
                self.give(name, str(value))

    @contextmanager
    def function(self, arguments: Sequence[str] | None) -> Iterator[None]:
        """Give a function its arguments, and take its own variables away at its end.

        Without arguments those are not known.
        """
        given = {} if arguments is None else argument_variables(arguments)
        before = {k: v for k, v in self.environment.items() if _OF_ARGUMENTS.fullmatch(k)}
        self._keep_arguments()
        for name in before:
            del self.environment[name]
        self.environment |= given
        self._outside.append({**dict.fromkeys(given), **before})
        try:
            yield
        finally:
            own = self._outside.pop()
            # An array before its elements: it knows those that came later.
            for name in sorted(own, key=len):
                self.give(name, None)
            for name, value in own.items():
                self.give(name, value)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Take all changes back at the end, as a shell within the shell does."""
        before, unsure = dict(self.environment), set(self.unsure)
        try:
            yield
        finally:
            self.environment.clear()
            self.environment |= before
            self.unsure = unsure

    def copy(self) -> tuple[dict[str, str], set[str]]:
        """Return all values, and the unsure ones."""
        return dict(self.environment), set(self.unsure)

    def settle(
        self, endings: Sequence[tuple[dict[str, str], set[str]]], tests: Sequence[Test]
    ) -> None:
        """Keep what holds behind branches, whichever of their endings a shell comes to."""
        before = dict(self.environment)
        self.unsure = self.unsure.union(*(unsure for _, unsure in endings))
        for name in {name for values, _ in endings for name in values}:
            found = {values.get(name) for values, _ in endings}
            if len(found) == 1:
                self.environment[name] = found.pop() or ""
                continue
            # A value that a branch gives to an empty variable is its default.
            value, test = endings[-1][0].get(name), tests[-1]
            default = (is_set if test.fails else is_empty)(test.text, name)
            if not default or before.get(name) or len(tests) > 1:
                self.forget(name)
            elif not os.environ.get(name) and value is not None:
                self.environment[name] = value

    def _keys(self, name: str) -> list[str]:
        """Return a variable's name, and the elements that it has as an array."""
        places = self.environment.get(f"!{name}[@]")
        elements = [] if places is None else ["@", "*", *shlex.split(places)]
        own = [f"{name}[{place}]" for place in elements]
        return [name, *own, f"!{name}[@]", f"#{name}[@]"] if own else [name]

    def _forget_changed(self, expression: str) -> None:
        """Make what an expression changes unsure."""
        for name in (match[1] or match[2] for match in _CHANGES.finditer(expression)):
            self.forget(name)
