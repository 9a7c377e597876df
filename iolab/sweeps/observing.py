# SPDX-License-Identifier: MIT
"""Which cells of a sweep are observed, and whether they can be."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iolab.blocks import Block
from iolab.pathology import get_pathology
from iolab.pathology.expressions import parse_levels
from iolab.sweeps.observed import Observed, write_observed
from iolab.targets import Target
from iolab.targets.vm import VmTarget, prepare
from iolab_base.errors import CannotRunError

if TYPE_CHECKING:
    from guestprof.observation import Observation

__all__ = [
    "note_observed",
    "observation_of",
    "observed_cells",
    "prepare_observer",
]

_log = logging.getLogger(__name__)

_ALL = "all"
_NO_GUEST = "a real machine cannot be observed from outside"
_RECORD = "perf record -a -g -- sleep 30"


def observed_cells(block: Block, wanted: Sequence[str]) -> list[str]:
    """Return the ids of a block's cells that are observed: all, or both cells of some pairs.

    ``wanted`` has the pairs' levels, ``FACTOR=LEVEL[,LEVEL...]``, or is "all". Raises UserError for
    an unknown factor or a level out of range.
    """
    if _ALL in wanted:
        return [cell.id for cell in block.cells]
    if not wanted:
        return []
    levels = parse_levels(get_pathology(block.pathology), "--observe", wanted)
    pairs = {
        cell.pair
        for cell in block.cells
        if all(cell.condition[name] in chosen for name, chosen in levels.items())
    }
    return [cell.id for cell in block.cells if cell.pair in pairs]


def _no_guest(target: str) -> str:
    """Return why a real machine is not observed, and what to do there instead.

    perf does not run beside the measurement: it would interrupt what is measured.
    """
    command = _RECORD if target == "local" else f"ssh {target} {_RECORD}"
    if target == "local" and shutil.which("perf") is None:
        return f"{_NO_GUEST}: install perf (Debian's linux-perf) and profile a run that is not kept"
    return f"{_NO_GUEST}: profile a run that is not kept, with `{command}`"


def prepare_observer(
    blocks: Iterable[Block],
    wanted: Sequence[str],
    *,
    calls: Sequence[str] = (),
) -> list[str]:
    """Build what observes the machines of some blocks; return why some cannot be observed.

    Each reason is logged.
    """
    reasons = []
    seen = set()
    for block in blocks:
        machine = (block.kernel, block.clock, block.machine, block.target)
        cells = observed_cells(block, wanted)
        if not cells or machine in seen:
            continue
        seen.add(machine)
        try:
            if block.target is not None:
                raise CannotRunError(_no_guest(block.target))
            target = prepare(
                block.kernel,
                block.clock,
                cpus=block.machine.cpus,
                memory_mib=block.machine.memory_mib,
            )
            observation_of(target, block, cells, calls=calls)
        except CannotRunError as error:
            reasons.append(str(error))
            _log.info("not observed, but measured: %s", error)
    return reasons


def note_observed(
    plan: Path,
    block: Block,
    wanted: Sequence[str],
    calls: Sequence[str] = (),
    *,
    flat: bool = False,
) -> None:
    """Write the note on what is observed beside a block's file; the block is unchanged."""
    write_observed(plan, Observed(observed_cells(block, wanted), list(calls), flat))


def observation_of(
    target: Target,
    block: Block,
    cells: Iterable[str],
    *,
    calls: Sequence[str] = (),
    flat: bool = False,
) -> Observation | None:
    """Return the observation of these cells of a block; None without cells.

    Raises `CannotRunError` if the machine or kernel cannot be observed.
    """
    from guestprof.observation import ready_observer
    from iolab.targets.shipped import program_entries

    wanted = set(cells)
    positions = [n for n, cell in enumerate(block.cells) if cell.id in wanted]
    if not positions:
        return None
    if not isinstance(target, VmTarget):
        raise CannotRunError(_no_guest(block.target or ""))
    return ready_observer(
        target,
        cells=positions,
        files=program_entries(block.plan),
        events=calls,
        flat=flat,
    )
