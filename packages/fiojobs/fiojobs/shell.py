# SPDX-License-Identifier: MIT
"""Command lines and scripts as people paste them: the calls of fio in them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fiojobs.carriers import carried, opens_shell
from fiojobs.conditions import Conditions
from fiojobs.plain import COMMENT, FIO, has_section, here_documents, run_of, without_prompts
from fiojobs.scripts import LONGEST_LINE, unrolled, without_arrays
from fiojobs.starters import (
    DROPS,
    ELSEWHERE,
    HARMLESS,
    STARTERS,
    arguments,
    as_options,
    as_treatments,
    is_harmless,
    program_of,
)
from fiojobs.words import shown, simple_commands
from iolab_base.errors import UserError

# Shells within shells.
_DEEPEST: Final = 4
# Calls that a pasted text may make: each is a phase.
_MOST_CALLS: Final = 64
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_DECLARES: Final = ("export", "local", "readonly", "declare", "typeset")
# ${NAME} of fio and of a shell, $NAME of a shell, and an argument of a script.
VARIABLE: Final = re.compile(r"\$(?:\{([^}]*)\}|([A-Za-z_]\w*|[0-9@*]))", re.ASCII)
# ${NAME:-VALUE}
_DEFAULT: Final = re.compile(r"\$\{([A-Za-z_]\w*|[0-9]):?[-=]([^{}]*)\}", re.ASCII)
_KEYWORDS: Final = frozenset(("for", "while", "until", "do", "case", "select", "function", "("))
# What stands before a command that a shell runs under a condition, such as that fio is there.
_LEADING: Final = ("if", "then", "else", "!", "{")
_OF_ECHO: Final = re.compile("-[neE]+")
_ASKS: Final = re.compile("-v|--(?:version|help|enghelp|cmdhelp)(?:=.*)?")
# What ends the calls in the background.
_WAITS: Final = (["wait"], ["kill"], ["pkill"], ["killall"])
_OTHERWISE: Final = ("else", "elif")
# The end of a line that goes on: with a backslash, or before an option; either may have a comment.
_CONTINUED: Final = re.compile(
    r"(?<!\s)(?:[ \t]*+\\)?(?:\s++#(?![ \t]*\S*fio[ \t]|[^\n]*[ \t/]fio[ \t]+-)[^\n]*+){0,64}+"
    r"[ \t]*+\n\s*+(?=-)"
    r"|\\(?:[ \t]++#[^\n]*+|[ \t]*+)(?:\n[ \t]*+|\Z)"
)
# What a page says before a command, "Random reads:", and a line between two.
_TITLE: Final = re.compile(
    r"^(?:[^\n\"'`$|&;<>=\\#]*[^\s\"'`$|&;<>=\\#][:\uff1a]|[ \t]*---)[ \t]*$", re.MULTILINE
)
# A command whose lines are all comments, or stand behind a prompt that looks like one.
_COMMENTED: Final = re.compile(r"^[ \t]*#(?:[^\n]*\\[ \t]*\n[ \t]*#)+", re.MULTILINE)
# Options that only fio has.
_OF_FIO: Final = re.compile(
    "--?(?:rw|readwrite|bs|blocksize|ioengine|iodepth|numjobs|direct|group_reporting)(?:=|$)"
)
# In a line for Windows a backslash is no more than that.
_WINDOWS: Final = re.compile(r"\\\\[.?]\\|\bfio\.exe\b|\b[A-Z]\\:[/\\]")
_BACKSLASH: Final = re.compile(r"\\(?!\n)")
# Commands in a shell of their own.
_SUBSHELL: Final = re.compile(r"(?:^|(?<=[;&|\n]))([ \t]*)\(([^()]*)\)")


@dataclass
class FioCommand:
    """One call of fio.

    Parameters
    ----------
    words : list of str
        The words after ``fio``; all words of a text that gives fio's options alone.
    bare : bool
        Whether the text gives fio's options alone.
    options : dict of str to str
        Options of fio that mean what the programs before it do: ``taskset``, ``nice``, ``ionice``.
    environment : dict of str to str
        Variables that the text itself sets.
    here : dict of str to str
        Jobs that come with it, by the names of their files; "-" is its standard input, and ""
        stands for one file that is not here.
    beside : bool
        Whether it runs at the same time as the call before it, which is in the background.
    unsure : frozenset of str
        Variables that the text sets under a condition.
    """

    words: list[str]
    bare: bool = False
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    beside: bool = False
    unsure: frozenset[str] = frozenset()


def fio_commands(text: str) -> tuple[list[FioCommand], str | None]:
    """Return the calls of fio in a command line or several, and the job that comes with them.

    Raises UserError for what only a shell could know or do.
    """
    text, documents, here = _prepared(text)
    texts = {} if here is None else {"": here}
    piped = None
    found: list[FioCommand] = []
    environment: dict[str, str] = {}
    conditions = Conditions(environment)
    others: list[list[str]] = []
    last, otherwise, behind, running = "", False, False, False
    for given, files, end in _until_prose(text, found):
        words = list(itertools.dropwhile(_LEADING.__contains__, given))
        otherwise = given[0] in _OTHERWISE or (otherwise and given[0] != "fi")
        before = dict(environment)
        known = {**os.environ, **environment}
        filled = [with_variables(word, known) for word in given]
        conditions.follow(given, filled, last)
        if conditions.skips(last):
            last = end
            continue
        held = next((documents[name] for name in files if name in documents), piped)
        held = held or _printed_job(words, known)
        piped = held if end == "|" else None
        command = None
        # What reads the output of fio does not matter.
        if words and (last not in ("|", "|&") or others or not found):
            command = _fio_of(words, environment)
            conditions.note(words, before, last)
            others += [] if command else [[*words, *files]]
        conditions.end(filled)
        if command is not None:
            beside = "||" if last == "||" and found and not others else ""
            condition = "else" if otherwise and not conditions.is_known else beside
            _check_call(words, condition, running=running and not behind)
            _check_harmless(others)
            echoed = _printed(others[-1], known) if others else None
            jobs = {**texts, **({} if held is None else {"-": held})}
            command.here = {name: _with_defaults(job, known) for name, job in jobs.items()}
            if last == "|" and echoed:
                command.here[""] = echoed
            others = []
            command.beside, command.unsure = behind, frozenset(conditions.unsure)
            found.append(command)
        else:
            names = [with_variables(name, known) for name in [*files, *_teed(words)]]
            _keep(texts, held, names)
        if command is not None or last in ("|", "|&"):
            behind = bool(found) and end == "&"
            running |= behind
        behind = behind and words[:1] != ["wait"]
        running = running and words[:1] not in _WAITS
        last = end
    _add_bare(found, others, len(documents), here)
    return _calls(found), here


def _check_call(words: Sequence[str], condition: str, *, running: bool) -> None:
    """Raise UserError for a call that may not run, or not by itself."""
    if condition:
        raise UserError(f"the fio job has a condition ({condition}): give the call that runs")
    if running:
        raise UserError(
            "the fio job: a call in the background may run beside "
            f"{shown(' '.join(words))}: write wait between them, or & between all that run together"
        )


def _add_bare(
    found: list[FioCommand], others: Sequence[list[str]], documents: int, here: str | None
) -> None:
    """Add what gives options of fio alone, if there is no call; refuse what is neither."""
    if found and others and any(map(_OF_FIO.match, others[0])):
        raise UserError(
            f"the fio job: {shown(' '.join(others[0]))} has options of fio, and is no call of it: "
            "join a line that is torn, or leave it out"
        )
    if not found and documents > 1:
        raise UserError("the fio job comes in several here-documents, and no call of fio reads one")
    if not found and others and here is None:
        if len(others) > 1:
            raise UserError(f"the fio job: {shown(others[0][0])} is not fio, and no fio follows")
        found.append(FioCommand(others[0], bare=True))


def _teed(words: Sequence[str]) -> list[str]:
    """Return the files to which a command copies what it reads."""
    behind = words[words.index("tee") + 1 :] if "tee" in words else ()
    return [word for word in behind if not word.startswith("-")]


def _keep(texts: dict[str, str], held: str | None, names: Sequence[str]) -> None:
    """Keep a here-document under the names of the files that a command makes of it."""
    for name in names:
        if name in texts and texts[name] != held:
            raise UserError(
                f"the fio job: several commands write {shown(name)}: give the text that fio reads"
            )
        if held is not None and name != "/dev/null":
            texts[name] = held


def _calls(found: list[FioCommand]) -> list[FioCommand]:
    """Return calls without those that a script makes to ask for fio's version or engines."""
    if len(found) > 1:
        found = [one for one in found if not (one.words and _ASKS.fullmatch(one.words[0]))]
    if len(found) > _MOST_CALLS:
        raise UserError(f"the fio job makes {len(found)} calls of fio: give {_MOST_CALLS} or less")
    return found


def _prepared(text: str) -> tuple[str, dict[str, str], str | None]:
    """Return a text as a shell would read it, its here-documents, and the job shown before it."""
    if len(text) > LONGEST_LINE:
        raise UserError(f"the fio job: the command line is too long: {text[:60]!r}")
    text, documents = here_documents(text)
    here = next(iter(documents.values())) if len(documents) == 1 else None
    if not documents:
        text, here = run_of(text)
    # As shells of Windows have it.
    text = re.sub(r"[ \t][`^][ \t]*\n[ \t]*(?=-)", " ", text)
    if _WINDOWS.search(text):
        text = _BACKSLASH.sub(r"\\\\", text)
    # A mail or a page may have lost the backslashes of continued lines, or explain each line.
    text = _TITLE.sub("", text)
    text = _CONTINUED.sub(" ", _without_comments(text))
    code = COMMENT.sub("", text)
    text = without_prompts(code if FIO.search(code) else text)
    return unrolled(_SUBSHELL.sub(_in_this_shell, without_arrays(text))), documents, here


def _without_comments(text: str) -> str:
    """Return a text whose comments hold calls on one line, and others end with their lines.

    An option in a comment stays one, and a command behind a comment is none of it.
    """

    def call(comment: re.Match[str]) -> str:
        lines = re.sub(r"^[ \t]*#", "", comment[0], flags=re.MULTILINE)
        return re.sub(r"\n[ \t]*#", "\n", comment[0]) if FIO.search(lines) else comment[0]

    lines = _COMMENTED.sub(call, text).split("\n")
    for number, (line, after) in enumerate(itertools.pairwise(lines)):
        # The root's prompt looks like a comment.
        if re.match(r"[ \t]*#.*\\\s*\Z", line) and (
            not FIO.search(line.lstrip(" \t#")) or re.search(rf"{FIO.pattern}[ \t]", after)
        ):
            lines[number] = line.rstrip("\\ \t")
    return "\n".join(lines)


def _in_this_shell(subshell: re.Match[str]) -> str:
    """Return the commands of a subshell, unless several calls of fio would change their places."""
    call = FIO.search(subshell[2])
    alone = call and not re.search(r"[;&|\n].*\S", subshell[2][call.end() :], re.DOTALL)
    return f"{subshell[1]}{subshell[2]}" if alone else subshell[0]


def _check_harmless(commands: Sequence[list[str]]) -> None:
    """Raise UserError for a command before fio that may matter: iolab runs fio alone."""
    for words in commands:
        if words[0] == "elif":
            raise UserError("the fio job has a condition (elif): give the call that runs")
        sets = words[0] in _DECLARES or all(map(_ASSIGNED.fullmatch, words)) or "=(" in words[0]
        name = program_of(words[0])
        files = [word for word in words[1:] if word.startswith(("/proc/", "/sys/"))]
        # "apt install fio" installs it, "check_tool fio" asks for it.
        if sets or program_of(words[-1]) == "fio" or opens_shell(words):
            continue
        if name in ("sudo", "doas") and len(words) > 1:
            _check_harmless([words[1:]])
        elif not is_harmless(name, words[1:]) or any(file != DROPS for file in files):
            raise UserError(
                f"the fio job: iolab starts fio alone, and not {shown(' '.join(words))} before it"
            )


def _printed(words: Sequence[str], known: Mapping[str, str]) -> str | None:
    """Return what a command prints, if it echoes that; None for any other."""
    name, *rest = words or [""]
    if name == "printf":
        # What it would fill in is not in the text, unless that is all.
        rest = rest[1:] if re.fullmatch(r"%[sb](?:\\n)?", rest[0] if rest else "") else rest
        if any("%" in word for word in rest):
            return None
    elif name != "echo":
        return None
    printed = " ".join(itertools.dropwhile(_OF_ECHO.fullmatch, rest))
    return with_variables(printed, known).replace("\\n", "\n")


def _printed_job(words: Sequence[str], known: Mapping[str, str]) -> str | None:
    """Return the job that a command prints; None if that is no job."""
    printed = _printed(words, known)
    return printed if printed and has_section(printed) else None


def _until_prose(
    text: str, found: Sequence[FioCommand]
) -> Iterator[tuple[list[str], list[str], str]]:
    """Yield commands as `_commands`, up to what no shell reads behind the last fio."""
    try:
        yield from _commands(text)
    except UserError:
        if not found or len(FIO.findall(text)) > len(found):
            raise


def _commands(text: str, depth: int = 0) -> Iterator[tuple[list[str], list[str], str]]:
    """Yield commands as `simple_commands`, and those that one runs elsewhere in its place."""
    for words, files, end in simple_commands(text):
        script = carried(words) if depth < _DEEPEST else None
        if script is None or not FIO.search(script):
            yield words, files, end
            continue
        if end == "&" and (where := next((w for w in words if program_of(w) in ELSEWHERE), "")):
            raise UserError(
                f"the fio job: {shown(where)} in the background may be on a machine of its own: "
                "give the calls of one machine"
            )
        inner = list(_commands(script, depth + 1))
        yield from inner[:-1]
        for last, own, _ in inner[-1:]:
            yield last, [*own, *files], end


def _fio_of(words: list[str], environment: dict[str, str]) -> FioCommand | None:
    """Return the call of fio that a command is, by itself or by programs that start it."""
    rest, options = list(words), dict[str, str]()
    if rest[:2] in (["command", "-v"], ["command", "-V"]):
        return None
    if rest[0] in _KEYWORDS or rest[0].endswith("()") or rest[1:2] == ["()"]:
        one = "give one call of fio, and what differs as --vary OPTION=VALUE,VALUE"
        raise UserError(f"the fio job: {shown(' '.join(words))} is a shell's: {one}")
    if rest[0] in _DECLARES:
        rest.pop(0)
    assigned: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        if word == "$":
            # A prompt.
            continue
        if match := _ASSIGNED.fullmatch(word):
            known = {**os.environ, **environment, **assigned}
            before = known.get(match[1], "") if match[2] else ""
            assigned[match[1]] = before + with_variables(_with_defaults(match[3], known), known)
            continue
        name = program_of(word)
        if name == "fio" and not word.startswith("-"):
            if "LD_PRELOAD" in assigned:
                raise UserError("the fio job: LD_PRELOAD names a library that iolab does not have")
            own = {**environment, **assigned}
            return FioCommand(_split(rest, {**os.environ, **own}), options=options, environment=own)
        if name not in STARTERS:
            # "check_tool fio" starts nothing; "bash -c 'fio ...'" does.
            starts = [other for other in rest if other != rest[-1] or " " in other]
            starts = [other for other in starts if not other.startswith(("-", "$("))]
            if name not in {*HARMLESS, ""} and word[0] != "-" and any(map(FIO.search, starts)):
                treatments = as_treatments(rest) if name == "systemd-run" else []
                given = f", and give its treatment: {', '.join(treatments)}" if treatments else ""
                raise UserError(
                    f"the fio job: {shown(name)} is not a program that starts fio as it is: begin "
                    f"with fio{given}"
                )
            return None
        options |= as_options(name, arguments(name, rest))
    if all(_ASSIGNED.fullmatch(word) for word in words if word not in _DECLARES):
        environment.update(assigned)
    return None


def _split(words: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return fio's words as a shell gives them: a variable may hold several, or none."""
    found: list[str] = []
    for given in words:
        word = _with_defaults(given, known)
        alone = VARIABLE.fullmatch(word)
        value = known.get(alone[1] or alone[2] or "") if alone else None
        if value is not None and re.match(r"\s*(-|\Z)", value):
            found += value.split()
        elif word or not given:
            # ${NAME:-} by itself is no word.
            found.append(word)
    return found


def _with_defaults(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the value of each ${NAME:-VALUE}."""
    return _DEFAULT.sub(lambda match: known.get(match[1]) or match[2], text)


def with_variables(text: str, known: Mapping[str, str], kept: Collection[str] = ()) -> str:
    """Return a text with the values of variables; those in `kept` and unknown ones stay."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or ""
        return match[0] if name in kept else known.get(name, match[0])

    return VARIABLE.sub(value, text)
