# SPDX-License-Identifier: MIT
"""What a question changes between its cells: a file of a cgroup, an option of fio, a setting."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from iolab.agent.cgroup_files import FILES, fault_of
from iolab.agent.fio_options import faults_of
from iolab.agent.plan import Cell, Section
from iolab.agent.settings import SETTINGS
from iolab.experiment.parameters import listed
from iolab.experiment.recipe import Recipe
from iolab.pathology.base import Profile
from iolab.pathology.factors import CategoricalFactor, Condition, Factor, IntegerFactor
from iolab_base.errors import UserError
from iolab_base.files import digest_of
from iolab_base.names import nearest

__all__ = ["Cells", "Change", "changes"]

_ANTAGONIST: Final = "antagonist"
# The single level of several names that change together.
_TOGETHER: Final = "treated"
_Level = int | str


@dataclass(frozen=True)
class Change:
    """A factor of a question, and what each of its levels does to a cell.

    `names` are what it changes: ``cpu.weight``, ``antagonist``, ``iodepth``. If several change
    together, `together` has the level of each; otherwise it is empty.
    """

    names: tuple[str, ...]
    together: Mapping[str, _Level]
    levels: tuple[_Level, ...]

    @property
    def factor_name(self) -> str:
        """Name of the factor, and of its column."""
        if self.together:
            return "treatment"
        return re.sub(r"[^a-z0-9]+", "_", self.names[0].lower())

    @property
    def control(self) -> str:
        """Name of the control."""
        if self.names == (_ANTAGONIST,):
            return "alone"
        in_group = all(name in FILES for name in self.names)
        return "outside" if in_group else "as given"

    @property
    def factor(self) -> Factor:
        """The factor as a pathology has it."""
        label = " and ".join(self.names)
        numbers = [level for level in self.levels if isinstance(level, int)]
        if len(numbers) == len(self.levels):
            return IntegerFactor(min(numbers), max(numbers), label)
        words = {str(level): self.phrase(level) for level in self.levels}
        return CategoricalFactor(tuple(str(level) for level in self.levels), label, words=words)

    def phrase(self, level: _Level) -> str:
        """Return a level in words."""
        if self.together:
            return ", ".join(f"{name} {value}" for name, value in self.together.items())
        return "antagonist" if self.names == (_ANTAGONIST,) else f"{self.names[0]} {level}"

    def apply(self, recipe: Recipe, level: _Level) -> Recipe:
        """Return the recipe of cells at a level; raise UserError for an unknown name or level."""
        for name, value in (self.together or {self.names[0]: level}).items():
            recipe = _applied(recipe, name, value)
        return recipe


@dataclass(frozen=True)
class Cells:
    """Returns the agent's cell of a condition: a recipe, and what the question's factors change."""

    recipe: Recipe
    every: tuple[Change, ...]

    def __call__(self, condition: Condition, profile: Profile, rng: random.Random) -> Cell:
        """Return the agent's cell of a condition."""
        recipe = self.recipe
        for change in self.every:
            level = condition[change.factor_name]
            recipe = recipe if level is None else change.apply(recipe, level)
        return recipe.cell(profile, rng)

    def digest(self) -> str:
        """Return eight hexadecimal digits that identify the whole question."""
        changed = [[list(change.names), list(change.levels)] for change in self.every]
        return digest_of({"recipe": asdict(self.recipe), "changes": changed})[:8]


def changes(given: Mapping[str, object]) -> list[Change]:
    """Return the one change of a treatment; several names change together, with one level each.

    Raises UserError if nothing is named, or several names have several levels.
    """
    levels = {name: _levels(name, value) for name, value in given.items()}
    if not levels:
        raise UserError("the treatment is empty: name what is changed, such as cpu.weight")
    if len(levels) == 1:
        return [Change(tuple(levels), {}, next(iter(levels.values())))]
    several = [name for name, of_one in levels.items() if len(of_one) > 1]
    if several:
        raise UserError(
            f"{' and '.join(levels)} change together: give {several[0]} one level, "
            "or vary it instead"
        )
    together = {name: of_one[0] for name, of_one in levels.items()}
    return [Change(tuple(levels), together, (_TOGETHER,))]


def _levels(name: str, given: object) -> tuple[_Level, ...]:
    if name == _ANTAGONIST:
        if given is not True:
            raise UserError("the treatment antagonist is True: give what runs as antagonist=...")
        return (_TOGETHER,)
    # A list of cores such as "0,2" and a job's rate such as "1k,2k" are one level.
    values = [given] if isinstance(given, str) else listed(given)
    found: list[_Level] = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise UserError(f"{name}: a level is a whole number or a string, not {value!r}")
        found.append(value)
    if not found:
        raise UserError(f"{name} needs at least one level")
    return tuple(dict.fromkeys(found))


def _applied(recipe: Recipe, name: str, value: _Level) -> Recipe:
    if name == _ANTAGONIST:
        if recipe.antagonist is None:
            raise UserError("the treatment is the antagonist, and there is none: antagonist=...")
        return replace(recipe, beside=True)
    if name in FILES:
        if fault := fault_of(name, value):
            raise UserError(fault)
        return replace(recipe, group={**recipe.group, name: value})
    if name in SETTINGS:
        if not isinstance(value, int):
            raise UserError(f"the setting {name} is a whole number, not {value!r}")
        return replace(recipe, settings={**recipe.settings, name: value})
    if recipe.program is not None:
        raise UserError(_unknown(name))
    options = {name: str(value)}
    if faults := faults_of(options):
        raise UserError(f"{_unknown(name)}; of fio: {'; '.join(faults)}")
    sections = tuple(Section(s.name, {**s.options, **options}) for s in recipe.sections)
    return replace(recipe, sections=sections)


def _unknown(name: str) -> str:
    known = [*FILES, *SETTINGS, _ANTAGONIST]
    return f"{name!r} is nothing that can be changed{nearest(name, known)} ({', '.join(known)})"
