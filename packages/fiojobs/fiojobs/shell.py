# SPDX-License-Identifier: MIT
"""Command lines and scripts as people paste them: the calls of fio in them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fiojobs.background import Background
from fiojobs.carriers import ASKS, carried, commands_of, opens_shell
from fiojobs.flow import Script
from fiojobs.grammar import tree_of
from fiojobs.kept import Files, Kept, fault_of, standard_input, teed
from fiojobs.plain import FIO, as_script, calls_fio
from fiojobs.starters import (
    DROPS,
    HARMLESS,
    OBSERVERS,
    READS,
    STARTERS,
    arguments,
    as_options,
    as_treatments,
    is_harmless,
    program_of,
)
from fiojobs.variables import (
    VARIABLE,
    assigned,
    filled,
    names_in,
    parts_of,
    with_defaults,
    with_variables,
)
from fiojobs.words import APPENDED, READ, shown, simple_commands
from iolab_base.errors import UserError

# Calls that a pasted text may make.
_MOST_CALLS: Final = 1000
_KEYWORDS: Final = frozenset(("for", "while", "until", "do", "case", "select", "function", "("))
_OBSERVED: Final = "record=True traces a cell, and observe=True profiles it: neither disturbs it"
# Of what a row shows.
_SHORT: Final = 60
# What changes a process that runs, or the machine below it.
_TAKES_OVER: Final = frozenset(
    ("taskset", "renice", "ionice", "chrt", "cgclassify", "cpulimit", "prlimit", "sysctl")
)
# Options that only fio has.
_OF_FIO: Final = re.compile(
    "--?(?:rw|readwrite|bs|blocksize|ioengine|iodepth|numjobs|direct|group_reporting)(?:=|$)"
)


class Note(NamedTuple):
    """A row of a translation but for its section."""

    option: str
    asked: str
    measured: str
    why: str


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
    faults : dict of str to str
        Why the texts of other files are not known, by their names.
    beside : bool
        Whether it runs at the same time as the call before it, which is in the background.
    unsure : frozenset of str
        Variables that the text sets under a condition.
    notes : list of Note
        What holds for all its sections: its condition, and what observes it.
    """

    words: list[str]
    bare: bool = False
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    beside: bool = False
    unsure: frozenset[str] = frozenset()
    notes: list[Note] = field(default_factory=list)

    def text_of(self, file: str, *, there: bool) -> str | None:
        """Return the text of a job file that came with the call; None if none did.

        One that is `there`, on this machine, has its whole name.

        Raises UserError if a command changes it.
        """
        name = "-" if file == "/dev/stdin" else file.removeprefix("./")
        known = {*self.here, *self.faults}
        if name not in known and not there:
            # Relative to another folder.
            last = name.rpartition("/")[2]
            alike = [other for other in known if other and other.rpartition("/")[2] == last]
            name = alike[0] if len(alike) == 1 else ""
        if name in self.faults:
            raise UserError(self.faults[name])
        return self.here.pop("", None) if not name and not there else self.here.get(name)


class _Other(NamedTuple):
    """A command that is no call of fio, and the files that it writes."""

    words: list[str]
    written: list[str]

    def __str__(self) -> str:
        return shown(" ".join([*self.words, *(f"> {file}" for file in self.written)]))


def fio_commands(
    text: str, arguments: Sequence[str] | None = None
) -> tuple[list[FioCommand], str | None]:
    """Return the calls of fio in a command line or a script, and the job that comes with them.

    Without arguments those of the script are not known.

    Raises UserError for what only a shell could know or do.
    """
    text, documents, here = as_script(text)
    kept, piped = Files(documents, here), None
    found: list[FioCommand] = []
    others: list[_Other] = []
    last, unread, of_fio, is_changed = "", False, False, False
    background = Background()
    outside = dict(os.environ)
    script = Script(arguments, documents)
    for step in script.run(tree_of(_until_prose(text))):
        words, files, last = step.words, step.files, step.before
        known = {**outside, **step.environment}
        read = [name for name in files if name.startswith(READ)]
        held = kept.held(words, read, piped, known, step.condition)
        piped = held if step.end == "|" else None
        command = None
        written = [with_variables(n, known) for n in [*files, *teed(words)] if n not in read]
        plain = [name.removeprefix(APPENDED) for name in written]
        # What reads the output of fio does not matter.
        if last not in ("|", "|&") or others or not found:
            command = _fio_of(words, step.environment, known)
            others += [] if command else [_Other(words, plain)]
        if command is not None:
            _check_call(words, running=bool(background.running) and not background.behind)
            _check_harmless(others)
            named = standard_input(read, known) if held.text is None else "-"
            command.words = [named if word == "-" else word for word in command.words]
            plain_words = [with_variables(word, known) for word in command.words]
            jobs, command.faults = kept.jobs(plain_words, step.condition)
            if fault := fault_of(held, "its standard input", step.condition):
                command.faults |= {"-": fault} if last == "|" and is_changed else {}
            elif held.text is not None:
                jobs["-"] = held.text
            command.here = {name: with_defaults(job, known) for name, job in jobs.items()}
            others = []
            command.beside, command.unsure = background.behind, step.unsure
            command.notes += [_of_condition(step.condition)] if step.condition else []
            found.append(command)
        else:
            if background.running:
                _check_beside(_Other(words, plain))
            unread |= kept.has_calls(words, held)
        kept.keep(held if command is None else Kept(None), written)
        kept.follow(words, known, step.condition)
        # A file that it prints may stand in the text.
        is_changed = program_of(words[0]) != "cat"
        of_fio = command is not None or (of_fio and last in ("|", "|&"))
        background.follow(step, known, is_call=of_fio)
        if len(found) > 2 * _MOST_CALLS:
            # Some may only ask fio for its version.
            break
    if unread or not found:
        _check_lost(found, script.uncalled, is_script=len(others) > 1 and calls_fio(text))
    _add_bare(found, others, len(documents), here)
    return _calls(found), here


def _of_condition(condition: str) -> Note:
    return Note("its condition", condition, "it holds", "the script does not say whether")


def _check_lost(found: Sequence[FioCommand], uncalled: str | None, *, is_script: bool) -> None:
    """Raise UserError for calls in the text that are none of those found."""
    if found:
        raise UserError("the fio job: a shell reads calls of fio out of a text: give its commands")
    if uncalled:
        raise UserError(f"the fio job: nothing calls {uncalled}(): add the line that does")
    if is_script:
        raise UserError("the fio job: the script shows no call of fio that runs: give the call")


def _check_call(words: Sequence[str], *, running: bool) -> None:
    """Raise UserError for a call that may not run by itself."""
    if running:
        raise UserError(
            "the fio job: a call in the background may run beside "
            f"{shown(' '.join(words))}: write wait between them, or & between all that run together"
        )


def _settings(files: Sequence[str]) -> list[str]:
    """Return which files are settings of the machine that matter."""
    return [f for f in files if f.startswith(("/proc/", "/sys/")) and f != DROPS]


def _check_beside(other: _Other) -> None:
    """Raise UserError for a command that changes how a call in the background goes on."""
    names = {program_of(word) for word in other.words[:2]}
    if _settings(other.written) or not names.isdisjoint(_TAKES_OVER):
        raise UserError(f"the fio job: {other} changes a call that runs: put it before fio")


def _add_bare(
    found: list[FioCommand], others: Sequence[_Other], documents: int, here: str | None
) -> None:
    """Add what gives options of fio alone, if there is no call; refuse what is neither."""
    if found and others and any(map(_OF_FIO.match, others[0].words)):
        raise UserError(
            f"the fio job: {shown(' '.join(others[0].words))} has options of fio, and is no call "
            "of it: join a line that is torn, or leave it out"
        )
    if not found and documents > 1:
        raise UserError("the fio job comes in several here-documents, and no call of fio reads one")
    if not found and others and here is None:
        if len(others) > 1:
            raise UserError(
                f"the fio job: {shown(others[0].words[0])} is not fio, and no fio follows"
            )
        found.append(FioCommand(others[0].words, bare=True))


def _calls(found: list[FioCommand]) -> list[FioCommand]:
    """Return calls without those that a script makes to ask for fio's version or engines."""
    if len(found) > 1:
        found = [one for one in found if not (one.words and ASKS.fullmatch(one.words[0]))]
    if len(found) > _MOST_CALLS:
        raise UserError(f"the fio job makes more than {_MOST_CALLS} calls of fio: give fewer")
    return found


def _check_harmless(commands: Sequence[_Other]) -> None:
    """Raise UserError for a command before fio that may matter: iolab runs fio alone."""
    for other in commands:
        words, written = other
        name = program_of(words[0])
        files = [*written, *(words[1:] if name not in READS else ())]
        changes = _settings(files)
        nothing = not assigned(words, {})[1] or (len(words) == 1 and name in STARTERS)
        # "apt install fio" installs it, "check_tool fio" asks for it.
        if nothing or program_of(words[-1]) == "fio" or opens_shell(words):
            continue
        if name in ("sudo", "doas") and len(words) > 1:
            _check_harmless([_Other(words[1:], written)])
        elif script := carried(words):
            _check_harmless([_Other(inner, to) for inner, to, _ in simple_commands(script)])
        elif not is_harmless(name, words[1:]) or changes:
            raise UserError(f"the fio job: iolab starts fio alone, and not {other} before it")


def _until_prose(text: str) -> list[tuple[list[str], list[str], str]]:
    """Return commands as `commands_of`, up to what no shell reads behind the last fio."""
    found = []
    try:
        for command in commands_of(text):
            found.append(command)  # noqa: PERF402
    except UserError:
        calls = sum(len(FIO.findall(" ".join(words))) for words, _, _ in found)
        if not calls or len(FIO.findall(text)) > calls:
            raise
    return found


def _fio_of(
    words: list[str], environment: Mapping[str, str], known: Mapping[str, str]
) -> FioCommand | None:
    """Return the call of fio that a command is, by itself or by programs that start it."""
    rest, options, notes = list(words), dict[str, str](), list[Note]()
    if rest[:2] in (["command", "-v"], ["command", "-V"]):
        return None
    if rest[0] in _KEYWORDS or rest[1:2] == ["()"]:
        one = "give one call of fio, and what differs as --vary OPTION=VALUE,VALUE"
        raise UserError(f"the fio job: {shown(' '.join(words))} is a shell's: {one}")
    assignments, behind = assigned(rest, known)
    rest = list(behind)
    used = {name for word in rest for name in names_in(word)} & assignments.keys()
    if name := next((name for name in used if known.get(name) != assignments[name]), ""):
        raise UserError(f"the fio job: a shell fills in {name} before it sets it: set it before")
    while rest:
        word = rest.pop(0)
        if word == "$":
            # A prompt.
            continue
        if "=" in word.partition("/")[0] and (
            more := assigned([word], {**known, **assignments})[0]
        ):
            # Behind env or sudo.
            assignments |= more
            continue
        name = program_of(word)
        if name == "fio" and not word.startswith("-"):
            if "LD_PRELOAD" in assignments:
                raise UserError("the fio job: LD_PRELOAD names a library that iolab does not have")
            own = {**environment, **assignments}
            split = _split(rest, {**known, **assignments})
            return FioCommand(split, options=options, environment=own, notes=notes)
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
        before = list(rest)
        taken = arguments(name, rest)
        if name in OBSERVERS:
            asked = " ".join(before[: len(before) - len(rest)])
            notes.append(Note(name, asked[:_SHORT] or "set", "not run", _OBSERVED))
        own = {**known, **assignments}
        options |= as_options(name, {key: filled(value, own) for key, value in taken.items()})
    return None


def _split(words: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return fio's words as a shell gives them: a variable may hold several, or none."""
    found: list[str] = []
    for given in words:
        parts = parts_of(given, known)
        if len(parts) > 1 and parts[0].startswith("-"):
            found += parts
            continue
        word = with_defaults(given, known)
        alone = VARIABLE.fullmatch(word)
        value = known.get(alone[1] or alone[2] or "") if alone else None
        if value is not None and re.match(r"\s*(-|\Z)", value):
            found += value.split()
        elif word or not given:
            # ${NAME:-} by itself is no word.
            found.append(word)
    return found
