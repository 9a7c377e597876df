# SPDX-License-Identifier: MIT
"""Which blocks of a plan the store keeps; what is no result there is set aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from iolab.blocks import Block
from iolab.errors import UserError
from iolab.store.raw import RawStore
from iolab.store.soundness import block_state

__all__ = ["missing_blocks"]


def missing_blocks(
    store: RawStore, blocks: Mapping[str, Block], log: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Return the blocks that have to be measured.

    A block that is damaged, or that the checks of its machine refused, is set aside first.

    Parameters
    ----------
    store : RawStore
        The store.
    blocks : mapping of str to Block
        The wanted blocks by their keys.
    log : callable
        Called with a line for each block that is set aside.

    Raises
    ------
    UserError
        If the store, or one of these blocks, is of another format.
    IolabError
        If a block cannot be set aside.
    """
    store.check_format()
    missing = []
    for key, planned in blocks.items():
        if store.has(key):
            state = block_state(store, key, planned, read=False)
            if state.state == "sound":
                continue
            if state.state == "other format":
                raise UserError(f"{store.folder(key)}: {state.reason}")
            if place := store.set_aside(key):
                word = f"{state.state} ({state.reason})"
                log(f"block {state.name} is {word}: set aside in {place}, and measured again")
        missing.append(key)
    return missing
