# SPDX-License-Identifier: MIT
"""Inspect a folder of results: the blocks of its store, and the tables made from them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from iolab.store.dataset import UnknownPathologyError, load
from iolab.store.files import OWN, RAW
from iolab.store.hashes import has_hashes, read_hashes
from iolab.store.raw import RawStore, named_blocks
from iolab.store.soundness import BlockState, block_states
from iolab_base.errors import IolabError, UserError

__all__ = ["Inspection", "TablesState", "inspect_folder"]

# A sweep's stages are the deepest: PATHOLOGY/why-KERNEL/screening.
_DEPTH: Final = 3


@dataclass(frozen=True)
class TablesState:
    """Whether a folder of tables is sound, why not, and how to mend it.

    The state is "unknown" if the pathology, and so its columns, are not known here.
    """

    folder: Path
    state: Literal["sound", "damaged", "unknown"]
    reason: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Inspection:
    """The findings in a folder: blocks in the order of their keys, tables by their folders."""

    blocks: list[BlockState]
    tables: list[TablesState]

    @property
    def damaged_blocks(self) -> list[BlockState]:
        """The blocks that are damaged."""
        return [block for block in self.blocks if block.state == "damaged"]

    @property
    def damaged(self) -> int:
        """How many blocks and folders of tables are damaged."""
        tables = sum(one.state == "damaged" for one in self.tables)
        return len(self.damaged_blocks) + tables


def inspect_folder(root: Path) -> Inspection:
    """Inspect the store in a folder, and the tables in it and below, without writing.

    Raises UserError if there is neither store nor tables, or the store is of another format.
    """
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is no folder of results")
    store = RawStore(root)
    store.check_format()
    folders = _folders_of_tables(root)
    if not folders and not (root / RAW).is_dir():
        raise UserError(f"{root} holds neither a store (raw) nor tables (cells.parquet)")
    blocks = list(block_states(store))
    sound = {block.key for block in blocks if block.state in ("sound", "refused")}
    return Inspection(blocks, [_tables_state(folder, sound) for folder in folders])


def _folders_of_tables(root: Path) -> list[Path]:
    """Return the folders with tables: at most one of a pathology, of a sweep and of its stage."""
    found = []
    # Folders that vanish meanwhile, or are unreadable, contain no tables of ours.
    for name, below, files in os.walk(root):
        folder = Path(name)
        if "cells.parquet" in files:
            found.append(folder)
        depth = len(folder.relative_to(root).parts)
        own = OWN if depth == 0 else ()
        below[:] = [] if depth == _DEPTH else [one for one in below if one not in own]
    return sorted(found)


def _tables_state(folder: Path, sound: set[str]) -> TablesState:
    try:
        data = load(folder)
        if has_hashes(folder):
            read_hashes(folder, data)
    except UnknownPathologyError as error:
        return TablesState(folder, "unknown", str(error))
    except IolabError as error:
        return TablesState(folder, "damaged", str(error), _mend(folder, sound))
    return TablesState(folder, "sound")


def _mend(folder: Path, sound: set[str]) -> str:
    """Return how to mend damaged tables."""
    try:
        keys = named_blocks(folder)
    except (FileNotFoundError, UserError):
        return "sweep again: which blocks of the store it is made of is not known any more"
    lost = sum(key not in sound for key in keys)
    if not lost:
        return "sweep again: the store has its blocks, nothing is measured"
    return f"sweep again: {lost} of its {len(keys)} blocks are measured again"
