# SPDX-License-Identifier: MIT
"""What a pathology is made of: factors, profiles, claims, and how a cell of it is run."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from iolab.errors import UserError
from iolab.names import one_of
from iolab.trace.trace import Trace

__all__ = [
    "CategoricalFactor",
    "Claim",
    "Condition",
    "Factor",
    "Grid",
    "IntegerFactor",
    "Pathology",
    "Profile",
    "override",
]

Condition = Mapping[str, int | str | None]
Grid = Mapping[str, tuple[int | str, ...]]


@dataclass(frozen=True)
class IntegerFactor:
    """A factor of whole numbers from `low` to `high`.

    Parameters
    ----------
    low, high : int
        Smallest and largest level.
    label : str
        What an axis of it is called, with the unit if it has one: ``"cpu.weight"``.
    phrase : str
        A level in words, with ``{}`` for its number: ``"{} jobs"``. By default the label, then the
        number.
    words : mapping of int to str
        Levels that have words of their own: ``{1: "1 job"}``.
    """

    low: int
    high: int
    label: str
    phrase: str = ""
    words: Mapping[int, str] = field(default_factory=dict)

    def in_words(self, level: int) -> str:
        """Return a level in words, as titles, legends and captions show it."""
        return self.words.get(level, (self.phrase or f"{self.label} {{}}").format(level))

    def parse(self, name: str, text: str) -> int:
        """Return the level that `text` names. Errors: UserError with the range."""
        if re.fullmatch(r"\d{1,9}", text) and self.low <= int(text) <= self.high:
            return int(text)
        raise UserError(f"{name} must be {self.low}-{self.high}, not {text!r}")


@dataclass(frozen=True)
class CategoricalFactor:
    """A factor of named levels.

    Parameters
    ----------
    levels : tuple of str
        The levels, in the order of tables and figures.
    label : str
        What an axis of it is called: ``"I/O scheduler"``.
    phrase : str
        A level in words, with ``{}`` for its name: ``"{} layout"``. By default the name alone.
    words : mapping of str to str
        Levels that have words of their own: ``{"default": "default tuning"}``.
    """

    levels: tuple[str, ...]
    label: str
    phrase: str = "{}"
    words: Mapping[str, str] = field(default_factory=dict)

    def in_words(self, level: str) -> str:
        """Return a level in words, as titles, legends and captions show it."""
        return self.words.get(level, self.phrase.format(level))

    def parse(self, name: str, text: str) -> str:
        """Return the level that `text` names. Errors: UserError that lists the levels."""
        return one_of(f"level of {name}", text, self.levels)


Factor = IntegerFactor | CategoricalFactor


@dataclass(frozen=True)
class Profile:
    """How much of a pathology is measured.

    ``kernels`` holds alternatives: of each tuple the first that can run here is measured.
    ``boots`` is the number of blocks of each kernel, the replicates of the statistics. Each grid is
    crossed in full; a pathology's treatment factor always has its control beside it. Conditions
    whose levels are all among those of ``recorded`` are measured once more with tracing, control
    and treatment, in the first ``recorded_boots`` boots. ``ramp_ms`` and ``runtime_ms`` are of jobs
    that run for a time; where a cell is a number of writes they are 0.
    """

    kernels: tuple[tuple[str, ...], ...]
    boots: int
    grids: tuple[Grid, ...]
    ramp_ms: int = 0
    runtime_ms: int = 0
    recorded: Grid = field(default_factory=dict)
    recorded_boots: int = 2

    def records(self, condition: Condition, boot: int) -> bool:
        """Tell whether a treated condition is recorded in a boot."""
        chosen = all(condition[name] in levels for name, levels in self.recorded.items())
        return bool(self.recorded) and chosen and boot < self.recorded_boots


@dataclass(frozen=True)
class Claim:
    """One statement of a report, with the rule that decides it: fixed before anything is measured.

    ``value`` is a column of the cells or a measure of the pathology, taken in the treated
    `condition` (and in its control). ``contrast`` says what is judged: the "ratio" treated/control,
    the "difference" treated minus control, or "treated" alone. It is reproduced where the whole
    interval lies above ``above``, or below ``below``; not reproduced where the whole interval lies
    on the other side; inconclusive else. ``requires`` is why this kind of machine cannot decide it:
    then there is no verdict here, whatever was measured. ``secondary`` claims are negative
    controls, cures and by-products: judged like others, but not what a pathology's verdict is made
    of.
    """

    name: str
    kind: Literal["mechanism", "magnitude"]
    statement: str
    condition: Condition
    value: str
    contrast: Literal["ratio", "difference", "treated"]
    above: float | None = None
    below: float | None = None
    published: float | None = None
    requires: str = ""
    secondary: bool = False


@dataclass(frozen=True)
class Pathology:
    """One published interaction: its factors, its profiles, and how a cell of it is run.

    ``treatment`` is the factor whose levels are each compared with the control, in which that
    factor is None. ``boot_factors`` are fixed for a whole boot. ``cell`` returns the agent's
    devices, file system, cgroup and work (a job or copies) for a condition; ``machine`` the virtual
    machine and the block's part of the agent's plan for a level of the boot factors. ``claims`` are
    what the report says, ``preregistered`` the conditions that p-values are corrected for.
    ``recording`` is what the agent records of a cell, ``from_trace`` the measures (by name, units
    in the names) that a recorded trace gives, ``from_counters`` those of a cell's result as the
    agent wrote it.
    """

    name: str
    title: str
    source: str
    notebook: str
    treatment: str
    # What the control is called in legends, axis ticks, captions and tables.
    control: str
    factors: Mapping[str, Factor]
    profiles: Mapping[str, Profile]
    boot_factors: tuple[str, ...]
    claims: tuple[Claim, ...]
    preregistered: tuple[Condition, ...]
    cell: Callable[[Condition, Profile, random.Random], dict[str, Any]]
    machine: Callable[[Condition], dict[str, Any]]
    describe: Callable[[Condition], dict[str, Any]]
    recording: Mapping[str, Any] = field(default_factory=dict)
    from_trace: Callable[[Trace], dict[str, float]] = field(default=lambda trace: {})
    from_counters: Callable[[Mapping[str, Any]], dict[str, float]] = field(
        default=lambda result: {}
    )


def _levels(pathology: Pathology, option: str, settings: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise UserError(f"{option} wants FACTOR=LEVEL[,LEVEL...], not {setting!r}")
        one_of("factor", name, pathology.factors)
        levels = [t.strip() for t in text.split(",")]
        if name == pathology.treatment:
            levels = [t for t in levels if t != "control"]
        parsed = tuple(dict.fromkeys(pathology.factors[name].parse(name, t) for t in levels))
        if not parsed:
            raise UserError(f"{option} {name} needs a level to compare with the control")
        found[name] = parsed
    return found


def override(
    pathology: Pathology,
    profile: Profile,
    settings: Sequence[str] = (),
    recorded: Sequence[str] = (),
) -> Profile:
    """Return a profile whose grids are replaced by the levels that the user set.

    `settings` are like ``weight=1000,3000``; factors that are not named keep the levels of the
    profile's first grid. `recorded`, of the same form, says which of the conditions are recorded
    (in every boot). The treatment's level ``control`` is always there and may be named.

    Errors: UserError for an unknown factor, a level out of range, or no treatment at all.
    """
    changed = profile
    if settings:
        grid = {**profile.grids[0], **_levels(pathology, "--set", settings)}
        changed = replace(changed, grids=(grid,))
    if recorded:
        levels = _levels(pathology, "--record", recorded)
        changed = replace(changed, recorded=levels, recorded_boots=profile.boots)
    return changed
