# SPDX-License-Identifier: MIT
"""Read a fio job from options, a command line, a job file or its text, as fio does."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iolab_agent.fio_options import sets_same
from iolab_agent.plan import Section
from iolab_base.errors import UserError
from iolab_base.reading import read_regular

# Default name of a single section.
_NAME = "job"
_LONGEST = 1 << 20
# Of an argument of a Linux program. Also, `shlex` takes a time that grows as the square of a word.
_LONGEST_LINE = 1 << 17
_DEEPEST = 16

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
# Programs that start fio: each with those of its options that take a value.
_STARTERS = {
    "sudo": "-u -g",
    "time": "",
    "env": "-u",
    "nice": "-n",
    "ionice": "-c -n",
    "taskset": "",
    "numactl": "-N -m -C",
    "chrt": "",
}
_OPTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}", re.ASCII)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


@dataclass
class _Text:
    """What is being read: the sections so far, and which of them are asked for."""

    everywhere: dict[str, str] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)
    only: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def add(self, name: str, options: Mapping[str, str]) -> None:
        """Add a section, or options of [global], which hold for all later ones."""
        merged = dict(self.everywhere)
        for key, value in options.items():
            if not _OPTION.fullmatch(key):
                raise UserError(f"the fio job: {key[:60]!r} is not an option of fio")
            if not value.isprintable():
                raise UserError(f"the fio job: the value of {key} is not text: {value[:60]!r}")
            _put(merged, key, self._filled(value))
        if name == "global":
            self.everywhere = merged
        elif not self.only or name in self.only:
            self.sections.append(Section(_plain(name), merged))

    def _filled(self, value: str) -> str:
        """Return a value with the variables of the environment, as fio fills them in."""
        for name in _VARIABLE.findall(value):
            if name not in self.environment:
                raise UserError(
                    f"the fio job needs the environment variable {name[:40]!r}, which is not set"
                )
        return _VARIABLE.sub(lambda match: self.environment[match[1]], value)


def read_job(job: str | Path) -> list[Section]:
    """Return the sections of a fio job, at least one, with their options as they were asked.

    Parameters
    ----------
    job : str or Path
        Options (``"rw=randrw bs=8k"``), a command line as fio reads it (``"sudo fio -name a -rw
        read"``, also with job files), the text of a job file, or its path. Variables such as
        ``${SIZE}`` are the environment's.

    Returns
    -------
    list of Section
        In the order of the job; options of [global] are in each section after it.

    Raises
    ------
    UserError
        If a file cannot be read, a variable is not set, or the text is not a job.
    """
    found = _Text()
    path = _path_of(job)
    # A file is never a command line, even if it has a single line.
    if path is not None:
        _read_text(_read(path), path.parent, found)
    elif _is_command(text := re.sub(r"\\\n", " ", str(job).strip())):
        _read_words(text, found)
    else:
        _read_text(text, Path(), found)
    if not found.sections:
        only = f" called {', '.join(found.only)}" if found.only else " beside [global]"
        raise UserError(f"the fio job has no section{only}, so it does nothing")
    names = [section.name for section in found.sections]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"the fio job has two sections named {twice!r}")
    return found.sections


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


def _read(path: Path) -> str:
    name = str(path)
    try:
        text = read_regular(path, _LONGEST).decode().strip()
    except OSError as error:
        raise UserError(f"cannot read the fio job {name!r}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the fio job {name!r} is not text") from error
    if "\0" in text:
        raise UserError(f"the fio job {name!r} is not text")
    return text


def _is_command(text: str) -> bool:
    """Return whether a text is a command line, and not that of a job file."""
    if text.startswith("[") or ("\n" in text and not text.startswith("-")):
        # Several lines are a job file, unless they begin like a command.
        return bool(re.match(r"(\S+\s+){0,12}(\S*/)?fio\s+-", text.partition("\n")[0]))
    return True


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
                    f"the fio job: line {number} ({key[:40]!r}) comes before any [section]"
                )
            _put(options, key, value)
    return name, options


def _included(name: str, folder: Path) -> tuple[str, Path]:
    """Return the text and folder of an included file, beside the job's file or where we are."""
    places = [Path(name), folder / name]
    # False also for a name that is too long.
    path = next((path for path in places if os.path.isfile(path)), places[0])  # noqa: PTH113
    return _read(path), path.parent


def _read_words(text: str, found: _Text) -> None:
    """Read options or a command line."""
    if len(text) > _LONGEST_LINE:
        raise UserError(f"the fio job: the command line is too long: {text[:60]!r}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"the fio job: {error}: {text[:60]!r}") from error
    options, words = _after_starters(words, found)
    found.everywhere.update(options)
    name, options, files = "", dict[str, str](), list[str]()
    for key, value in _options(words):
        if key == "name":
            found.add(name or "global", options)
            name, options = value, {}
        elif key == "section":
            found.only.append(value)
        elif key:
            _put(options, key, value)
        else:
            files.append(value)
    # Options before any job file or name hold for all.
    found.add(name or ("global" if files else _NAME), options)
    for file in files:
        _read_text(_read(Path(file)), Path(file).parent, found)


def _after_starters(words: list[str], found: _Text) -> tuple[dict[str, str], list[str]]:
    """Return the options that a command line gives fio by what starts it, and fio's own words."""
    number = next((n for n, word in enumerate(words[:20]) if Path(word).name == "fio"), None)
    if number is None:
        return {}, words
    options, before = dict[str, str](), words[:number]
    while before:
        starter = Path(before.pop(0)).name
        name, separator, value = starter.partition("=")
        if separator:
            found.environment[name] = value
            continue
        if starter not in _STARTERS:
            raise UserError(f"the fio job: {starter[:40]!r} is not a program that starts fio")
        given: list[str] = []
        while before and (before[0].startswith("-") or before[0][:1].isdigit()):
            given.append(before.pop(0))
            if given[-1] in _STARTERS[starter].split() and before:
                given.append(before.pop(0))
        options |= _of_starter(starter, given)
    return options, words[number + 1 :]


def _of_starter(starter: str, given: Iterable[str]) -> dict[str, str]:
    """Return what taskset and nice mean as options of fio."""
    words = [word for word in given if word not in ("-c", "--cpu-list", "-n")]
    last = words[-1].rpartition("=")[2] if words else ""
    if starter == "taskset" and last:
        return {("cpus_allowed" if len(words) < len(list(given)) else "cpumask"): last}
    return {"nice": last} if starter == "nice" and last else {}


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Return options with their values as getopt_long_only() does; ("", NAME) for a file."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        dashed = word.startswith("-")
        key, separator, value = word.lstrip("-").partition("=")
        if dashed and not separator and key not in _ALONE and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        if dashed or separator or not os.path.exists(word):  # noqa: PTH110
            yield key, value
        else:
            yield "", word


def _put(options: dict[str, str], key: str, value: str) -> None:
    # fio takes the later of two options that set the same thing.
    for other in [name for name in options if sets_same(name, key)]:
        del options[other]
    options[key] = value


def _plain(name: str) -> str:
    """Return a section's name with ``-`` for each character that iolab's names cannot have."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:64].lstrip("-_.")
    if not plain or plain.startswith("global"):
        raise UserError(f"the fio job: {name[:60]!r} cannot be the name of a section")
    return plain
