# SPDX-License-Identifier: MIT
"""Forecast how long blocks take on this machine, from those that it measured before."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from iolab.blocks import Block
from iolab.sweeps.history import Took, assumed_block, measured_here
from iolab.sweeps.limits import usable_cores

__all__ = ["Forecast", "expected_s", "forecast"]

# Older blocks may be of a slower iolab, or of another disk.
_NEWEST: Final = 20
_ASSUMED: Final = "assumed: no block was measured on this machine yet"


@dataclass(frozen=True)
class Forecast:
    """How long some blocks take.

    Parameters
    ----------
    seconds : float
        Until the last one ends, some of them side by side.
    block_seconds : float
        The sum over the blocks, each with a core of its own.
    basis : str
        What it rests on, in words.
    known : int
        Blocks of which something like them was measured here.
    """

    seconds: float
    block_seconds: float
    basis: str
    known: int


@dataclass(frozen=True)
class _Source:
    """What a block has in common with those that tell how long it takes."""

    words: str
    alike: Callable[[Block, Took], bool]
    # Whether seconds are taken as they are, or as a ratio to what is assumed.
    same: bool


def _same_work(block: Block, took: Took) -> bool:
    """Tell whether blocks do the same: of one kind, as many cells, and jobs as long."""
    return (
        (took.pathology, took.kernel, took.clock) == (block.pathology, block.kernel, block.clock)
        and took.cells == len(block.cells)
        and abs(took.guessed_s - assumed_block(block)) < 0.01
    )


# From the most alike on.
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
    """Forecast how long some blocks take.

    Parameters
    ----------
    blocks : iterable of Block
        The blocks, in the order in which they start.
    jobs : int
        How many run side by side.
    history : sequence of Took, optional
        What was measured, the oldest first; by default on this machine.
    cores : int, optional
        Cores that they share; by default those that are usable here.
    """
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
    """Return the seconds that each block takes with a core of its own; parameters: `forecast`."""
    return [seconds for seconds, _, _ in _of_each(blocks, history)]


def _of_each(blocks: Iterable[Block], known: Sequence[Took]) -> Iterator[tuple[float, str, int]]:
    """Yield what `_of_one` says of each block."""
    memory: dict[tuple[str, str, str, int, float], tuple[float, str, int]] = {}
    for block in blocks:
        # Boots of one kernel are alike.
        kind = (block.pathology, block.kernel, block.clock, len(block.cells), assumed_block(block))
        if kind not in memory:
            memory[kind] = _of_one(block, known)
        yield memory[kind]


def _of_one(block: Block, history: Sequence[Took]) -> tuple[float, str, int]:
    """Return the seconds of one block, from what they are, and from how many."""
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
    """Return when the last of some jobs ends, each starting as soon as one before it ended."""
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
