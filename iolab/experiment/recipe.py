# SPDX-License-Identifier: MIT
"""The cells of a question: what they have in common, and what each factor changes in them."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from iolab.agent.cgroup_files import FILES, fault_of
from iolab.agent.fio_options import faults_of
from iolab.agent.plan import (
    Antagonist,
    Cell,
    Device,
    FileSystem,
    Group,
    OpenJob,
    Program,
    Section,
)
from iolab.agent.settings import SETTINGS
from iolab.experiment.parameters import listed
from iolab.pathology.base import Machine, Profile
from iolab.pathology.factors import CategoricalFactor, Condition, Factor, IntegerFactor
from iolab.results import CellResult
from iolab_base.errors import UserError
from iolab_base.files import digest_of
from iolab_base.names import nearest

__all__ = ["Cells", "Change", "Recipe", "changes"]

# Kernel modules by kind of device and file system.
_MODULES = {
    "null_blk": ("null_blk",),
    # The agent loads scsi_debug for each cell: its parameters define the disk.
    "scsi_debug": ("sd_mod",),
    "loop": ("loop",),
    "zram": ("zram",),
    "xfs": ("crc32c", "xfs"),
    "ext4": ("crc32c", "ext4"),
    "bfq": ("bfq",),
}
_ANTAGONIST: Final = "antagonist"
# The single level of several names that change together.
_TOGETHER: Final = "treated"
_Level = int | str


@dataclass(frozen=True)
class Recipe:
    """What a question's cells have in common: a fio job (`sections`) or a `program`."""

    sections: tuple[Section, ...]
    program: Program | None
    # Files of the work's cgroup, also for the control; empty: no cgroup.
    group: Mapping[str, int | str]
    # In every cell if `beside`, otherwise where the factor of this name turns it on.
    antagonist: Antagonist | None
    devices: tuple[Device, ...]
    filesystem: FileSystem | None
    # As in `OpenJob`.
    size_mib: int
    layout: str
    ramp_ms: int
    runtime_ms: int
    # Of the virtual machine, all of whose cores the work may use.
    cpus: int
    memory_mib: int
    settings: Mapping[str, int] = field(default_factory=dict)
    # Kernel functions and tracepoints.
    count: tuple[str, ...] = ()
    beside: bool = True

    def cell(self, profile: Profile, rng: random.Random) -> Cell:
        """Return the agent's cell."""
        cores = list(range(self.cpus))
        job = None
        if self.program is None:
            job = OpenJob(
                sections=list(self.sections),
                size_mib=self.size_mib,
                layout=self.layout,
                ramp_ms=profile.ramp_ms,
                runtime_ms=profile.runtime_ms,
                seed=rng.randrange(1, 2**31),
                # Phase of the tick at which the run begins.
                start_delay_us=rng.randrange(4000),
                cpus=cores,
            )
        program = None
        if self.program is not None:
            program = replace(self.program, cpus=cores, start_delay_us=rng.randrange(4000))
        return Cell(
            devices=list(self.devices),
            filesystem=self.filesystem,
            job=job,
            program=program,
            group=Group(dict(self.group)) if self.group else None,
            antagonist=self.antagonist if self.beside else None,
            settings=dict(self.settings),
            count=list(self.count),
        )

    def counts(self, result: CellResult) -> dict[str, float]:
        """Return how often each counted function or tracepoint was hit, per I/O of the device.

        A program's are per second.
        """
        first, last = result["first"], result["last"]
        unit, amount = "io", float(last["ios"] - first["ios"])
        if self.program is not None:
            unit, amount = "s", (last["at_ns"] - first["at_ns"]) / 1e9
        return {
            f"{name.replace(':', '_')}_per_{unit}": (
                (last["calls"][name] - first["calls"][name]) / amount if amount else math.nan
            )
            for name in self.count
        }

    def machine(self, boot: Condition) -> Machine:
        """Return the virtual machine of a block."""
        kinds = [device.kind for device in self.devices]
        kinds += [device.scheduler for device in self.devices]
        kinds += [] if self.filesystem is None else [self.filesystem.kind]
        modules = dict.fromkeys(m for kind in kinds for m in _MODULES.get(kind, ()))
        return Machine(cpus=self.cpus, memory_mib=self.memory_mib, modules=tuple(modules))


@dataclass(frozen=True)
class Change:
    """A factor of a question, and what each of its levels does to a cell."""

    # What it changes: cpu.weight, antagonist, iodepth.
    names: tuple[str, ...]
    # The level of each name, if several change together.
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
    """Returns the agent's cell of a condition: a recipe with the changes of its levels."""

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
    """Return the one change of a treatment; several names change together, with one level each."""
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
