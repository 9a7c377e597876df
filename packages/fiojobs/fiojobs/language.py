# SPDX-License-Identifier: MIT
"""Read a fio job from options, a command line, a job file or its text, as fio does."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fiojobs.arithmetic import with_calculations
from fiojobs.conditions import condition_for, unknown_change
from fiojobs.manifests import shell_text
from fiojobs.options import whole_name, why_without_effect
from fiojobs.plain import calls_fio, job_text, plain_text
from fiojobs.shell import FioCommand, Note, fio_commands
from fiojobs.starters import SHELLS
from fiojobs.variables import VARIABLE, with_variables
from fiojobs.words import no_other_program
from iolab_agent.fio_options import GRAMMARS, same_option, sets_same
from iolab_agent.plan import Section
from iolab_base.errors import UserError
from iolab_base.reading import read_regular

# Default name of a single section.
_NAME = "job"
_LONGEST = 1 << 20
_DEEPEST = 16
# A call of a script with its arguments.
_LONGEST_CALL = 1 << 13

# Options that stand alone or take "=VALUE", never the next word: FIO_OPT_STR_SET of fio's options.c
# and the arguments of init.c that need no value.
_ALONE = frozenset(
    (
        *("append-terse", "bandwidth-log", "blocksize_unaligned", "bs_unaligned", "cmdhelp"),
        *("cpuclock-test", "crctest", "enghelp", "exitall", "exitall_on_error", "fixedbufs"),
        *("group_reporting", "help", "hipri", "memcpytest", "merge-blktrace-only", "minimal"),
        *("new_group", "nonvectored", "norandommap", "parse-only", "readonly", "refill_buffers"),
        *("registerfiles", "server", "showcmd", "sqthread_poll", "stonewall", "thread"),
        *("time_based", "uncached", "userspace_reap", "verify_only", "version"),
        *("wait_for_previous", "warnings-fatal", "zero_buffers"),
    )
)
# Arguments with which fio runs no job.
_NO_JOB = frozenset(
    (
        *("cmdhelp", "cpuclock-test", "crctest", "daemonize", "enghelp", "help", "memcpytest"),
        *("merge-blktrace-only", "server", "version"),
    )
)
# Options in a sentence: "rw=randread, bs=4k".
_LISTED = re.compile(r"(?:\w+=[^\s;]+?[,;]\s*)+\w+=[^\s;=]+")
_SAME_CORES = {"cpumask", "cpus_allowed"}
_OPTION = re.compile(r"[a-z0-9_][a-z0-9_-]{0,79}", re.ASCII)
# What fio itself fills in, in values and in filename_format.
_KEYWORDS = frozenset(
    ("pagesize", "mb_memory", "ncpus", "jobname", "clientuid", "jobnum", "filenum")
)
# What a page puts in the place of what it leaves out.
_LEFT_OUT = re.compile(r"[\s\[(<]*(?:\.{3,}|\u2026)[\s\])>]*")
# How the name of a device of the machine begins, also of Windows, and such names.
NODE = r"(?:/dev/(?!shm/)|\\\\[.?]\\)"
_NODES = re.compile(rf"{NODE}[^:]+(:{NODE}[^:]+)*")
# A file in some folder, which is not that of devices.
_IN_FOLDER = re.compile(
    r"\$(?:\w+|\{\w+\}|\([^()]*\))/(?!.*\b(?:[shv]d|xvd|nvme|dm-|md|nullb|loop)[a-z0-9]+$)[^:$]+"
)


@dataclass
class _Text:
    """What is being read: the sections so far, and which of them are asked for."""

    everywhere: dict[str, str] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)
    only: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    # Variables that a condition makes unsure.
    unsure: frozenset[str] = frozenset()
    # Arguments of a script, None if they are not known.
    arguments: list[str] | None = None
    # What is said of each section, and of the call of fio that is read.
    notes: list[list[Note]] = field(default_factory=list)
    of_call: list[Note] = field(default_factory=list)
    # Names of sections of this call of fio, as they were given.
    named: list[str] = field(default_factory=list)

    def add(self, name: str, options: Mapping[str, str]) -> None:
        """Add a section, or options of [global], which hold for all later ones."""
        merged = dict(self.everywhere)
        for key, value in options.items():
            if not _OPTION.fullmatch(key):
                raise UserError(f"the fio job: {key[:60]!r} is not an option of fio")
            if not value.isprintable():
                raise UserError(f"the fio job: the value of {key} is not text: {value[:60]!r}")
            # Two names are two devices, even if it does not matter which.
            text = with_variables(value, self.environment, _KEYWORDS)
            text = text if _is_any(key, text) else self.filled(text, key)
            if not text and key in GRAMMARS and key not in _ALONE and not GRAMMARS[key].alone:
                raise UserError(f"the fio job: {key} needs a value, such as {key}=1")
            _put(merged, key, re.sub(r"\$\{([0-9]+)_\}", r"$\1", text))
        # fio compares six letters (__parse_jobs_ini() of its init.c).
        if name.startswith("global"):
            self.everywhere = merged
        elif not self.only or name in self.only:
            if _NODES.fullmatch(name):
                # fio uses a device that a section is named after.
                merged.setdefault("filename", name)
            self.named.append(name)
            self.sections.append(Section(plain_name(name), merged))
            self.notes.append(self.of_call)

    def end_call(self) -> None:
        """Check the names of a call's sections; the next call may have them again."""
        for name, count in Counter(self.named).items():
            if count > 1:
                raise UserError(
                    f"the fio job has two sections named {name[:60]!r}: give each a name of its own"
                )
        self.named.clear()

    def filled(self, value: str, option: str = "") -> str:
        """Return a value with the variables of the environment, as fio and a shell fill them in."""
        text = with_variables(value, self.environment, _KEYWORDS)
        text = with_calculations(text, self.environment) if "$((" in text else text
        # Those that a script gave to its own variables are among the unknown.
        unknown = [m[1] or m[2] or "" for m in VARIABLE.finditer(text) if m[2] not in _KEYWORDS]
        program = text.find("$(")
        if (not unknown and program < 0) or _is_any(option, text):
            return text
        if program >= 0:
            raise no_other_program(text[program:])
        name = re.split(r"(?<=\w)(?:[^\w:]|:(?![-=+?]))", unknown[0])[0][:40]
        if re.fullmatch("[0-9@*#]+_?", name):
            raise UserError(
                f"the fio job needs ${name.rstrip('_')}, an argument of its script: name the "
                "script's file with its arguments, or give the value"
            )
        if name in self.unsure:
            raise condition_for(name)
        if name.lstrip("!#") in self.environment:
            raise unknown_change(unknown[0])
        raise UserError(f"the fio job needs the environment variable {name!r}, which is not set")


def _is_any(option: str, value: str) -> bool:
    """Return whether an option is measured as the same whatever its value, or runs in the guest."""
    name = same_option(option)
    if name == "filename":
        return (_NODES.fullmatch(value) or _IN_FOLDER.fullmatch(value)) is not None
    return name == "directory" or name.startswith("exec_") or why_without_effect(name) is not None


def read_job(job: str | Path) -> list[Section]:
    """Return the sections of a fio job, at least one, with their options as they were asked.

    Parameters
    ----------
    job : str or Path
        Options (``"rw=randrw bs=8k"``), a command line as fio reads it (``"sudo fio -name a -rw
        read"``, also with job files), the text of a job file or a script, or its path. Variables
        such as ``${SIZE}`` are the environment's.

    Returns
    -------
    list of Section
        In the order of the job; options of [global] are in each section after it.

    Raises
    ------
    UserError
        If a file cannot be read, a variable is not set, or the text is not a job.
    """
    return [section for section, _ in noted_sections(job)]


def noted_sections(job: str | Path) -> list[tuple[Section, list[Note]]]:
    """Return sections as `read_job`, each with what its call of fio has beside options."""
    if not isinstance(job, str | Path):
        raise UserError(f"the fio job must be a text or a path, not {job!r:.60}")
    found = _Text()
    path = _path_of(job)
    if path is None and isinstance(job, str):
        path, found.arguments = _script_of(job)
    # A file is never options alone, even if it has a single line.
    if path is not None:
        _read_file(_read(path), path.parent, found)
    else:
        text = plain_text(str(job))
        _read_pasted(shell_text(text) or text, found)
    found.end_call()
    if not found.sections:
        only = f" called {', '.join(found.only)}" if found.only else " beside [global]"
        raise UserError(f"the fio job has no section{only}, so it does nothing")
    return list(zip(_with_own_names(found.sections), found.notes, strict=True))


def _with_own_names(sections: list[Section]) -> list[Section]:
    """Return sections each with a name of its own: those of two calls of fio may be alike."""
    found, taken, numbers = list[Section](), set[str](), Counter[str]()
    for section in sections:
        name = section.name
        while name in taken:
            numbers[section.name] += 1
            name = f"{section.name[:60]}-{numbers[section.name] + 1}"
        taken.add(name)
        found.append(replace(section, name=name))
    return found


def _path_of(job: str | Path) -> Path | None:
    """Return the path of a job's file, or None if `job` is its text."""
    if isinstance(job, Path):
        return job
    text = job.strip()
    if not text:
        raise UserError("the fio job is empty: give options such as rw=randwrite bs=4k")
    # False also for a name that is too long or contains NUL.
    named = "\n" not in text and "=" not in text and os.path.exists(text)  # noqa: PTH110
    return Path(text) if named else None


def _script_of(job: str) -> tuple[Path | None, list[str] | None]:
    """Return the file of a script and its arguments, if a line calls one that is here."""
    try:
        words = shlex.split(job) if "\n" not in job and len(job) < _LONGEST_CALL else []
    except ValueError:
        words = []
    words = list(itertools.dropwhile(("sudo", *SHELLS).__contains__, words))
    if not words or "=" in words[0] or not os.path.isfile(words[0]):  # noqa: PTH113
        return None, None
    text = ""
    with suppress(UserError):  # /usr/bin/time, or fio itself, is no text.
        text = _read(Path(words[0]))
    is_script = text.startswith("#!") or (calls_fio(text) and job_text(text) is None)
    return (Path(words[0]), words[1:]) if is_script else (None, None)


def _read(path: Path) -> str:
    name = str(path)
    try:
        text = plain_text(read_regular(path, _LONGEST).decode())
    except OSError as error:
        raise UserError(f"cannot read the fio job {name!r}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the fio job {name!r} is not text") from error
    if "\0" in text:
        raise UserError(f"the fio job {name!r} is not text")
    return text


def _read_file(text: str, folder: Path, found: _Text) -> None:
    """Read a file's text: a job, or the calls of fio in a script or another language."""
    calls = shell_text(text)
    if calls is None and calls_fio(text) and job_text(text) is None:
        calls = text
    if calls is None:
        _read_text(text, folder, found)
    else:
        _read_pasted(calls, found)


def _read_pasted(text: str, found: _Text, depth: int = 0) -> None:
    """Read the text of a job file, or calls of fio: one after another, or beside each other."""
    if depth > _DEEPEST:
        raise UserError(f"the fio job has here-documents more than {_DEEPEST} deep")
    job = job_text(text)
    if job is not None:
        _read_text(job, Path(), found)
        return
    if _LISTED.fullmatch(text):
        text = re.sub(r"[,;]\s*(?=\w+=|\Z)", " ", text)
    commands, here = fio_commands(text, found.arguments)
    if here is not None and not commands:
        # A job, or the commands that a shell reads.
        _read_pasted(shell_text(here) or here, found, depth + 1)
    elif not commands:
        raise UserError(f"the fio job is only a comment: {text[:40]!r}")
    for command in commands:
        before = len(found.sections)
        _read_words(command, found)
        if before and not command.beside:
            _begin_phase(found, before)


def _begin_phase(found: _Text, before: int) -> None:
    """Let what was read after the first `before` sections wait for these, as a stonewall does."""
    for section in found.sections[before : before + 1]:
        section.options.setdefault("stonewall", "")


def _read_text(text: str, folder: Path, found: _Text) -> None:
    """Read a job file, with the files that it includes."""
    name, options = _read_lines(text, folder, found, ("", {}), depth=0)
    if name:
        found.add(name, options)


def _read_lines(
    text: str, folder: Path, found: _Text, at: tuple[str, dict[str, str]], *, depth: int
) -> tuple[str, dict[str, str]]:
    """Add all sections but the last one, which is returned; an included file goes on with it."""
    if depth > _DEEPEST:
        raise UserError(f"the fio job includes files more than {_DEEPEST} deep")
    name, options = at
    for number, raw in enumerate(text.splitlines(), 1):
        # As strip_blank_end() of fio's init.c: a comment may begin within a line.
        line = re.split("[;#]", raw, maxsplit=1)[0].strip()
        if _LEFT_OUT.fullmatch(line):
            raise UserError(
                f"the fio job: line {number} ({line[:20]}) stands for lines: give those of the job"
            )
        if line.startswith("["):
            if not line.endswith("]") or not line[1:-1].strip():
                raise UserError(f"the fio job: line {number} is not a section: {line[:60]!r}")
            if name:
                found.add(name, options)
            name, options = line[1:-1].strip(), {}
        elif match := re.match(r"include\s+(.+)", line):
            inner, place = _included(match[1], folder)
            name, options = _read_lines(inner, place, found, (name, options), depth=depth + 1)
        elif line:
            key, _, value = (part.strip() for part in line.partition("="))
            if not name:
                raise UserError(
                    f"the fio job: line {number} ({key[:40]!r}) comes before any [section], and is "
                    "no call of fio"
                )
            _put(options, key, value)
            if key == "kb_base":
                # fio reads it before a section's other options.
                options = {key: value, **options}
    return name, options


def _included(name: str, folder: Path) -> tuple[str, Path]:
    """Return the text and folder of an included file, beside the job's file or where we are."""
    places = [Path(name), folder / name]
    # False also for a name that is too long.
    path = next((path for path in places if os.path.isfile(path)), places[0])  # noqa: PTH113
    return _read(path), path.parent


def _read_words(command: FioCommand, found: _Text) -> None:
    """Read fio's words, and the job files among them."""
    found.environment, found.unsure = {**os.environ, **command.environment}, command.unsure
    found.of_call = command.notes
    found.everywhere, found.only = dict(command.options), []
    found.end_call()
    if not command.words:
        raise UserError("the fio job is a call of fio without any option: give its options")
    name, options, files = "", dict[str, str](), list[str]()
    for key, value in _options(command, found):
        if key == "name":
            found.add(name or "global", options)
            name, options = with_variables(value, found.environment), {}
        elif key == "section":
            found.only.append(found.filled(value))
        elif key == "remote-config":
            raise UserError(f"the fio job is a file of another machine: give the text of {value}")
        elif key in _NO_JOB:
            raise UserError(f"the fio job: with --{key} fio runs no job: give a job")
        elif key:
            _put(options, key, value)
        else:
            files.append(value)
    if not name and not files and all(why_without_effect(same_option(o)) for o in options):
        raise UserError("the fio job is a call of fio without a job: give its options or its file")
    # Options before any job file or name hold for all.
    found.add(name or ("global" if files else _NAME), options)
    for number, file in enumerate(files):
        before = len(found.sections)
        _read_named(file, command, found)
        if number:
            # As __parse_jobs_ini() of fio's init.c.
            _begin_phase(found, before)


def _read_named(file: str, command: FioCommand, found: _Text) -> None:
    """Read a job file, or what came with the command in its place."""
    asked, file = file, os.path.expanduser(file)  # noqa: PTH111
    there = os.path.isfile(file)  # noqa: PTH113
    text = command.text_of(asked, there=there)
    if text is not None:
        _read_text(text, Path(), found)
        return
    if file == "-":
        raise UserError("the fio job is fio's standard input (-): give its text or its file")
    if command.bare and not there:
        raise UserError(
            f"the fio job: {file[:40]!r} is neither an option of fio nor a job file here"
        )
    _read_text(_read(Path(file)), Path(file).parent, found)


def _options(command: FioCommand, found: _Text) -> Iterator[tuple[str, str]]:
    """Return options with their values as getopt_long_only() does; ("", NAME) for a file."""
    rest = list(command.words)
    while rest:
        word = rest.pop(0)
        if _LEFT_OUT.fullmatch(word) or word.startswith("[-"):
            raise UserError(
                f"the fio job: {word[:40]!r} stands for options: give those that fio gets"
            )
        dashed = word.startswith("-") and word != "-"
        key, separator, value = word.lstrip("-").partition("=")
        key = whole_name(key) if dashed or separator else key
        # A value may be a negative number.
        valued = bool(rest) and re.match("[^-]|-[0-9]", rest[0]) is not None
        if dashed and not separator and key in _ALONE and rest[:1] in (["0"], ["1"]):
            # It would be the name of a job file.
            raise UserError(f"the fio job: fio takes no word after {word}: write {word}={rest[0]}")
        if dashed and not separator and key not in _ALONE and valued:
            value = rest.pop(0)
        alone = key in _ALONE or why_without_effect(key) is not None
        if dashed or (command.bare and (separator or alone)):
            yield key, value
        elif separator and not os.path.exists(word):  # noqa: PTH110
            raise UserError(
                f"the fio job: fio takes {word[:40]!r} for a job file: begin an option with --"
            )
        else:
            if word.startswith("<("):
                raise no_other_program(word)
            name = with_variables(word, found.environment)
            yield "", name if name in command.here else found.filled(word)


def _put(options: dict[str, str], key: str, value: str) -> None:
    if key == "filename" and options.get(key):
        # Files add up, also those of [global] (str_filename_cb() of fio's options.c).
        value = f"{options[key]}:{value}"
    # fio takes the later of two options that set the same thing.
    for other in [n for n in options if sets_same(n, key) or {n, key} == _SAME_CORES]:
        del options[other]
    options[key] = value


def plain_name(name: str) -> str:
    """Return a section's name with ``-`` for each character that iolab's names cannot have."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:64].lstrip("-_.") or _NAME
    if plain.startswith("global") or not name.isprintable():
        raise UserError(f"the fio job: {name[:60]!r} cannot be the name of a section")
    return plain
