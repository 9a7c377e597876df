# SPDX-License-Identifier: MIT
"""Variables of a shell: what sets them, and texts with their values.

The elements of an array are variables of their own, as are all of them: ``A[0]``, ``A[@]``.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from fiojobs.arithmetic import whole, with_calculations
from fiojobs.conditions import matches
from fiojobs.words import Bare, shown, simple_commands
from iolab_base.errors import UserError

DECLARES: Final = ("export", "local", "readonly", "declare", "typeset")
# ${NAME} of fio and of a shell, $NAME of a shell, and an argument of a script.
VARIABLE: Final = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_]\w*|[0-9@*#]))", re.ASCII)
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(?:\[([^\[\]]*)\])?(\+?)=(.*)", re.DOTALL | re.ASCII)
# ${NAME:-VALUE}
_DEFAULT: Final = re.compile(
    r"\$\{([A-Za-z_]\w*(?:\[[^\[\]{}]*\])?|[0-9])(:?)([-=+?])([^{}]*)\}", re.ASCII
)
# What a shell splits values at, if a script says so: $'\n'.
_LINE_END: Final = "$\\n"
# ${NAME#PATTERN}, ${NAME%%PATTERN}, ${NAME,,}, ${NAME/PATTERN/VALUE}, ${NAME:2:1}
_CHANGED: Final = re.compile(
    r"([A-Za-z_]\w*(?:\[[^\[\]{}@*]*\])?|[0-9])(##?|%%?|,,?|\^\^?|//?|:)(.*)", re.ASCII | re.DOTALL
)
_PART: Final = re.compile(r" *(\d{1,6}| -\d{1,6})(?::(-?\d{1,6}))?", re.ASCII)
# NAME=(WORDS) of bash, and an element whose place is in a variable.
_ARRAY: Final = re.compile(
    r"(?<![\w$])([A-Za-z_]\w*\+?=)\(((?:[^()\"'`#]|#.*|\"[^\"]*\"|'[^']*'|\$\([^()]*\))*)\)",
)
_PLACE: Final = re.compile(r"(?<=\w\[)\$?\{?([A-Za-z_]\w*)\}?(?=\](?:\}|:?[-=]))", re.ASCII)
# ((EXPRESSION)) as a command.
_EXPRESSION: Final = re.compile(
    r"(^[ \t]*|[;&|][ \t]*|(?:[){!]|\b(?:for|if|elif|while|until|then|do|else))[ \t]+)"
    r"(\(\(.*?\)\))"
    r"(?=[ \t]*(?:[;&|\n}]|\Z|do\b))",
    re.MULTILINE,
)
# Values that a shell counts or lists: $(seq 1 2 9), {1..9}, {read,write}.
_SERIES: Final = re.compile(
    r"\$\([ \t]*seq([ \t]+-w)?((?:[ \t]+[\"']?-?[0-9]{1,6}[\"']?){1,3})[ \t]*\)"
    r"|(?<!\$)\{(-?[0-9]{1,6})\.\.(-?[0-9]{1,6})(?:\.\.(-?[0-9]{1,6}))?\}"
    r"|(?<!\$)\{([^{}\s$.,]+(?:,[^{}\s$.,]+)+)\}"
)
# What expr(1) calculates.
_SUM: Final = re.compile(r"\$\([ \t]*expr((?:[ \t]+(?:\$?\w+|\$\{\w+\}|[-+/%]|\\\*))+)[ \t]*\)")
# As $((...)), once.
_OLD_SUM: Final = re.compile(r"\$\[([\w $()*/%+-]+)\]")
# [NAME]=VALUE in an array.
_NAMED: Final = re.compile(r"\[([^\[\]]+)\]=(.*)", re.DOTALL)
_COUNTED: Final = re.compile(r"\$\([ \t]*seq[^()]*\)")
_MOST_VALUES: Final = 1000
_LONGEST_CUT: Final = 4096
# Defaults within defaults.
_MOST_DEFAULTS: Final = 4


def names_in(text: str) -> list[str]:
    """Return the names of the variables that a text uses, as they stand there."""
    return [match[1] or match[2] or "" for match in VARIABLE.finditer(text)]


def with_variables(text: str, known: Mapping[str, str], kept: Collection[str] = ()) -> str:
    """Return a text with the values of variables; those in `kept` and unknown ones stay."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or ""
        changed = _CHANGED.fullmatch(name)
        if changed and changed[1] in known:
            found = _changed(known[changed[1]], changed[2], changed[3])
            return match[0] if found is None else found
        # Those are joined by what IFS holds.
        joined = name.endswith(("*", "[*]"))
        stays = name in kept or (joined and not known.get("IFS", " ").isspace())
        return match[0] if stays else known.get(name, match[0])

    return VARIABLE.sub(value, text)


def with_defaults(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the value of each ${NAME:-VALUE}."""

    def value(match: re.Match[str]) -> str:
        found = known.get(match[1])
        # An argument that is not given is empty here.
        is_set = found or (found == "" and not match[2] and not match[1].isdigit())
        if match[3] == "+" and found != f"${{{match[1]}}}":
            return match[4] if is_set else ""
        missing = f"${{{match[1]}}}" if match[3] == "?" else match[4]
        return (found or "") if is_set else missing

    for _ in range(_MOST_DEFAULTS):
        text, count = _DEFAULT.subn(value, text)
        if not count:
            break
    return text


def filled(text: str, known: Mapping[str, str]) -> str:
    """Return a text with all values that a shell knows."""
    text = with_defaults(_with_places(text, known), known)
    return with_calculations(with_variables(text, known), known)


def _with_places(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the number of each element whose place is in a variable."""
    return _PLACE.sub(lambda match: known.get(match[1], match[0]), text)


def words_of(word: str, known: Mapping[str, str]) -> list[str]:
    """Return the words that a shell makes of all elements of an array, or of all arguments."""
    kind = type(word)
    word = kind(_with_places(word, known))
    match = VARIABLE.fullmatch(word)
    name, _, first = ((match[1] or match[2] or "") if match else "").partition(":")
    if name in ("*", "@") or name.endswith(("[@]", "[*]")):
        every = known.get(name.replace("*", "@"))
        start = whole(first or "0")
        if every is not None and start is not None and start >= 0:
            # The first argument is $1.
            return shlex.split(every)[max(start - (name in ("*", "@")), 0) :]
    return [word]


def parts_of(word: str, known: Mapping[str, str]) -> list[str]:
    """Return the words that a shell makes of one with its values."""
    text = filled(word, known)
    if not isinstance(word, Bare) or "$(" in text or _ASSIGNED.fullmatch(word):
        return [text]
    ends = known.get("IFS", "")
    if ends == _LINE_END or not ends or "$" in ends or ends.isspace():
        return text.split() if ends != _LINE_END else text.split("\n")
    return [part for part in re.split(f"[{re.escape(ends)}]", text) if part]


def assigned(
    words: Sequence[str], known: Mapping[str, str]
) -> tuple[dict[str, str], Sequence[str]]:
    """Return the variables that words set before a program, and the words behind these."""
    found: dict[str, str] = {}
    declares = words[:1] and words[0] in DECLARES
    for behind, word in enumerate(words):
        match = _ASSIGNED.fullmatch(word)
        if match is None and declares:
            continue
        if match is None:
            return found, words[behind:]
        now = {**known, **found}
        name, place, more, value = match.groups()
        if value.startswith("(") and value.endswith(")"):
            found |= _array(name, value[1:-1], now, more=bool(more))
        elif place is not None:
            places = {now.get(place, filled(place, now)): filled(value, now)}
            found |= _elements(name, _items(name, now) | places)
        else:
            found[name] = (now.get(name, "") if more else "") + filled(value, now)
    return found, []


def is_set_by(word: str) -> bool:
    """Return whether a word before a program sets a variable."""
    return _ASSIGNED.fullmatch(word) is not None


def argument_variables(arguments: Sequence[str]) -> dict[str, str]:
    """Return the variables of a function's arguments: ``1``, ``@``, ``#``."""
    numbered = {str(place): "" for place in range(1, 10)}
    numbered |= {str(place): value for place, value in enumerate(arguments, 1)}
    every = shlex.join(arguments)
    return {**numbered, "@": every, "*": every, "#": str(len(arguments))}


def with_whole_words(text: str) -> str:
    """Return a text with each array and each ``((...))`` as one word."""

    def array(match: re.Match[str]) -> str:
        plain = re.sub(r"(?<!\S)#.*", "", match[2])
        return match[1] + shlex.quote(f"({' '.join(plain.split())})")

    text = _OLD_SUM.sub(r"$((\1))", text)
    text = re.sub("`([ \t]*(?:seq|expr)[ \t][^`\n]*)`", r"$(\1)", text)
    text = _SUM.sub(lambda match: f"$(({match[1].replace(chr(92), '')}))", text)
    return _EXPRESSION.sub(lambda m: m[1] + shlex.quote(m[2]), _ARRAY.sub(array, text))


def values_of(words: Sequence[str], known: Mapping[str, str]) -> list[str] | None:
    """Return the values over which a loop runs; None if the text does not have them."""
    found: list[str] = []
    for word in words:
        for part in words_of(word, known):
            every = [value for one in parts_of(part, known) for value in _expanded(one)]
            if any(re.search(r"[$`*?{]", value) for value in every):
                return None
            found += every
    return found


def _expanded(word: str) -> list[str]:
    """Return the words that a shell makes of one with braces, such as ``{4,8}k``."""
    series = _SERIES.search(word)
    values = _series(series) if series else None
    if series is None or values is None:
        return [word]
    pairs = itertools.product(values, _expanded(word[series.end() :]))
    few = itertools.islice(pairs, _MOST_VALUES + 1)
    return [f"{word[: series.start()]}{value}{rest}" for value, rest in few]


def _array(name: str, inside: str, known: Mapping[str, str], *, more: bool) -> dict[str, str]:
    """Return the variables of an array."""
    items = _items(name, known) if more else {}
    inside = _COUNTED.sub(lambda match: " ".join(_expanded(filled(match[0], known))), inside)
    first = max([n + 1 for n in map(whole, items) if n is not None], default=0)
    for word in (word for words, _, _ in simple_commands(inside) for word in words):
        if named := _NAMED.fullmatch(word):
            place = filled(named[1], known)
            items[place] = filled(named[2], known)
            number = whole(place)
            first = first if number is None else number + 1
            continue
        several = words_of(word, known)
        values = None if several != [word] else values_of([word], known)
        if values is None:
            values = [part for one in several for part in parts_of(one, known)]
        items |= {str(place): value for place, value in enumerate(values, first)}
        first += len(values)
    return _elements(name, items)


def _items(name: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the elements of an array by their places, or their names."""
    if known.get(name) == f"${{{name}}}":
        # It is unsure.
        return {"0": f"${{{name}[@]}}"}
    places = known.get(f"!{name}[@]", "")
    names = shlex.split(places) if "'" in places else places.split()
    return {n: known[f"{name}[{n}]"] for n in names}


def _elements(name: str, items: Mapping[str, str]) -> dict[str, str]:
    every = shlex.join(items.values())
    return {
        **{f"{name}[{place}]": item for place, item in items.items()},
        f"!{name}[@]": shlex.join(items),
        f"#{name}[@]": str(len(items)),
        f"{name}[@]": every,
        f"{name}[*]": every,
        name: items.get("0", ""),
    }


def _changed(value: str, sign: str, given: str) -> str | None:
    """Return a value as the braces of a shell change it; None for what iolab does not know."""
    if len(value) > _LONGEST_CUT:
        raise UserError(f"the fio job: {shown(value)} is too long to cut: give what remains")
    if sign[0] in "#%":
        return _without(value, sign, given)
    if "$" in value + given:
        return None
    if sign[0] in ",^":
        change = str.lower if sign[0] == "," else str.upper
        first = value if len(sign) > 1 else value[:1]
        return None if given else change(first) + value[len(first) :]
    if sign == ":":
        part = _PART.fullmatch(given)
        return None if part is None else _part(value, int(part[1]), part[2])
    pattern, _, by = given.partition("/")
    if re.search(r"[*?\[\\]|\A(?:[#%]|\Z)", pattern):
        return None
    return value.replace(pattern, by, -1 if len(sign) > 1 else 1)


def _part(value: str, first: int, length: str | None) -> str:
    """Return characters of a value; a negative length counts from its end."""
    begin = max(first + len(value), 0) if first < 0 else first
    size = len(value) if length is None else int(length)
    return value[begin : (begin if size >= 0 else len(value)) + size]


def _without(value: str, sign: str, pattern: str) -> str:
    """Return a value without what a pattern matches at its beginning or its end."""
    for length in range(len(value) + 1)[:: -1 if len(sign) > 1 else 1]:
        end = len(value) - length
        part = value[:length] if sign[0] == "#" else value[end:]
        if matches(part, pattern):
            return value[length:] if sign[0] == "#" else value[:end]
    return value


def _series(series: re.Match[str]) -> list[str] | None:
    """Return the values of a series; None if they are many."""
    alike, counted, begin, end, by, listed = series.groups()
    if listed:
        return listed.split(",")
    numbers = re.findall("[-0-9]+", counted) if counted else [begin, *([by] if by else []), end]
    # A brace, and no seq, keeps the zeros before its numbers.
    padded = any(re.match("-?0[0-9]", number) for number in (begin or "", end or ""))
    width = max(len(begin), len(end)) if padded else 0
    first, *steps, last = map(int, ["1", *numbers] if len(numbers) == 1 else numbers)
    step = steps[0] if steps else 1
    if not counted:
        step = -abs(step) if last < first else abs(step)
    found = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    many = not 0 < len(found) <= _MOST_VALUES
    width = max(len(str(found[0])), len(str(found[-1]))) if alike and not many else width
    return None if many else [f"{number:0{width}}" for number in found]
