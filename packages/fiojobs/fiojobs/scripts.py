# SPDX-License-Identifier: MIT
"""Programs, arrays and loops of a script, written out as the commands that they are."""

from __future__ import annotations

import bisect
import re
import shlex
from collections.abc import Mapping
from typing import Final

from fiojobs.plain import COMMENT, FIO
from iolab_base.errors import UserError

# Of an argument of a Linux program.
LONGEST_LINE: Final = 1 << 17
# A loop over values that stand in the text, without another one inside.
_LOOP: Final = re.compile(
    r"\bfor[ \t]+([A-Za-z_]\w*)[ \t]+in[ \t]+([^\n;`*?]+?)[ \t]*[;\n]\s*do\b"
    r"((?:(?!\bfor[ \t]+\w+[ \t]+in\b|[;\n&][ \t]*done\b).)*[;\n&])[ \t]*done\b",
    re.DOTALL,
)
# NAME=VALUE, or NAME=(VALUES) of bash, with a value in which a shell changes nothing.
_LITERAL: Final = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(?:[\"'(]([^\"'()$`\n]*)[\"')]|([^\s\"'()$`;&|]*))"
    r"(?=[ \t]*(?:[;#\n]|\Z))",
    re.MULTILINE,
)
# NAME=(WORDS) of bash, NAME+=(WORDS), and all of these words.
_ARRAY: Final = re.compile(
    r"^[ \t]*(?:(?:declare|local|readonly|typeset)[ \t]+(?:-\w+[ \t]+)*)?([A-Za-z_]\w*)(\+?)="
    r"\(((?:[^()\"'`#]|#.*|\"[^\"]*\"|'[^']*')*)\)"
    r"|\"?\$\{([A-Za-z_]\w*)\[[@*]\]\}\"?",
    re.MULTILINE,
)
# What a script calls a program that it has in a variable.
_PROGRAM: Final = re.compile(
    r"(?<![\w=])(\"?)\$(?:(\w+)|\{(\w+)(?::?-([^{}\s]*))?\})\1"
    r"(?=[ \t]+(?:-|[^\s-]\S*\.(?:fio|job|ini|cfg|conf|txt)\b|\"?\$))",
    re.ASCII,
)
# A variable that holds a call of fio, and one that a shell runs by itself.
_CALL: Final = re.compile(
    r"^[ \t]*(?:(?:export|local)[ \t]+)?([A-Za-z_]\w*)="
    r"(?:\"((?:sudo[ \t]+)?(?:[^\s\"]*/)?fio[ \t](?:[^\"\\]|\\.)*)\""
    r"|'((?:sudo[ \t]+)?(?:[^\s']*/)?fio[ \t][^'$]*)')(?=[ \t]*(?:[;#\n]|\Z))",
    re.MULTILINE | re.DOTALL,
)
_ALONE: Final = re.compile(
    r"(?:(?<=\$\()|(?<=[;&|`]) ?|^[ \t]*)(?:(?:sudo|time|eval)[ \t]+)*"
    r"(\"?)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})\1(?=[ \t]*(?:$|[|;&)`]|[12]?>))",
    re.MULTILINE,
)
_SET: Final = re.compile(r"(?<![\w-])([A-Za-z_]\w*)\+?=")
_BRANCH: Final = re.compile(r"\b(?:do|done|fi|else|elif|esac)\b")
_ELEMENTS: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?\}|\$([A-Za-z_]\w*)")
# Values that a shell counts or lists: $(seq 1 2 9), {1..9}, {read,write}.
_SERIES: Final = re.compile(
    r"\$\([ \t]*seq((?:[ \t]+-?[0-9]{1,6}){1,3})[ \t]*\)"
    r"|(?<!\S)\{(-?[0-9]{1,6})\.\.(-?[0-9]{1,6})\}(?!\S)"
    r"|(?<!\S)\{([^{}\s$.,]+(?:,[^{}\s$.,]+)+)\}(?!\S)"
)
_MOST_VALUES: Final = 64


def with_program(text: str) -> str:
    """Return a text that calls fio by its name where it has fio, or a call of it, in a variable."""
    programs, calls = _assigned(_LITERAL, text), _assigned(_CALL, text)
    # A branch may have set another call, a loop other values.
    code = _code(text)
    changes: dict[str, list[int]] = {"": [match.start() for match in _BRANCH.finditer(code)]}
    for match in _SET.finditer(code):
        changes.setdefault(match[1], []).append(match.start())

    def changed(name: str, start: int, end: int) -> bool:
        places = changes.get(name, [])
        return bisect.bisect(places, start) < bisect.bisect(places, end)

    def program(variable: re.Match[str]) -> str:
        held = _held(programs, variable)
        value = held[1] if held else variable[4] or ""
        return value if FIO.match(value) else variable[0]

    def call(variable: re.Match[str]) -> str:
        held = _held(calls, variable)
        if held is None:
            return variable[0]
        name = variable[2] or variable[3]
        names = ["", name, *(one or other for one, other in _ELEMENTS.findall(held[1]))]
        if any(changed(other, held[0], variable.start()) for other in names):
            raise UserError(f"the fio job: ${name[:40]} may be another call there: give that call")
        return held[1].replace('\\"', '"')

    return _PROGRAM.sub(program, _ALONE.sub(call, text))


def _assigned(pattern: re.Pattern[str], text: str) -> dict[str, list[tuple[int, str]]]:
    """Return for each variable where a text has set it, and its values, in order."""
    found: dict[str, list[tuple[int, str]]] = {}
    for match in pattern.finditer(text):
        found.setdefault(match[1], []).append((match.end(), match[2] or match[3]))
    return found


def _held(
    assigned: Mapping[str, list[tuple[int, str]]], use: re.Match[str]
) -> tuple[int, str] | None:
    """Return where a variable was set last before its use, and its value."""
    values = assigned.get(use[2] or use[3], [])
    place = bisect.bisect(values, use.start(), key=lambda one: one[0])
    return values[place - 1] if place else None


def without_arrays(text: str) -> str:
    """Return a text with the words of each array in place of its name."""
    known: dict[str, str] = {}

    def words(match: re.Match[str]) -> str:
        name, more, listed, used = match.groups()
        if used:
            return known.get(used, match[0])
        before = known.get(name, "") if more else ""
        plain = " ".join(re.sub(r"(?<!\S)#.*", "", listed).split())
        known[name] = f"{before} {plain}".strip()
        # Whether a condition holds for it matters.
        return f"{name}{more}=(words)"

    return _ARRAY.sub(words, text)


def unrolled(text: str) -> str:
    """Return a text with the body of each loop for each of its values, where the text has these."""
    text = re.sub("`([ \t]*seq[ \t][^`\n]*)`", r"$(\1)", text)
    begin = loops = 0
    while loop := _LOOP.search(text, begin):
        name, listed, body = loop.groups()
        for variable in _ELEMENTS.finditer(listed):
            value = _sure_value(text[: loop.start()], variable[1] or variable[2])
            if value is not None:
                listed = listed.replace(variable[0], value)
        listed = _SERIES.sub(_values, listed)
        if "$" in listed or "{" in listed or not FIO.search(body):
            begin = loop.end()
            continue
        values = re.findall(r"[^\s'\"]+", listed)
        every = "".join(f"\n{name}={shlex.quote(value)}\n{body}\n" for value in values)
        text = text[: loop.start()] + every + text[loop.end() :]
        loops += 1
        # Each has a call at least.
        if len(text) > LONGEST_LINE or loops > _MOST_VALUES:
            raise UserError(f"the fio job: its loop over {name} makes too many calls of fio")
        # The loop around it comes next.
        begin = 0
    return text


def _values(series: re.Match[str]) -> str:
    """Return the values of a series; the series itself if they are many or padded with zeros."""
    if series[4]:
        return series[4].replace(",", " ")
    numbers = series[1].split() if series[1] else [series[2], series[3]]
    if any(re.match("-?0[0-9]", number) for number in numbers):
        return series[0]
    first, *steps, last = map(int, ["1", *numbers] if len(numbers) == 1 else numbers)
    step = steps[0] if steps else -1 if not series[1] and last < first else 1
    found = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    return " ".join(map(str, found)) if 0 < len(found) <= _MOST_VALUES else series[0]


def _code(text: str) -> str:
    """Return a text with blanks in the place of its comments."""
    return COMMENT.sub(lambda line: " " * len(line[0]), text)


def _sure_value(text: str, name: str) -> str | None:
    """Return the value that a variable has at a text's end; None if it may have others."""
    values = _assigned(_LITERAL, text).get(name)
    if not values:
        return None
    code = _code(text)
    places = sum(match[1] == name for match in _SET.finditer(code))
    is_one = len({value for _, value in values}) == 1 or not _BRANCH.search(code, values[0][0])
    return values[-1][1] if places == len(values) and is_one else None
