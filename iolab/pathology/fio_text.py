# SPDX-License-Identifier: MIT
"""Read a fio job from an option string, a command line or a job file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from iolab.agent.fio_options import faults_of, sets_same
from iolab.agent.plan import Section
from iolab_base.errors import UserError
from iolab_base.reading import read_regular

__all__ = ["parse_fio"]

# Default name of a single section.
_NAME = "job"
_LONGEST = 1 << 20
# Of an argument of a Linux program. Also, `shlex` takes a time that grows as the square of a word.
_LONGEST_LINE = 1 << 17

# Pairs of a section's name (None: the options hold for all sections that follow) and its options.
_Parts = Iterable[tuple[str | None, dict[str, str]]]


def parse_fio(job: str | Path) -> list[Section]:
    """Return the sections of a fio job, at least one, for `iolab.agent.plan.OpenJob`.

    `job` is options (``"rw=randrw bs=8k"``), a command line (``"fio --name=a --rw=read"``), the
    text of a job file, or its path. Options of ``[global]`` apply to each later section, as in fio.
    Raises UserError for an unreadable file, and for options that iolab refuses or sets itself
    (size, times, seed, files).
    """
    text = _text_of(job)
    parts = _of_file(text) if "\n" in text or text.startswith("[") else _of_words(text)
    sections = _sections(parts)
    if not sections:
        raise UserError("the fio job has no section beside [global], so it does nothing")
    faults: dict[str, None] = {}
    for section in sections:
        faults |= dict.fromkeys(faults_of(section.options))
    if faults:
        raise UserError(f"the fio job: {'; '.join(faults)}")
    names = [section.name for section in sections]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"the fio job has two sections named {twice!r}")
    return sections


def _text_of(job: str | Path) -> str:
    if isinstance(job, str):
        text = job.strip()
        if not text:
            raise UserError("the fio job is empty: give options such as rw=randwrite bs=4k")
        # False also for a name that is too long or contains NUL.
        if "\n" in text or "=" in text or not os.path.exists(text):  # noqa: PTH110
            return text
    name = str(job)
    try:
        text = read_regular(Path(name), _LONGEST).decode().strip()
    except OSError as error:
        raise UserError(f"cannot read the fio job {name!r}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the fio job {name!r} is not a text") from error
    if "\0" in text:
        raise UserError(f"the fio job {name!r} is not a text")
    # A file is never a command line, even if it has a single line.
    return text + "\n"


def _of_file(text: str) -> Iterator[tuple[str | None, dict[str, str]]]:
    name, options = "", dict[str, str]()
    for number, raw in enumerate(text.splitlines(), 1):
        # As strip_blank_end() of fio's init.c: a comment may begin within a line.
        line = re.split("[;#]", raw, maxsplit=1)[0].strip()
        if not line:
            continue
        if line.startswith("["):
            if not line.endswith("]") or not line[1:-1].strip():
                raise UserError(f"the fio job: line {number} is no section: {line[:60]!r}")
            if name:
                yield None if name == "global" else name, options
            name, options = line[1:-1].strip(), {}
            continue
        # fio reads "include FILE" as no option.
        key, _, value = (
            part.strip() for part in re.sub(r"^include\s", "include=", line).partition("=")
        )
        if not name:
            raise UserError(
                f"the fio job: line {number} ({key[:40]!r}) stands before any [section]"
            )
        _put(options, key, value)
    if name:
        yield None if name == "global" else name, options


def _of_words(text: str) -> Iterator[tuple[str | None, dict[str, str]]]:
    if len(text) > _LONGEST_LINE:
        raise UserError(f"the fio job: no command line is that long: {text[:60]!r}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"the fio job: {error}: {text[:60]!r}") from error
    name: str | None = None
    named, options = False, dict[str, str]()
    for word in words[words[:1] == ["fio"] :]:
        key, _, value = word.removeprefix("--").partition("=")
        if key == "name":
            yield name, options
            named, name, options = True, None if value == "global" else value, {}
        else:
            _put(options, key, value)
    if not named:
        name = _NAME
    yield name, options


def _put(options: dict[str, str], key: str, value: str) -> None:
    # fio takes the later of two options that set the same thing.
    for other in [name for name in options if sets_same(name, key)]:
        del options[other]
    options[key] = value


def _sections(parts: _Parts) -> list[Section]:
    everywhere: dict[str, str] = {}
    sections = []
    for name, options in parts:
        merged = dict(everywhere)
        for key, value in options.items():
            _put(merged, key, value)
        if name is None:
            everywhere = merged
        else:
            sections.append(Section(_plain(name), merged))
    return sections


def _plain(name: str) -> str:
    """Return a section's name with ``-`` for each character that iolab's names cannot have."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:64]
    if not plain[:1].isalnum() or plain.startswith("global"):
        raise UserError(f"the fio job: {name[:60]!r} cannot be the name of a section")
    return plain
