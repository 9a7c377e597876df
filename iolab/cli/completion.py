# SPDX-License-Identifier: MIT
"""Completion in shells: click's own, with pathologies, kernels, profiles and levels of factors.

Each ``complete_...`` returns what may stand for an incomplete word. They run in a process of their
own for each key press, so they read names only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    shell_complete,
)

from iolab_base.errors import IolabError

if TYPE_CHECKING:
    from iolab.pathology.base import Pathology


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
    known = (level for p in _chosen(context) for level in _levels(p, name))
    # None is offered twice.
    fresh = (level for level in known if level not in listed.split(","))
    return [f"{name}={listed}{comma}{level}" for level in _beginning(fresh, last)]


def _chosen(context: click.Context) -> list[Pathology]:
    """Return the pathologies that the command line names so far, else all."""
    from iolab.pathology import named_pathologies, pathologies

    named = context.params.get("pathologies")
    return named_pathologies(named) if named else list(pathologies().values())


def _levels(pathology: Pathology, name: str) -> list[str]:
    """Return a factor's levels: all named ones, or the numbers that a profile has."""
    factor = pathology.factors.get(name)
    if factor is None:
        return []
    levels: Iterable[int | str] = getattr(factor, "levels", ()) or sorted(
        {level for p in pathology.profiles.values() for grid in p.grids for level in grid[name]}
    )
    own = ["control"] if name == pathology.treatment else []
    return [*own, *map(str, levels)]


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
