# SPDX-License-Identifier: MIT
"""From factors to blocks: which cells are measured, in which order, next to which control."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from iolab.blocks import Block, PlannedCell, encode_plan
from iolab.pathology.base import TREATED_KERNEL, Pathology, Profile
from iolab.pathology.factors import (
    INTERVENTION,
    NO_INTERVENTION,
    Condition,
    boot_part,
    conditions_of,
    intervention,
)
from iolab.pathology.registry import cell_of, machine_of
from iolab_agent.plan import Cell, Plan
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError
from iolab_base.files import canonical_json

_Role = Literal["control", "treatment"]


def _conditions(
    pathology: Pathology, profile: Profile, boot: int
) -> dict[tuple[Any, ...], list[Condition]]:
    """Group a boot's distinct treated conditions by the level of the boot factors."""
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Condition]] = {}
    for grid in profile.grids_of(boot):
        for condition in conditions_of(grid, pathology.factors):
            control: Condition = {**condition, pathology.treatment: None}
            for one in (control, condition) if pathology.apart else (condition,):
                fixed = (*(one[n] for n in pathology.boot_factors), boot_part(one[INTERVENTION]))
                groups.setdefault(fixed, {})[tuple(one.values())] = one
    return {fixed: list(found.values()) for fixed, found in groups.items()}


@dataclass(frozen=True)
class _Pair:
    """Two cells that run one after the other; a recorded pair has an untraced one as its twin."""

    condition: Condition
    aa: bool = False
    twin: int | None = None
    # Otherwise it is one cell alone.
    alone: _Role | None = None


def _pairs(
    pathology: Pathology, profile: Profile, conditions: Iterable[Condition], boot: int
) -> list[_Pair]:
    """Return the pairs of a block: each treatment, an A/A pair for each control, the recorded."""
    if pathology.apart:
        return _apart(pathology, profile, conditions, boot)
    controlled = profile.controls(boot)
    alone: _Role | None = None if controlled else "treatment"
    treated = [_Pair(c, alone=alone) for c in conditions]
    controls = {
        tuple(sorted((k, str(v)) for k, v in p.condition.items() if k != pathology.treatment)): {
            **p.condition,
            pathology.treatment: None,
        }
        for p in treated
    }
    recorded = [
        _Pair(
            p.condition, twin=number, alone=None if profile.records_controls(boot) else "treatment"
        )
        for number, p in enumerate(treated)
        if profile.records(p.condition, boot)
    ]
    # A changed cell needs no A/A pair if the block has one without the change.
    plain = [c for c in controls.values() if c[INTERVENTION] == NO_INTERVENTION]
    repeated = (plain or controls.values()) if controlled and profile.repeats_control else ()
    return [*treated, *(_Pair(c, aa=True) for c in repeated), *recorded]


def _apart(
    pathology: Pathology, profile: Profile, conditions: Iterable[Condition], boot: int
) -> list[_Pair]:
    """Return a block's cells where the treatment is fixed for a boot; only A/A pairs are pairs."""
    treatment = pathology.treatment
    each = [_Pair(c, alone="control" if c[treatment] is None else "treatment") for c in conditions]
    controls = [pair.condition for pair in each if pair.alone == "control"]
    again = [_Pair(c, aa=True) for c in controls if profile.repeats_control]
    # A control is recorded if a treated cell with its other levels is.
    any_level = next(iter(profile.recorded.get(treatment, ())), None)
    recorded = [
        replace(pair, twin=number)
        for number, pair in enumerate(each)
        if profile.records(
            {**pair.condition, treatment: pair.condition[treatment] or any_level}, boot
        )
    ]
    return [*each, *again, *recorded]


def _cells(
    pathology: Pathology,
    profile: Profile,
    pairs: Sequence[_Pair],
    rng: random.Random,
    control_first: Callable[[_Pair], bool],
) -> tuple[list[PlannedCell], list[Cell]]:
    """Return, in order, the planned cells of a block and the cells that the agent runs."""
    order = list(enumerate(pairs))
    rng.shuffle(order)
    cells: list[PlannedCell] = []
    work: list[Cell] = []
    # Shared by a cell, its twin, and cells that differ only in an intervention, so that only the
    # intervention can make a difference.
    shared: dict[str, Cell] = {}
    untraced: dict[tuple[int, str], str] = {}
    twins: dict[str, tuple[int, str]] = {}
    for position, (number, pair) in enumerate(order):
        for role, condition in _sides(pair, pathology.treatment, control_first(pair)):
            if pair.alone not in {None, role}:
                continue
            identity = f"c{len(cells):03d}"
            key = (number if pair.twin is None else pair.twin, role)
            rest = {name: v for name, v in pair.condition.items() if name != INTERVENTION}
            same = canonical_json([rest, role, pair.aa])
            if same not in shared:
                shared[same] = cell_of(pathology, condition, profile, rng)
            cell = intervention(condition[INTERVENTION]).of(shared[same])
            if pair.twin is None:
                untraced[key] = identity
            else:
                twins[identity] = key
            recording = None if pair.twin is None else pathology.recording
            work.append(replace(cell, id=identity, recording=recording))
            cells.append(
                PlannedCell(
                    id=identity,
                    position=len(cells),
                    pair=position,
                    role=role,
                    aa=pair.aa,
                    recorded=pair.twin is not None,
                    twin=None,
                    condition=condition,
                )
            )
    # A twin may be measured after the recorded cell, so its name is known only now.
    return [replace(c, twin=untraced[twins[c.id]]) if c.recorded else c for c in cells], work


def _block(
    pathology: Pathology,
    profile: Profile,
    *,
    kernel: str,
    clock: str,
    boot: int,
    conditions: Sequence[Condition],
    seed: int,
) -> Block:
    levels = {n: conditions[0][n] for n in pathology.boot_factors}
    # The kernels share their seeds: boot 3 runs the same cells in the same order on each of them.
    words = [pathology.name, *map(_word, levels.values()), f"seed{seed}" if seed else ""]
    run = "-".join(filter(None, words))
    name = f"{run}-boot{boot}"
    drawn = _number(name)
    # Reproducible on purpose: this is the design, not a secret.
    rng = random.Random(drawn)  # noqa: S311
    pairs = _pairs(pathology, profile, conditions, boot)
    cells, work = _cells(pathology, profile, pairs, rng, partial(_control_first, run, boot))
    changed = boot_part(conditions[0][INTERVENTION])
    whole_boot = intervention(changed or NO_INTERVENTION)
    machine = machine_of(pathology, levels).under(whole_boot)
    kernel = str(levels.get(TREATED_KERNEL) or kernel)
    slug = "".join(filter(str.isalnum, changed))
    # A name has 64 characters at most.
    slug = slug[: max(0, min(20, 62 - len(name) - len(kernel)))]
    plan = Plan(
        block="-".join(word for word in (name, slug, kernel) if word),
        cpu=machine.cpu,
        cells=work,
        modules=list(machine.modules),
        coalesced_timers=machine.coalesced_timers,
        boot_options=list(whole_boot.boot_options),
        # Reports and kernels share what a boot of the machine is drawn from.
        draw=_number(f"seed{seed}-boot{boot}") % 2**31,
    )
    return Block(
        pathology=pathology.name,
        kernel=kernel,
        clock=clock,
        boot=boot,
        seed=drawn,
        machine=machine,
        cells=tuple(cells),
        plan=plan,
    )


def _word(level: object) -> str:
    """Return a level of a boot factor as a part of a block's name."""
    return "control" if level is None else re.sub(r"[^A-Za-z0-9_.-]", "", str(level))[:20]


def _check_plan(block: Block) -> None:
    """Check a plan as the agent does, so that a wrong cell raises UserError before a boot."""
    try:
        parse_plan(encode_plan(block.plan))
    except UserError as error:
        raise UserError(f"pathology {block.pathology}: {error}") from error


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def _control_first(run: str, boot: int, pair: _Pair) -> bool:
    """Draw which cell of a pair comes first in boots 0, 2, 4; the next boot has the other order."""
    # A recorded pair has the order of its twin.
    drawn = _number(f"{run}-{boot // 2}-{canonical_json([pair.condition, pair.aa])}") % 2
    return drawn == boot % 2


def _sides(pair: _Pair, treatment: str, control_first: bool) -> list[tuple[_Role, Condition]]:
    """Return the two cells of a pair in their order."""
    control = {**pair.condition, treatment: None}
    sides: list[tuple[_Role, Condition]] = [("control", control), ("treatment", pair.condition)]
    return sides if control_first else sides[::-1]


def blocks_of(
    pathology: Pathology, profile: Profile, *, kernel: str, clock: str, seed: int = 0
) -> list[Block]:
    """Return the blocks of a pathology on one kernel: one per boot and level of boot factors."""
    # Every treated cell has its own control right before or after it. Pairs are in random order,
    # the order within a pair is drawn for one boot and reversed in the next. The kernel and the
    # clock change no order and no seed.
    make = partial(_block, pathology, profile, kernel=kernel, clock=clock, seed=seed)
    blocks = [
        make(boot=boot, conditions=conditions)
        for boot in range(profile.boots)
        for conditions in _conditions(pathology, profile, boot).values()
    ]
    # The first boot has every cell; the others draw other seeds and orders for them.
    for block in blocks:
        if block.boot == 0:
            _check_plan(block)
    return blocks
