# SPDX-License-Identifier: MIT
"""The order in which blocks are measured: long ones first, neighbours on different machines.

A virtual machine is booted once and then restored for each of its blocks. Whoever needs it while it
boots waits, so that two first blocks of one machine, side by side, leave a core idle. At the end
each core waits for the last block of another: the shorter the last ones are, the less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest

from iolab.blocks import Block
from iolab.sweeps.forecast import expected_s
from iolab.sweeps.history import Took

__all__ = ["in_turns", "longest_first"]


def in_turns(keys: Iterable[str], blocks: Mapping[str, Block]) -> list[str]:
    """Return the keys of blocks in turns of their machines: the first of each, then the second.

    Parameters
    ----------
    keys : iterable of str
        The keys, those of one machine in the order in which they are measured.
    blocks : mapping of str to Block
        The blocks by their keys.
    """
    machines: dict[object, list[str]] = {}
    for key in keys:
        block = blocks[key]
        machine = block.kernel, block.machine, tuple(block.plan.boot_options)
        machines.setdefault(machine, []).append(key)
    turns = chain.from_iterable(zip_longest(*machines.values()))
    return [key for key in turns if key is not None]


def longest_first(groups: Sequence[Sequence[Block]], history: Sequence[Took]) -> list[int]:
    """Return the places of groups of blocks, that with the longest block first.

    Parameters
    ----------
    groups : sequence of sequence of Block
        The groups; those with blocks of one length keep their order.
    history : sequence of Took
        What was measured, the oldest first.
    """
    longest = [max(expected_s(blocks, history), default=0.0) for blocks in groups]
    return sorted(range(len(groups)), key=lambda place: -longest[place])
