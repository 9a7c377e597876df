# SPDX-License-Identifier: MIT
"""Commands that run another one elsewhere: in a shell, on another machine, in a container."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from fiojobs.plain import FIO
from fiojobs.starters import (
    CONTAINERS,
    ELSEWHERE,
    HARMLESS,
    SHELLS,
    STARTERS,
    arguments,
    as_options,
    program_of,
)
from fiojobs.words import shown, simple_commands
from iolab_base.errors import UserError

# Calls of fio that do nothing.
ASKS: Final = re.compile("-v|--(?:version|help|enghelp|cmdhelp)(?:=.*)?")
# Shells within shells.
_DEEPEST: Final = 4
# The options of ssh(1) that take a value.
_OF_SSH: Final = re.compile("-[BbcDEeFIiJLlmOoPpQRSWw]")
_OF_SU: Final = ("-c", "--command")
# Options of a container whose value may look like a program.
_NAMED: Final = frozenset(
    (
        *("-n", "-h", "-v", "-w", "-c", "--name", "--network", "--hostname", "--volume", "--mount"),
        *("--workdir", "--container", "--namespace", "--entrypoint"),
    )
)
_VARIABLE: Final = re.compile("(?:--env=|-e)?([A-Za-z_][A-Za-z0-9_]*=.*)", re.DOTALL)
# Options of a container that slow its processes.
_LIMIT: Final = re.compile(
    "--(?:cpu|cpus|cpuset|memory|blkio|device-(?:read|write)|limits)(?:[-=].*)?|-m"
)
# fio, and an image that is called after it: "xridge/fio:latest".
_FIO: Final = re.compile(r"(?:/\S*/)?fio|(?:[\w.-]+/)+fio(?::[\w.-]+)?|fio:[\w.-]+")
_STARTS: Final = frozenset((*STARTERS, *SHELLS))


def is_call(words: Sequence[str]) -> bool:
    """Return whether the words of a command look like a call of fio."""
    plain = [word for word in words if "$(" not in word] or [""]
    call = FIO.search(" ".join(plain)) is not None and plain[0] not in HARMLESS
    return call and not any(map(ASKS.fullmatch, plain))


def starts_fio(value: str) -> bool:
    """Return whether the value of a variable is fio, or a call of it."""
    return FIO.match(value.removeprefix("sudo ")) is not None


def commands_of(text: str, depth: int = 0) -> Iterator[tuple[list[str], list[str], str]]:
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
        inner = list(commands_of(script, depth + 1))
        yield from inner[:-1]
        for last, own, _ in inner[-1:]:
            yield last, [*own, *files], end


def carried(words: Sequence[str]) -> str | None:
    """Return the script that a command runs elsewhere; None if it is no such command.

    Raises UserError for a container with limits.
    """
    rest = list(words)
    while rest and program_of(rest[0]) in STARTERS:
        starter = program_of(rest.pop(0))
        if as_options(starter, arguments(starter, rest)):
            return None
    name = program_of(rest.pop(0)) if rest else ""
    if name in SHELLS:
        return _of_shell(rest)
    if name == "eval":
        return " ".join(rest)
    if name == "su":
        scripts = (script for option, script in itertools.pairwise(rest) if option in _OF_SU)
        return next(scripts, None)
    if name == "ssh":
        return _of_ssh(rest)
    verbs = [place for place, word in enumerate(rest) if word in ("run", "exec", "rsh")]
    return _in_container(name, rest[verbs[0] + 1 :]) if name in CONTAINERS and verbs else None


def opens_shell(words: Sequence[str]) -> bool:
    """Return whether a command opens a shell here or elsewhere, in which somebody types."""
    rest = list(words)
    if rest[0] in ("sudo", "doas") and rest[1:] in (["-i"], ["-s"]):
        return True
    script = carried(rest)
    if rest[0] == "su":
        return script is None
    shell = rest if script is None else script.split()
    # ssh to a machine gives it no script.
    named = not shell or program_of(shell[0]) in SHELLS
    return named and all(word.startswith("-") for word in shell[1:])


def _of_shell(rest: Sequence[str]) -> str | None:
    """Return the script of ``sh -c SCRIPT``."""
    options = list(itertools.takewhile(lambda word: word.startswith("-"), rest))
    behind = rest[len(options) :]
    return behind[0] if behind and options and options[-1].endswith("c") else None


def _of_ssh(rest: list[str]) -> str:
    """Return what ssh gives to the other machine's shell."""
    while rest and rest[0].startswith("-"):
        if _OF_SSH.fullmatch(rest.pop(0)) and rest:
            rest.pop(0)
    return " ".join(rest[2 if rest[1:2] == ["--"] else 1 :])


def _in_container(name: str, rest: Sequence[str]) -> str | None:
    """Return what runs in a container, with the variables that it is given."""
    first = rest.index("--") + 1 if "--" in rest else 0
    for place, word in enumerate(rest[first:], first):
        is_fio = _FIO.fullmatch(word) is not None
        starts = is_fio or program_of(word) in _STARTS
        if not starts or (place and rest[place - 1] in _NAMED):
            continue
        own = rest[:place]
        # docker's -c is a weight, kubectl's a name.
        weighs = name not in ELSEWHERE
        if limits := [o for o in own if _LIMIT.fullmatch(o) or (weighs and o == "-c")]:
            raise UserError(
                f"the fio job: {name} limits fio by {shown(limits[0])}: leave it out, and give "
                "the limit as a file of the cgroup, such as cpu.max"
            )
        behind = rest[place + 1 :]
        # The name of a container or an image stands before what runs in it.
        is_name = is_fio and bool(behind) and program_of(behind[0]) in {"fio", *_STARTS}
        call = behind if is_name else ["fio" if is_fio else word, *behind]
        pairs = itertools.pairwise(own)
        words = [value for option, value in pairs if option in ("-e", "--env")]
        words += [option for option in own if option.startswith(("-e", "--env="))]
        given = [match[1] for match in map(_VARIABLE.fullmatch, words) if match]
        return shlex.join([*(["env", *given] if given else []), *call])
    return None
