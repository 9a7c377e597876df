# SPDX-License-Identifier: MIT
"""From factors to blocks: which cells are measured, in which order, beside which control."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from iolab.pathology.base import Condition, Pathology, Profile

__all__ = ["BLOCK_FORMAT", "blocks_of"]

BLOCK_FORMAT = "iolab-block/1"


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
    rng = random.Random(seed)  # noqa: S311
    pairs = list(enumerate(_pairs(pathology, profile, conditions, boot)))
    rng.shuffle(pairs)
    cells: list[dict[str, Any]] = []
    plan_cells: list[dict[str, Any]] = []
    # What a cell and its twin share, by the number of the untraced pair and the role.
    made: dict[tuple[int, str], dict[str, Any]] = {}
    untraced: dict[tuple[int, str], str] = {}
    for position, (number, pair) in enumerate(pairs):
        control = {**pair.condition, pathology.treatment: None}
        sides = [("control", control), ("treatment", pair.condition)]
        if rng.random() < 0.5:
            sides.reverse()
        for role, chosen in sides:
            identity = f"c{len(cells):03d}"
            key = (number if pair.twin is None else pair.twin, role)
            if key not in made:
                made[key] = pathology.cell(chosen, profile, rng)
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
