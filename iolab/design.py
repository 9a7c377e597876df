# SPDX-License-Identifier: MIT
"""From factors to blocks: which cells are measured, in which order, beside which control."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iolab.errors import UserError

__all__ = [
    "Choice",
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
    crossed in full; a pathology's treatment factor always has its control beside it.
    """

    kernels: tuple[tuple[str, ...], ...]
    boots: int
    grids: tuple[Grid, ...]
    ramp_ms: int
    runtime_ms: int


@dataclass(frozen=True)
class Pathology:
    """One published interaction: its factors, its profiles, and how a cell of it is run.

    ``treatment`` is the factor whose levels are each compared with the control, in which that
    factor is None. ``boot_factors`` are fixed for a whole boot. ``cell`` returns the agent's
    devices, file system, job and cpu.weight for a condition; ``machine`` the virtual machine and
    the block's part of the agent's plan for a level of the boot factors. ``claims`` are the
    conditions declared before measuring: the family that p-values are corrected for.
    """

    name: str
    title: str
    source: str
    notebook: str
    treatment: str
    factors: Mapping[str, Factor]
    profiles: Mapping[str, Profile]
    boot_factors: tuple[str, ...]
    claims: tuple[Condition, ...]
    cell: Callable[[Condition, Profile, random.Random], dict[str, Any]]
    machine: Callable[[Condition], dict[str, Any]]
    describe: Callable[[Condition], dict[str, Any]] = field(default=dict)


def override(pathology: Pathology, profile: Profile, settings: Sequence[str]) -> Profile:
    """Return a profile whose grids are replaced by the levels that the user set.

    `settings` are like ``weight=1000,3000``; factors that are not named keep the levels of the
    profile's first grid. The control's own level, ``outside``, is always there and may be named.

    Errors: UserError for an unknown factor, a level out of range, or no treatment at all.
    """
    grid = dict(profile.grids[0])
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise UserError(f"--set wants FACTOR=LEVEL[,LEVEL...], not {setting!r}")
        one_of("factor", name, pathology.factors)
        levels = [t.strip() for t in text.split(",")]
        if name == pathology.treatment:
            levels = [t for t in levels if t != "outside"]
        parsed = tuple(dict.fromkeys(pathology.factors[name].parse(name, t) for t in levels))
        if not parsed:
            raise UserError(f"--set {name} needs a level to compare with the control")
        grid[name] = parsed
    return Profile(profile.kernels, profile.boots, (grid,), profile.ramp_ms, profile.runtime_ms)


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


def _pairs(pathology: Pathology, conditions: Iterable[Condition]) -> list[tuple[Condition, bool]]:
    """Return the treated conditions, and for each control one A/A pair (True)."""
    treated = [(c, False) for c in conditions]
    controls = {
        tuple(sorted((k, str(v)) for k, v in c.items() if k != pathology.treatment)): {
            **c,
            pathology.treatment: None,
        }
        for c, _ in treated
    }
    return [*treated, *((c, True) for c in controls.values())]


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
    pairs = _pairs(pathology, conditions)
    chance.shuffle(pairs)
    cells: list[dict[str, Any]] = []
    plan_cells: list[dict[str, Any]] = []
    for number, (condition, is_aa) in enumerate(pairs):
        control = {**condition, pathology.treatment: None}
        sides = [("control", control), ("treatment", condition)]
        if chance.random() < 0.5:
            sides.reverse()
        for role, chosen in sides:
            identity = f"c{len(cells):03d}"
            cells.append(
                {
                    "id": identity,
                    "position": len(cells),
                    "pair": number,
                    "role": role,
                    "aa": is_aa,
                    "condition": {**chosen, **pathology.describe(chosen)},
                }
            )
            plan_cells.append({"id": identity, **pathology.cell(chosen, profile, chance)})
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
    each control condition has one A/A pair.
    """
    groups = _conditions(pathology, profile)
    return [
        _block(pathology, profile, kernel=kernel, clock=clock, boot=boot, conditions=conditions)
        for boot in range(profile.boots)
        for conditions in groups.values()
    ]
