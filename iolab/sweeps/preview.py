# SPDX-License-Identifier: MIT
"""What a sweep would measure or has measured, without booting or fetching, and how long it takes.

The cache has a line for each block measured on this machine; only the newest are kept.
"""

from __future__ import annotations

import heapq
import json
import os
import platform
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from statistics import median
from typing import Any, Final

from fiojobs import Row
from icountvm.catalogue import CATALOGUE
from icountvm.kernels import cached_kernel, check_name
from icountvm.snapshots import FEWEST_KEPT
from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology.base import Pathology
from iolab.pathology.factors import Condition
from iolab.store.raw import RawStore
from iolab.sweeps.pool import usable_cores
from iolab.sweeps.request import (
    Request,
    check_request,
    chosen_pathologies,
    plan_sweep,
    requested_profile,
    sweep_label,
    why_no_control,
)
from iolab.targets.vm import boot_of
from iolab_agent.proc import text_of
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import atomic_write, cache_dir, digest_of, locked

# As 90 blocks of the profile study took on two cores of 2026, each with a core of its own: 13 s and
# 2.7 s for each cell with a job of 0.5 s, 2.5 s for each cell that is a number of writes.
_BOOT_S: Final = 13.0
_CELL_S: Final = 1.5
_CELL_S_PER_JOB_S: Final = 2.4
_WRITES_S: Final = 2.5
# Lines to keep, and the bytes above which the file is cut back to them.
_KEPT: Final = 2000
_MOST_BYTES: Final = 1 << 20
# Older blocks may be from a slower iolab or another disk.
_NEWEST: Final = 20
# Machines whose blocks are measured together: half of the snapshots that any disk keeps.
_TURNS: Final = FEWEST_KEPT // 2
_ASSUMED: Final = "assumed: no block was measured on this machine yet"
# What a block has in common with those that its duration is estimated from; the most alike first.
_ALIKE: Final = {
    "such blocks on this machine": ("pathology", "kernel", "clock", "cells", "guessed_s"),
    "other blocks of the same pathology and kernel on this machine": (
        *("pathology", "kernel", "clock"),
    ),
    "blocks of the same pathology on other kernels, on this machine": ("pathology", "clock"),
    "blocks of other pathologies on this machine": ("clock",),
}


@dataclass(frozen=True)
class Took:
    """How long one block took, with ``beside`` blocks at the same time on ``cores`` cores."""

    # ``guessed_s`` is the estimate if no similar block was measured, ``beside`` counts the block
    # itself, and ``machine`` is a digest of the machine's name, processor and number of cores.

    pathology: str
    kernel: str
    clock: str
    cells: int
    guessed_s: float
    seconds: float
    beside: float
    cores: int
    machine: str

    @property
    def slower(self) -> float:
        """How many times longer it took than assumed for a core of its own."""
        return self.seconds / max(1.0, self.beside / max(1, self.cores)) / self.guessed_s


def _kind(block: Block) -> dict[str, Any]:
    """Return what the duration of a block depends on: the first fields of `Took`."""
    times = (int(getattr(cell.job, "runtime_ms", 0)) for cell in block.plan.cells)
    cells = (_CELL_S + _CELL_S_PER_JOB_S * time / 1e3 if time else _WRITES_S for time in times)
    named = {name: getattr(block, name) for name in ("pathology", "kernel", "clock")}
    return {**named, "cells": len(block.cells), "guessed_s": _BOOT_S + sum(cells)}


def _machine() -> str:
    # A home on NFS is the cache of several machines.
    lines = (text_of(Path("/proc/cpuinfo")) or "").splitlines()
    model = next((line for line in lines if line.startswith("model name")), "")
    return digest_of([platform.node(), model, os.cpu_count()])[:16]


def _file() -> Path:
    return cache_dir("durations.jsonl")


def note_duration(block: Block, seconds: float, beside: float) -> None:
    """Record how long a block took on this machine, from the start of its program to its end."""
    # On average ``beside`` blocks ran at the same time, this one included. Does nothing if the
    # cache cannot be written.
    took = Took(
        **_kind(block),
        seconds=round(seconds, 2),
        beside=round(beside, 2),
        cores=usable_cores(),
        machine=_machine(),
    )
    try:
        path = _file()
        with locked(path.with_name(".durations.lock")):
            with path.open("a") as stream:
                stream.write(json.dumps(asdict(took)) + "\n")
            if path.stat().st_size > _MOST_BYTES:
                kept = path.read_text(errors="replace").splitlines()[-_KEPT:]
                atomic_write(path, "".join(f"{line}\n" for line in kept))
    except (IolabError, OSError):
        # A forecast is not a result: a failure here is ignored.
        return


def measured_here() -> list[Took]:
    """Return how long blocks took on this machine, oldest first; damaged lines are skipped."""
    machine, found = _machine(), []
    try:
        lines = _file().read_text(errors="replace").splitlines()
    except (IolabError, OSError):
        return []
    for line in lines:
        try:
            took = Took(**json.loads(line))
            numbers = (took.guessed_s, took.seconds, took.beside, float(took.cores))
            if took.machine == machine and all(0 < number < float("inf") for number in numbers):
                found.append(took)
        except (ValueError, TypeError):
            continue
    return found


@dataclass(frozen=True)
class Forecast:
    """When the last of some blocks ends, how long a cell takes on its own core, and the basis."""

    seconds: float
    seconds_per_cell: float
    basis: str


def forecast(
    blocks: Iterable[Block],
    jobs: int,
    *,
    history: Sequence[Took] | None = None,
    cores: int | None = None,
) -> Forecast:
    """Forecast how long blocks take that start in this order, ``jobs`` side by side."""
    cores = usable_cores() if cores is None else cores
    kinds = [_kind(block) for block in blocks]
    alone = _expected(kinds, measured_here() if history is None else history)
    seconds = [one for one, _, _ in alone]
    side_by_side = max(1, min(jobs, len(alone)))
    slower = max(1.0, side_by_side / cores)
    return Forecast(
        seconds=_last_end([one * slower for one in seconds], side_by_side),
        seconds_per_cell=sum(seconds) / max(1, sum(kind["cells"] for kind in kinds)),
        basis=_basis([(words, count) for _, words, count in alone]),
    )


def _expected(
    kinds: Iterable[Mapping[str, Any]], history: Sequence[Took]
) -> list[tuple[float, str, int]]:
    """Return the seconds of each kind of block, their source, and from how many blocks they are."""
    # Boots of one kernel are similar.
    known: dict[tuple[Any, ...], tuple[float, str, int]] = {}
    found = []
    for kind in kinds:
        key = tuple(kind.values())
        if key not in known:
            known[key] = _expected_of(kind, history)
        found.append(known[key])
    return found


def _expected_of(kind: Mapping[str, Any], history: Sequence[Took]) -> tuple[float, str, int]:
    for words, names in _ALIKE.items():
        alike = [took for took in history if all(getattr(took, n) == kind[n] for n in names)]
        if newest := alike[-_NEWEST:]:
            return median(took.slower for took in newest) * kind["guessed_s"], words, len(newest)
    return kind["guessed_s"], _ASSUMED, 0


def _last_end(seconds: Sequence[float], side_by_side: int) -> float:
    """Return when the last job ends, if each starts as soon as a place is free."""
    ends = [0.0] * side_by_side
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


def _basis(sources: Sequence[tuple[str, int]]) -> str:
    """Return what blocks' durations are from, in words, by (source, measured blocks) of each."""
    # The largest number of each source comes last.
    most = dict(sorted(sources))
    parts = []
    for words, blocks in Counter(words for words, _ in sources).most_common():
        text = words if words == _ASSUMED else f"measured: {most[words]} {words}"
        parts.append(text if blocks == len(sources) else f"{blocks} blocks {text}")
    return "; ".join(parts)


def in_order(
    keys: Iterable[str], blocks: Mapping[str, Block], history: Sequence[Took]
) -> dict[str, float]:
    """Return blocks' seconds on a core of their own by key, in the order of measuring them."""
    # The longest first, by machine.
    # At the end cores wait for the last block, so the last ones should be short. A machine boots
    # once and is then restored, and the cache keeps the snapshots used last: all blocks of a
    # machine, of whichever report, are measured while it is there. Machines take turns, because two
    # first blocks of one side by side would leave a core idle.
    wanted = list(keys)
    alone = _expected((_kind(blocks[key]) for key in wanted), history)
    seconds = {key: one for key, (one, _, _) in zip(wanted, alone, strict=True)}
    machines: dict[Hashable, list[str]] = {}
    for key in sorted(wanted, key=seconds.__getitem__, reverse=True):
        block = blocks[key]
        machine = block.kernel, block.machine, boot_of(block.plan)
        machines.setdefault(machine, []).append(key)
    groups = list(machines.values())
    together = (groups[first : first + _TURNS] for first in range(0, len(groups), _TURNS))
    turns = (chain.from_iterable(zip_longest(*some)) for some in together)
    return {key: seconds[key] for key in chain.from_iterable(turns) if key is not None}


@dataclass(frozen=True)
class KernelPreview:
    """What would be measured on one kernel, "cached" or "to fetch"."""

    kernel: str
    state: str
    alternatives: tuple[str, ...]
    blocks: int
    cells: int
    recorded: int


@dataclass(frozen=True)
class PathologyPreview:
    """What a sweep would measure for one pathology."""

    pathology: str
    title: str
    treatment: str
    folder: str
    factors: dict[str, list[int | str | None]]
    kernels: list[KernelPreview]
    unavailable: dict[str, str]
    undecided: dict[str, str]
    duration: Forecast
    # What became of a fio job of the user's own.
    translation: tuple[Row, ...] = ()


def preview_sweep(request: Request) -> list[PathologyPreview]:
    """Return what a sweep in virtual machines would measure for each pathology."""
    # Reads only the cache and the store; the first alternative kernel counts, reachable or not.
    check_request(request)
    if request.target != "vm":
        raise UserError(
            "--dry-run needs virtual machines: iolab must ask a real one what it can run"
        )
    RawStore(request.root).check_format()
    return [_preview(request, pathology) for pathology in chosen_pathologies(request)]


def _preview(request: Request, pathology: Pathology) -> PathologyPreview:
    profile = requested_profile(request, pathology)
    kernels: list[KernelPreview] = []
    unavailable: dict[str, str] = {}
    conditions: list[Condition] = []
    planned: list[Block] = []
    for alternatives in [(k,) for k in request.kernels] or profile.kernels:
        wanted = [k for k in alternatives if k not in {known.kernel for known in kernels}]
        reasons = {k: why_no_control(profile, k) or _obstacle(k) for k in wanted}
        unavailable |= {kernel: reason for kernel, reason in reasons.items() if reason}
        # A sweep tries them in the order of the profile.
        possible = [kernel for kernel in wanted if not reasons[kernel]]
        if not possible:
            continue
        kernel, *others = possible
        blocks = blocks_of(
            pathology, profile, kernel=kernel, clock=request.clock, seed=request.seed
        )
        planned += blocks
        cells = [cell for block in blocks for cell in block.cells]
        conditions += [cell.condition for cell in cells]
        kernels.append(
            KernelPreview(
                kernel=kernel,
                state="to fetch" if cached_kernel(kernel) is None else "cached",
                alternatives=tuple(others),
                blocks=len(blocks),
                cells=len(cells),
                recorded=sum(cell.recorded for cell in cells),
            )
        )
    return PathologyPreview(
        pathology=pathology.name,
        title=pathology.title,
        treatment=pathology.treatment,
        folder=str(request.root / pathology.name / sweep_label(request)),
        factors={name: _levels(conditions, name) for name in pathology.factors},
        kernels=kernels,
        unavailable=unavailable,
        undecided={c.name: c.requires for c in pathology.claims if c.requires},
        duration=forecast(planned, request.jobs),
        translation=pathology.translation,
    )


def _obstacle(kernel: str) -> str:
    """Return why a kernel cannot run here, as far as this machine alone can know, or ""."""
    if platform.machine() != "x86_64":
        return f"the virtual machines need an x86-64 host, this is {platform.machine()}"
    try:
        check_name(kernel)
    except UserError as error:
        return str(error)
    damaged = kernel not in CATALOGUE and cached_kernel(kernel) is None
    return "damaged in the cache: add it again" if damaged else ""


def _levels(conditions: Sequence[Condition], name: str) -> list[int | str | None]:
    levels = {condition[name] for condition in conditions}
    return sorted(levels, key=lambda v: (v is not None, isinstance(v, str), v))


@dataclass(frozen=True)
class SweepStatus:
    """What is measured of one pathology on one kernel and the seconds left, or why nothing is."""

    pathology: str
    kernel: str
    blocks: int
    blocks_measured: int
    cells: int
    cells_measured: int
    seconds_left: float
    reason: str = ""


def sweep_status(request: Request) -> list[SweepStatus]:
    """Return what a sweep in virtual machines has measured, for each pathology and kernel."""
    # Counts blocks of this agent, kernel, image and QEMU; `iolab fsck` checks their integrity.
    # Fetches and boots no kernel.
    rows = []
    for preview in preview_sweep(request):
        rows += [_status(request, preview, kernel) for kernel in preview.kernels]
        rows += [
            SweepStatus(preview.pathology, kernel, 0, 0, 0, 0, 0.0, reason)
            for kernel, reason in preview.unavailable.items()
        ]
    return rows


def _status(request: Request, preview: PathologyPreview, kernel: KernelPreview) -> SweepStatus:
    """Return what is measured of a pathology on one kernel."""
    measured: list[int] = []
    reason = ""
    if kernel.state == "cached":
        one = replace(request, pathologies=[preview.pathology], kernels=[kernel.kernel])
        try:
            (plan,) = plan_sweep(one)
        except CannotRunError as error:
            reason = str(error)
        else:
            store = RawStore(request.root)
            measured = [len(b.cells) for key, b in plan.blocks.items() if store.has(key)]
    cells_left = 0 if reason else kernel.cells - sum(measured)
    side_by_side = max(1, min(request.jobs, kernel.blocks - len(measured)))
    return SweepStatus(
        pathology=preview.pathology,
        kernel=kernel.kernel,
        blocks=kernel.blocks,
        blocks_measured=len(measured),
        cells=kernel.cells,
        cells_measured=sum(measured),
        seconds_left=preview.duration.seconds_per_cell * cells_left / side_by_side,
        reason=reason,
    )
