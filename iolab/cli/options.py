# SPDX-License-Identifier: MIT
"""Options that several commands have, what completes them, and the help that lists what they take.

Each ``complete_...`` returns what may stand for an incomplete word. They run in a process of their
own for each key press, so they read names only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    shell_complete,
)

from iolab.paths import runs_dir
from iolab_base.errors import IolabError

if TYPE_CHECKING:
    from iolab.pathology.base import Pathology
    from iolab.pathology.factors import Factor
    from iolab.sweeps.request import Request


def complete_pathology(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str] | list[CompletionItem[str]]:
    """Return the pathologies whose names begin so; if none does, complete a file's name."""
    from iolab.pathology import pathology_names

    return _beginning(pathology_names(), incomplete) or [CompletionItem(incomplete, type="file")]


def complete_kernel(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the kernels of the catalogue and of the cache whose names begin so."""
    from icountvm.kernels import known_kernels

    try:
        return _beginning(known_kernels(), incomplete)
    except IolabError:
        # An unusable cache: the command itself reports why.
        return []


def complete_profile(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the profiles of the chosen pathologies whose names begin so."""
    return _beginning((name for p in _chosen(context) for name in p.profiles), incomplete)


def complete_levels(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the factors of the chosen pathologies, or after ``FACTOR=`` its levels."""
    name, separator, text = incomplete.partition("=")
    if not separator:
        return _beginning((f"{name}=" for p in _chosen(context) for name in p.factors), incomplete)
    listed, comma, last = text.rpartition(",")
    known = (level for p in _chosen(context) for level in _levels_of(p, name))
    # None is offered twice.
    fresh = (level for level in known if level not in listed.split(","))
    return [f"{name}={listed}{comma}{level}" for level in _beginning(fresh, last)]


def _chosen(context: click.Context) -> list[Pathology]:
    """Return the pathologies that the command line names so far, else all."""
    from iolab.pathology import named_pathologies, pathologies

    named = context.params.get("pathologies")
    return named_pathologies(named) if named else list(pathologies().values())


def _levels_of(pathology: Pathology, name: str) -> list[str]:
    """Return a factor's levels: all named ones, or the numbers that a profile has."""
    factor = pathology.factors.get(name)
    if factor is None:
        return []
    levels: Iterable[int | str] = getattr(factor, "levels", ()) or sorted(
        {level for p in pathology.profiles.values() for grid in p.grids for level in grid[name]}
    )
    return [*(["control"] if name == pathology.treatment else []), *map(str, levels)]


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def complete(command: click.Command, variable: str) -> int:
    """Handle the shell's request in an environment variable, and return the exit code."""
    # Errors are silent: the user is in the middle of a word.
    warnings.simplefilter("ignore")
    try:
        return shell_complete(command, {}, "iolab", variable, os.environ[variable])
    except IolabError as error:
        return error.exit_code


@add_completion_class
class Bash(BashComplete):
    """Bash, where a word ends at each "=" (its variable COMP_WORDBREAKS)."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words as the user typed them, with FACTOR=LEVEL as one word."""
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for word in [*args, incomplete]:
            if words and (word == "=" or (word and words[-1].endswith("="))):
                words[-1] += word
            else:
                words.append(word)
        self._typed = words[-1]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Drop the part before "=": Bash replaces only the word after it."""
        name, separator, level = item.value.partition("=")
        if separator and f"{name}=" in self._typed:
            return f"{item.type},{level}"
        return super().format_completion(item)


class _PathType(click.Path):
    """A path; "", as of an unset variable of a shell, would be the current folder."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        if value == "":
            self.fail("a path is empty", param, ctx)
        return super().convert(value, param, ctx)


PATH = _PathType(path_type=Path)
pathologies_argument = click.argument(
    "pathologies", nargs=-1, metavar="[NAME|FILE]...", shell_complete=complete_pathology
)
jobs_option = click.option("--jobs", type=int, help="How many virtual machines run at once.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
root_option = click.option("--root", type=PATH, default=runs_dir, help="Folder for the results.")
target_option = click.option(
    "--target", default="vm", show_default=True, help="vm, local, or ssh://user@host."
)


def kernels_option(help_: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option --kernel with its help, for several kernels."""
    return click.option(
        "--kernel", "kernels", multiple=True, shell_complete=complete_kernel, help=help_
    )


_LEVELS = "FACTOR=LEVEL[,LEVEL...]"
_OPTIONS = (
    click.option(
        "--profile",
        default="quick",
        show_default=True,
        shell_complete=complete_profile,
        help="How much to measure; see below.",
    ),
    kernels_option("Kernel instead of the profile's (repeatable)."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar=_LEVELS,
        shell_complete=complete_levels,
        help="Levels instead of the profile's (repeatable).",
    ),
    click.option(
        "--record",
        "recorded",
        multiple=True,
        metavar=_LEVELS,
        shell_complete=complete_levels,
        help="Trace these conditions, too (repeatable).",
    ),
    click.option(
        "--observe",
        "observed",
        multiple=True,
        metavar=f"{_LEVELS}|all",
        shell_complete=complete_levels,
        help="Profile these pairs, all tasks and functions, from outside the guest (repeatable).",
    ),
    click.option(
        "--calls",
        multiple=True,
        metavar="FUNCTION",
        help="Record the calls of this kernel function in observed cells (repeatable).",
    ),
    click.option(
        "--flat",
        is_flag=True,
        help="Profile observed cells by task and function only, without callers: cheaper.",
    ),
    click.option("--boots", type=int, help="Boots of each kernel instead of the profile's."),
    click.option("--seed", type=int, default=0, help="Seed of the boots, orders and jobs."),
    root_option,
)


def selection(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose what is measured."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def request_of(options: Mapping[str, Any], **more: Any) -> Request:
    """Return the request that a command's options make, and what they leave to `request_for`."""
    from iolab.sweeps.request import Request, request_for

    known = {field.name for field in fields(Request)}
    return request_for(**{n: v for n, v in options.items() if n in known}, **more)


def defined_in(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option for pathologies of the user's own to a command that reads results."""

    def register(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> None:
        from iolab.pathology import named_pathologies

        named_pathologies(names)

    return click.option(
        "--pathology",
        multiple=True,
        metavar="FILE",
        expose_value=False,
        callback=register,
        help="File that defines the pathology, if it is one of your own (repeatable).",
    )(command)


class SelectionCommand(click.Command):
    """A command whose help ends with the values that its options take, as pathologies have them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; while the shell completes an option's value, parse those before it."""
        if ctx.resilient_parsing and args and args[-1].startswith("--"):
            # click reads no argument where an option lacks its value.
            args = args[:-1]
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write profiles, pathologies, and the factors of each pathology."""
        from iolab.pathology import pathologies

        known = pathologies().values()
        with formatter.section("Pathologies"):
            formatter.write_dl([(p.name, p.title) for p in known])
        profiles: dict[str, list[str]] = {}
        for pathology in known:
            for name in pathology.profiles:
                profiles.setdefault(name, []).append(pathology.name)
        with formatter.section("Profiles"):
            formatter.write_dl(
                [
                    (name, "all" if len(having) == len(known) else ", ".join(having))
                    for name, having in profiles.items()
                ]
            )
        for pathology in known:
            with formatter.section(f"Factors of {pathology.name}"):
                treatment = pathology.treatment
                formatter.write_dl(
                    [
                        (name, _levels(factor) + (" (treatment)" if name == treatment else ""))
                        for name, factor in pathology.factors.items()
                    ]
                )


def _levels(factor: Factor) -> str:
    """Return the levels that a factor takes, in words."""
    from iolab.pathology.factors import IntegerFactor, InterventionFactor

    if isinstance(factor, IntegerFactor):
        return f"{factor.low}-{factor.high}"
    if isinstance(factor, InterventionFactor):
        return "none, a scheduler feature (NO_DELAY_DEQUEUE) or NAME=VALUE; + joins several"
    return ", ".join(factor.levels)
