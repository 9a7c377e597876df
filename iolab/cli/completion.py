# SPDX-License-Identifier: MIT
"""Values that the shell completes: pathologies, kernels, profiles, factors with their levels.

Each function returns what may stand for an incomplete word. They run in a process of their own for
each key press, so they read names only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from iolab_base.errors import IolabError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from iolab.pathology.base import Pathology

__all__ = [
    "complete_kernel",
    "complete_levels",
    "complete_pathology",
    "complete_profile",
]

_CONTROL = "control"


def complete_pathology(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str] | list[CompletionItem[str]]:
    """Return the pathologies whose names begin so; if none does, complete a file's name."""
    from click.shell_completion import CompletionItem

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
    """Return the factors of the chosen pathologies, or after ``FACTOR=`` its levels.

    Levels already in the list are not offered again.
    """
    name, separator, text = incomplete.partition("=")
    if not separator:
        return _beginning((f"{name}=" for p in _chosen(context) for name in p.factors), incomplete)
    listed, comma, last = text.rpartition(",")
    known = (level for p in _chosen(context) for level in _levels(p, name))
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
    own = [_CONTROL] if name == pathology.treatment else []
    return [*own, *map(str, levels)]


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
