# SPDX-License-Identifier: MIT
"""The order in which blocks are measured: neighbours begin on different machines.

A virtual machine is booted once and then restored for each of its blocks. Whoever needs it while it
boots waits, so that two first blocks of one machine, side by side, leave a core idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest

from iolab.blocks import Block

__all__ = ["in_turns"]


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
