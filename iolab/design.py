# SPDX-License-Identifier: MIT
"""From factors to blocks: which cells are measured, in which order, beside which control."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from iolab.errors import UserError
from iolab.trace.trace import Trace

__all__ = [
    "Choice",
    "Claim",
    "Condition",
    "Factor",
    "Grid",
    "Number",
    "Pathology",
    "Profile",
    "blocks_of",
    "one_of",
    "override",
]

BLOCK_FORMAT = "iolab-block/1"

Condition = Mapping[str, int | str | None]
Grid = Mapping[str, tuple[int | str, ...]]


def one_of(what: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is among `known`.

    Errors: UserError that lists what is known and the nearest of it.
    """
    names = sorted(known)
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"unknown {what} {name!r}{hint} (known: {', '.join(names)})")


@dataclass(frozen=True)
class Number:
    """A factor of whole numbers from `low` to `high`."""

    low: int
    high: int

    def parse(self, name: str, text: str) -> int:
        """Return the level that `text` names. Errors: UserError with the range."""
        if re.fullmatch(r"\d{1,9}", text) and self.low <= int(text) <= self.high:
            return int(text)
        raise UserError(f"{name} must be {self.low}-{self.high}, not {text!r}")


@dataclass(frozen=True)
class Choice:
    """A factor of named levels."""

    levels: tuple[str, ...]

    def parse(self, name: str, text: str) -> str:
        """Return the level that `text` names. Errors: UserError that lists the levels."""
        return one_of(f"level of {name}", text, self.levels)


Factor = Number | Choice


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
    `condition` (and in its control). ``of`` says what is judged: the "ratio" treated/control, the
    "difference" treated minus control, or "treated" alone. It is reproduced where the whole
    interval lies above ``above``, or below ``below``; not reproduced where the whole interval lies
    on the other side; inconclusive else. ``needs`` is why this kind of machine cannot decide it:
    then there is no verdict here, whatever was measured. ``side`` claims are negative controls,
    cures and by-products: judged like others, but not what a pathology's verdict is made of.
    """

    name: str
    kind: Literal["mechanism", "magnitude"]
    statement: str
    condition: Condition
    value: str
    of: Literal["ratio", "difference", "treated"]
    above: float | None = None
    below: float | None = None
    published: float | None = None
    needs: str = ""
    side: bool = False


@dataclass(frozen=True)
class Pathology:
    """One published interaction: its factors, its profiles, and how a cell of it is run.

    ``treatment`` is the factor whose levels are each compared with the control, in which that
    factor is None. ``boot_factors`` are fixed for a whole boot. ``cell`` returns the agent's
    devices, file system, cgroup and work (a job or copies) for a condition; ``machine`` the virtual
    machine and the block's part of the agent's plan for a level of the boot factors. ``claims`` are
    what the report says, ``declared`` the conditions that p-values are corrected for.
    ``recording`` is what the agent records of a cell, ``mechanism`` the measures (by name, units in
    the names) that a recorded trace gives, ``measures`` those of a cell's result as the agent wrote
    it.
    """

    name: str
    title: str
    source: str
    notebook: str
    treatment: str
    factors: Mapping[str, Factor]
    profiles: Mapping[str, Profile]
    boot_factors: tuple[str, ...]
    claims: tuple[Claim, ...]
    declared: tuple[Condition, ...]
    cell: Callable[[Condition, Profile, random.Random], dict[str, Any]]
    machine: Callable[[Condition], dict[str, Any]]
    describe: Callable[[Condition], dict[str, Any]]
    recording: Mapping[str, Any] = field(default_factory=dict)
    mechanism: Callable[[Trace], dict[str, float]] = field(default=lambda trace: {})
    measures: Callable[[Mapping[str, Any]], dict[str, float]] = field(default=lambda result: {})


def _levels(pathology: Pathology, option: str, settings: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise UserError(f"{option} wants FACTOR=LEVEL[,LEVEL...], not {setting!r}")
        one_of("factor", name, pathology.factors)
        levels = [t.strip() for t in text.split(",")]
        if name == pathology.treatment:
            levels = [t for t in levels if t != "outside"]
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
    (in every boot). The control's own level, ``outside``, is always there and may be named.

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


def _conditions(pathology: Pathology, profile: Profile) -> dict[tuple[Any, ...], list[Condition]]:
    """Group the profile's distinct treated conditions by the level of the boot factors."""
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Condition]] = {}
    for grid in profile.grids:
        names = list(pathology.factors)
        for levels in itertools.product(*(grid[n] for n in names)):
            condition = dict(zip(names, levels, strict=True))
            boot = tuple(condition[n] for n in pathology.boot_factors)
            groups.setdefault(boot, {})[levels] = condition
    return {boot: list(found.values()) for boot, found in groups.items()}


@dataclass(frozen=True)
class _Pair:
    """Two cells that run one after the other; a recorded pair has an untraced one as its twin."""

    condition: Condition
    aa: bool = False
    twin: int | None = None


def _pairs(
    pathology: Pathology, profile: Profile, conditions: Iterable[Condition], boot: int
) -> list[_Pair]:
    """Return the pairs of a block: each treatment, an A/A pair for each control, the recorded."""
    treated = [_Pair(c) for c in conditions]
    controls = {
        tuple(sorted((k, str(v)) for k, v in p.condition.items() if k != pathology.treatment)): {
            **p.condition,
            pathology.treatment: None,
        }
        for p in treated
    }
    recorded = [
        _Pair(p.condition, twin=number)
        for number, p in enumerate(treated)
        if profile.records(p.condition, boot)
    ]
    return [*treated, *(_Pair(c, aa=True) for c in controls.values()), *recorded]


def _block(
    pathology: Pathology,
    profile: Profile,
    *,
    kernel: str,
    clock: str,
    boot: int,
    conditions: Sequence[Condition],
) -> dict[str, Any]:
    level = {n: conditions[0][n] for n in pathology.boot_factors}
    # The kernels share their seeds: boot 3 runs the same cells in the same order on each of them.
    name = "-".join([pathology.name, *(str(v) for v in level.values()), f"boot{boot}"])
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    # Reproducible on purpose: this is no secret, it is the design.
    chance = random.Random(seed)  # noqa: S311
    pairs = list(enumerate(_pairs(pathology, profile, conditions, boot)))
    chance.shuffle(pairs)
    cells: list[dict[str, Any]] = []
    plan_cells: list[dict[str, Any]] = []
    # What a cell and its twin share, by the number of the untraced pair and the role.
    made: dict[tuple[int, str], dict[str, Any]] = {}
    untraced: dict[tuple[int, str], str] = {}
    for position, (number, pair) in enumerate(pairs):
        control = {**pair.condition, pathology.treatment: None}
        sides = [("control", control), ("treatment", pair.condition)]
        if chance.random() < 0.5:
            sides.reverse()
        for role, chosen in sides:
            identity = f"c{len(cells):03d}"
            key = (number if pair.twin is None else pair.twin, role)
            if key not in made:
                made[key] = pathology.cell(chosen, profile, chance)
            plan_cell = {"id": identity, **made[key]}
            if pair.twin is None:
                untraced[key] = identity
            else:
                plan_cell["recording"] = dict(pathology.recording)
            cells.append(
                {
                    "id": identity,
                    "position": len(cells),
                    "pair": position,
                    "role": role,
                    "aa": pair.aa,
                    "recorded": pair.twin is not None,
                    "twin": key,
                    "condition": {**chosen, **pathology.describe(chosen)},
                }
            )
            plan_cells.append(plan_cell)
    for cell in cells:
        cell["twin"] = untraced[cell["twin"]] if cell["recorded"] else None
    machine = pathology.machine(level)
    return {
        "format": BLOCK_FORMAT,
        "pathology": pathology.name,
        "kernel": kernel,
        "clock": clock,
        "boot": boot,
        "seed": seed,
        "machine": machine["vm"],
        "cells": cells,
        "plan": {
            "format": "iolab-plan/1",
            "block": f"{name}-{kernel}",
            "cells": plan_cells,
            **machine["plan"],
        },
    }


def blocks_of(
    pathology: Pathology, profile: Profile, *, kernel: str, clock: str
) -> list[dict[str, Any]]:
    """Return the blocks of a pathology on one kernel, boot by boot.

    Each is a document of plain JSON: the agent's plan, and what each of its cells stands for. Every
    treated cell has its own control right before or after it, pairs and sides in random order, and
    each control condition has one A/A pair. A recorded pair has the jobs and seeds of its twin.
    """
    groups = _conditions(pathology, profile)
    return [
        _block(pathology, profile, kernel=kernel, clock=clock, boot=boot, conditions=conditions)
        for boot in range(profile.boots)
        for conditions in groups.values()
    ]
