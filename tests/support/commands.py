# SPDX-License-Identifier: MIT
"""Commands that the documents tell a reader to type: whether they exist, and which are cheap."""

from __future__ import annotations

import ast
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from iolab.cli import ExtraCommand, app

_ROOT: Final = Path(__file__).parents[2]
# Commands that neither measure nor ask another machine.
_CHEAP: Final = {"--help", "--version", "export", "plan", "trace", "verdicts"}
# Sessions that pass what follows "--" on to a command of iolab.
_PASSED_ON: Final = {"lab", "sweep"}
# Programs that are not this project's.
_FOREIGN: Final = {
    "apt",
    "cd",
    "cp",
    "chromium",
    "dask",
    "export",
    "git",
    "jupyter",
    "mkdir",
    "pip",
    "podman",
    "sh",
    "wipefs",
}
# What a pipe leads to.
_FILTERS: Final = {"grep", "head", "jq", "less", "sort"}


class WrongCommandError(Exception):
    """A command that does not exist, or not with these options."""


def every_command(group: click.Group = app, *names: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command of iolab with its words, groups included."""
    for name, command in group.commands.items():
        whole = command.load() if isinstance(command, ExtraCommand) else command
        yield " ".join((*names, name)), whole
        if isinstance(command, click.Group):
            yield from every_command(command, *names, name)


def pipeline(command: str) -> list[list[str]]:
    """Return the argv of each program of a command line, from the first to the last."""
    found: list[list[str]] = [[]]
    for word in shlex.split(command, comments=True):
        if word == "|":
            found.append([])
        else:
            found[-1].append(word)
    return found


def check_filters(filters: Sequence[Sequence[str]]) -> None:
    """Check that a pipe leads to programs that filter text.

    Raises
    ------
    WrongCommandError
        If it does not.
    """
    for argv in filters:
        if not argv or argv[0] not in _FILTERS:
            raise WrongCommandError(f"a pipe leads to {argv[:1]}")


def check(argv: Sequence[str]) -> None:
    """Check that a command exists and takes these arguments.

    Raises
    ------
    WrongCommandError
        If it does not.
    """
    rest = argv[1:]
    # A program of an environment: ./nox, .nox/lab/bin/iolab.
    name = Path(argv[0]).name
    if name == "sudo":
        check(rest)
    elif name == "iolab":
        _click(app, name, rest, None)
    elif name == "nox":
        _nox(rest)
    elif name == "papermill":
        _papermill(rest)
    elif name == "python" and rest[:1] == ["-m"] and rest[1:]:
        if find_spec(rest[1]) is None:
            raise WrongCommandError(f"{rest[1]} is no module")
    elif name not in _FOREIGN:
        raise WrongCommandError(f"{name} is no program that these documents know")


def cheap(argv: Sequence[str]) -> bool:
    """Tell whether a command is run, not only parsed."""
    if Path(argv[0]).name == "iolab":
        return argv[1] in _CHEAP or bool({"--dry-run", "--help"}.intersection(argv))
    return list(argv[:3]) == ["python", "-m", "pyperf"]


def program(argv: Sequence[str]) -> list[str]:
    """Return what runs a cheap command's program here."""
    here = [sys.executable]
    return here if argv[0] == "python" else [*here, "-m", "iolab"]


def _click(
    command: click.Command, name: str, rest: Sequence[str], parent: click.Context | None
) -> None:
    try:
        context = command.make_context(name, list(rest), parent)
        if isinstance(command, click.Group) and (left := [*context._protected_args, *context.args]):
            called, below, arguments = command.resolve_command(context, left)
            assert below is not None
            _click(below, str(called), arguments, context)
    except click.exceptions.Exit:
        return  # --help and --version
    except click.ClickException as error:
        raise WrongCommandError(error.format_message()) from error


def _nox(rest: Sequence[str]) -> None:
    before, passed = list(rest), list[str]()
    if "--" in before:
        at = before.index("--")
        before, passed = before[:at], before[at + 1 :]
    if before in (["--list"], ["-l"]):
        return
    flag, *sessions = before
    if flag != "-s" or not sessions:
        raise WrongCommandError("nox takes --list, or -s and sessions")
    tree = ast.parse((_ROOT / "noxfile.py").read_text(encoding="utf-8"))
    known = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("nox.session" in ast.unparse(one) for one in node.decorator_list)
    }
    if unknown := set(sessions) - known:
        raise WrongCommandError(f"no session {', '.join(sorted(unknown))}")
    for session in _PASSED_ON.intersection(sessions):
        check(["iolab", session, *passed])


def _papermill(rest: Sequence[str]) -> None:
    if rest[0] == "--help-notebook":
        notebook, given = rest[1], set[str]()
    else:
        notebook = rest[0]
        given = {rest[at + 1] for at, word in enumerate(rest) if word in {"-p", "-r"}}
    path = _ROOT / notebook
    if not path.exists():
        raise WrongCommandError(f"no notebook {notebook}")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    (parameters,) = (c for c in cells if "parameters" in c["metadata"].get("tags", []))
    targets = {
        node.id
        for node in ast.walk(ast.parse("".join(parameters["source"])))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if unknown := given - targets:
        raise WrongCommandError(f"{notebook} has no parameter {', '.join(sorted(unknown))}")
