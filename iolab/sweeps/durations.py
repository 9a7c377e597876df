# SPDX-License-Identifier: MIT
"""Durations of blocks: measured on this machine and in a store, a forecast, and their order.

The cache has a line for each block measured on this machine; only the newest are kept.
"""

from __future__ import annotations

import heapq
import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path
from statistics import median
from typing import Final

from iolab.blocks import Block
from iolab.store.raw import RawStore
from iolab.sweeps.pool import usable_cores
from iolab_base.errors import IolabError
from iolab_base.files import atomic_write, cache_dir, digest_of, locked

__all__ = [
    "BlockDuration",
    "Took",
    "assumed_block",
    "block_durations",
    "expected_s",
    "forecast",
    "in_order",
    "measured_here",
    "note_duration",
]

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
# What reading a damaged block raises.
_DAMAGED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_ASSUMED: Final = "assumed: no block was measured on this machine yet"


@dataclass(frozen=True)
class Took:
    """How long one block took, with ``beside`` blocks at the same time on ``cores`` cores."""

    # ``guessed_s`` is the estimate of `assumed_block`, ``beside`` counts the block itself, and
    # ``machine`` is a digest of the machine's name, processor and number of cores.

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
    def alone_s(self) -> float:
        """Seconds that it takes if every block has a core of its own."""
        return self.seconds / max(1.0, self.beside / max(1, self.cores))


def assumed_block(block: Block) -> float:
    """Return the seconds that a block may take, if no similar block was measured."""
    times = (int(getattr(cell.job, "runtime_ms", 0)) for cell in block.plan.cells)
    cells = (_CELL_S + _CELL_S_PER_JOB_S * time / 1e3 if time else _WRITES_S for time in times)
    return _BOOT_S + sum(cells)


def _machine() -> str:
    # A home on NFS is the cache of several machines.
    model = ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line for line in lines if line.startswith("model name")), "")
    except OSError:
        pass
    return digest_of([platform.node(), model, os.cpu_count()])[:16]


def _file() -> Path:
    return cache_dir("durations.jsonl")


def note_duration(block: Block, seconds: float, beside: float) -> None:
    """Record how long a block took on this machine, from the start of its program to its end."""
    # On average ``beside`` blocks ran at the same time, this one included. Does nothing if the
    # cache cannot be written.
    took = Took(
        pathology=block.pathology,
        kernel=block.kernel,
        clock=block.clock,
        cells=len(block.cells),
        guessed_s=assumed_block(block),
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
    """How long blocks take: until the last one ends, and in sum with a core for each."""

    seconds: float
    block_seconds: float
    basis: str
    known: int


@dataclass(frozen=True)
class _Source:
    """What a block has in common with those that its duration is estimated from."""

    words: str
    alike: Callable[[Block, Took], bool]
    # Whether to use seconds as they are, or as a ratio to the assumed ones.
    same: bool


def _same_work(block: Block, took: Took) -> bool:
    """Return whether blocks do the same: of one kind, as many cells, and jobs as long."""
    return (
        (took.pathology, took.kernel, took.clock) == (block.pathology, block.kernel, block.clock)
        and took.cells == len(block.cells)
        and abs(took.guessed_s - assumed_block(block)) < 0.01
    )


# The most similar ones first.
_SOURCES: Final = (
    _Source("such blocks on this machine", _same_work, same=True),
    _Source(
        "other blocks of the same pathology and kernel on this machine",
        lambda b, t: (t.pathology, t.kernel, t.clock) == (b.pathology, b.kernel, b.clock),
        same=False,
    ),
    _Source(
        "blocks of the same pathology on other kernels, on this machine",
        lambda b, t: (t.pathology, t.clock) == (b.pathology, b.clock),
        same=False,
    ),
    _Source(
        "blocks of other pathologies on this machine", lambda b, t: t.clock == b.clock, same=False
    ),
)


def forecast(
    blocks: Iterable[Block],
    jobs: int,
    *,
    history: Sequence[Took] | None = None,
    cores: int | None = None,
) -> Forecast:
    """Forecast how long blocks take that start in this order, ``jobs`` side by side."""
    cores = usable_cores() if cores is None else cores
    alone: list[float] = []
    used, counts = Counter[str](), dict[str, int]()
    known = measured_here() if history is None else history
    for seconds, words, count in _of_each(blocks, known):
        alone.append(seconds)
        used[words] += 1
        counts[words] = max(count, counts.get(words, 0))
    side_by_side = max(1, min(jobs, len(alone)))
    slower = max(1.0, side_by_side / cores)
    return Forecast(
        seconds=_last_end([seconds * slower for seconds in alone], side_by_side),
        block_seconds=sum(alone),
        basis=_basis(used, counts),
        known=len(alone) - used[_ASSUMED],
    )


def expected_s(blocks: Iterable[Block], history: Sequence[Took]) -> list[float]:
    """Return the seconds that each block takes with a core of its own."""
    return [seconds for seconds, _, _ in _of_each(blocks, history)]


def _of_each(blocks: Iterable[Block], known: Sequence[Took]) -> Iterator[tuple[float, str, int]]:
    """Yield the result of `_of_one` for each block."""
    memory: dict[tuple[str, str, str, int, float], tuple[float, str, int]] = {}
    for block in blocks:
        # Boots of one kernel are similar.
        kind = (block.pathology, block.kernel, block.clock, len(block.cells), assumed_block(block))
        if kind not in memory:
            memory[kind] = _of_one(block, known)
        yield memory[kind]


def _of_one(block: Block, history: Sequence[Took]) -> tuple[float, str, int]:
    """Return the seconds of one block, their source, and from how many blocks they are."""
    assumed = assumed_block(block)
    for source in _SOURCES:
        alike = [took for took in history if source.alike(block, took)][-_NEWEST:]
        if alike and source.same:
            return median(took.alone_s for took in alike), source.words, len(alike)
        if alike:
            ratio = median(took.alone_s / took.guessed_s for took in alike)
            return ratio * assumed, source.words, len(alike)
    return assumed, _ASSUMED, 0


def _last_end(seconds: Sequence[float], side_by_side: int) -> float:
    """Return when the last job ends, if each starts as soon as a place is free."""
    ends = [0.0] * side_by_side
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


def _basis(used: Counter[str], counts: dict[str, int]) -> str:
    whole = sum(used.values())
    parts = []
    for words, blocks in used.most_common():
        text = words if words == _ASSUMED else f"measured: {counts[words]} {words}"
        parts.append(text if blocks == whole else f"{blocks} blocks {text}")
    return "; ".join(parts)


def in_order(
    keys: Iterable[str], blocks: Mapping[str, Block], history: Sequence[Took]
) -> list[str]:
    """Return the keys of blocks in the order of measuring, the longest pathology's first."""
    # At the end cores wait for the last block, so the last ones should be short. Machines take
    # turns within a pathology: a machine is booted once and then restored, and two first blocks of
    # one machine side by side would leave a core idle.
    pathologies: dict[str, dict[object, list[str]]] = {}
    for key in keys:
        block = blocks[key]
        machine = block.kernel, block.machine, tuple(block.plan.boot_options)
        pathologies.setdefault(block.pathology, {}).setdefault(machine, []).append(key)

    def longest(machines: dict[object, list[str]]) -> float:
        return max(expected_s((blocks[k] for own in machines.values() for k in own), history))

    groups = sorted(pathologies.values(), key=longest, reverse=True)
    turns = (chain.from_iterable(zip_longest(*machines.values())) for machines in groups)
    return [key for key in chain.from_iterable(turns) if key is not None]


@dataclass(frozen=True)
class BlockDuration:
    """How long one block took: `wall_s` is from the start of its machine to its results."""

    # The target is "vm", "local" or "ssh". `runtime_ms` is the longest job in the machine's own
    # time, 0 where cells are numbers of writes.

    pathology: str
    clock: str
    target: str
    runtime_ms: int
    cells: int
    wall_s: float


def block_durations(root: Path) -> list[BlockDuration]:
    """Return the durations of all blocks in the store below `root` that are not damaged."""
    durations = []
    store = RawStore(root)
    for key in store.all_keys():
        try:
            block, target, run = (
                json.loads(store.content(key, f"{name}.json"))
                for name in ("block", "target", "run")
            )
            jobs = (cell.get("job") or {} for cell in block["plan"]["cells"])
            durations.append(
                BlockDuration(
                    pathology=str(block["pathology"]),
                    clock=str(block["clock"]),
                    target=str(target["target"]),
                    runtime_ms=max((int(job.get("runtime_ms", 0)) for job in jobs), default=0),
                    cells=len(block["cells"]),
                    wall_s=float(run["wall_s"]),
                )
            )
        except (IolabError, *_DAMAGED):
            continue
    return durations
