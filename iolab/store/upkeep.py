# SPDX-License-Identifier: MIT
"""Upkeep of folders of results: inspect them, merge their stores, and find what can be removed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from iolab.store.dataset import UnknownPathologyError, load
from iolab.store.files import OWN, PARTITIONS, PLANS, PROFILES, RAW
from iolab.store.hashes import has_hashes, read_hashes
from iolab.store.profiles import ProfileStore, RefusedProfileError
from iolab.store.raw import RawStore, named_blocks
from iolab.store.soundness import BlockState, block_state, block_states
from iolab_base import foreign
from iolab_base.errors import IolabError, UserError
from iolab_base.files import remove

# A sweep's stages are the deepest: PATHOLOGY/why-KERNEL/screening.
_DEPTH: Final = 3


@dataclass(frozen=True)
class TablesState:
    """Whether tables are sound, why not, and the cure; "unknown" if their pathology is."""

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
        return len(self.damaged_blocks) + sum(one.state == "damaged" for one in self.tables)


def inspect_folder(root: Path) -> Inspection:
    """Inspect the store in a folder, and the tables in it and below, without writing."""
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is not a folder of results")
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
        return "sweep again: iolab no longer knows which blocks it needs"
    lost = sum(key not in sound for key in keys)
    if not lost:
        return "sweep again: the store has its blocks, so nothing is measured"
    return f"sweep again: {lost} of its {len(keys)} blocks are measured again"


@dataclass
class Merged:
    """The outcome for each block of a store that was merged into another."""

    # `taken` are new, `same` were there with the same bytes, and `different` with other bytes, with
    # the files that differ; the older block stays. In virtual time equal keys promise equal bytes;
    # on a host's clock a block that was measured twice differs. `left_out` are blocks that are
    # damaged, refused by their machine's checks, or of another format, and those that were taken
    # without their profile, because it is damaged.

    taken: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    different: dict[str, list[str]] = field(default_factory=dict)
    left_out: list[BlockState] = field(default_factory=list)


def merge_store(source: Path, root: Path) -> Merged:
    """Take the sound blocks of a store, with their profiles, into another; nothing is replaced."""
    # `source` is only read; hold `root` with `iolab.sweeps.measure.store_locked`. After an error,
    # blocks that were taken stay.
    if not (source / RAW).is_dir():
        raise UserError(f"{source} holds no store: it has no folder raw")
    if source.resolve() == root.resolve():
        raise UserError(f"{source} is the store to merge into: name another one")
    there, here = RawStore(source), RawStore(root)
    for store in (there, here):
        store.check_format()
    merged = Merged()
    for key in there.all_keys():
        _merge_block(there, here, key, merged)
    return merged


def _merge_block(there: RawStore, here: RawStore, key: str, merged: Merged) -> None:
    state = block_state(there, key, read=here.has(key))
    if state.state == "sound" and not here.has(key):
        state = _taken(there, here, key)
        merged.taken += [key] if state.state == "sound" else []
    elif state.state == "sound":
        differing = sorted(differing_files(there.digests(key), here.digests(key)))
        if differing:
            merged.different[key] = differing
            return
        merged.same.append(key)
    if state.state == "sound":
        try:
            ProfileStore(here.root).add(key, ProfileStore(there.root))
            return
        except RefusedProfileError as error:
            state = replace(state, state="damaged", reason=str(error))
    merged.left_out.append(state)


def _taken(there: RawStore, here: RawStore, key: str) -> BlockState:
    """Copy a sound block, keep the copy if it is sound too, and return its state."""
    try:
        with here.workspace() as work:
            copied = RawStore(work)
            try:
                copied.copy(key, there)
            except IolabError as error:
                return BlockState(key, "damaged", foreign.line(str(error)))
            state = block_state(copied, key)
            if state.state == "sound":
                here.adopt(key, copied)
            return state
    except OSError as error:
        raise IolabError(f"cannot copy block {key[:16]} to {here.root}: {error}") from error


def differing_files(one: dict[str, str], other: dict[str, str]) -> set[str]:
    """Return the files whose digests differ between two blocks."""
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


_UNKNOWN: Final = "the blocks of its tables are unknown; sweep again, or remove that folder"

Kind = Literal["plan", "set aside", "profile", "tables", "block"]


@dataclass(frozen=True)
class Garbage:
    """One file or folder that can be removed."""

    # A "plan" belongs to a measured block. A block was "set aside" because it is damaged or was
    # refused. A "profile" or "tables" belong to a block that is not in the store. A "block" is in
    # no sweep's tables.

    kind: Kind
    path: Path
    size_bytes: int


def find_garbage(root: Path, *, unused: bool = False) -> list[Garbage]:
    """Return the removable parts of a folder of results, by kind and path."""
    # `unused` includes blocks that no ``blocks.json`` below `root` names, such as those of an
    # interrupted sweep or an older agent.
    store = RawStore(root)
    store.check_format()
    measured = set(store.all_keys())
    found: list[tuple[Kind, Path]] = [
        ("plan", path) for path in _held(root / PLANS) if path.name.partition(".")[0] in measured
    ]
    found += [("set aside", path) for path in _held(store.aside)]
    dropped = measured - _needed(root) if unused else set()
    for path in _held(root / PROFILES):
        if path.name not in measured or path.name in dropped:
            found.append(("profile", path))
    for path in _held(root / PARTITIONS, "[0-9a-f]*"):
        key = path.name.partition(".")[0]
        if key not in measured or key in dropped:
            found.append(("tables", path))
    found += [("block", store.folder(key)) for key in sorted(dropped)]
    return [Garbage(kind, path, _size(path)) for kind, path in found]


def remove_garbage(garbage: list[Garbage]) -> None:
    """Remove files and folders; stop with IolabError at the first that cannot be removed."""
    for one in garbage:
        try:
            remove(one.path)
        except OSError as error:
            raise IolabError(f"cannot remove {one.path}: {error.strerror}") from error
        except RecursionError as error:
            raise IolabError(f"cannot remove {one.path}: its folders are too deep") from error


def _held(folder: Path, names: str = "*") -> list[Path]:
    """Return the contents of a folder of the store, by name; [] if it is a link."""
    return [] if folder.is_symlink() else sorted(folder.glob(names))


def _needed(root: Path) -> set[str]:
    """Return the keys that the sweeps below a folder name."""
    needed: set[str] = set()
    try:
        for name, below, files in os.walk(root):
            folder = Path(name)
            if folder == root:
                below[:] = [one for one in below if one not in OWN]
            for place in (folder / one for one in below):
                # Tables there may need blocks, and may be anybody's.
                if place.is_symlink() and not place.resolve().is_relative_to(root.resolve()):
                    raise UserError(f"{place} is a link to another place")
            if "blocks.json" in files:
                needed.update(named_blocks(folder))
    except UserError as error:
        raise IolabError(f"{error}: {_UNKNOWN}") from error
    except RecursionError as error:
        raise IolabError(f"the folders below {root} are too deep: {_UNKNOWN}") from error
    return needed


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder, however deep."""
    size, left = 0, [path]
    while left:
        one = left.pop()
        # Files that vanish meanwhile, or whose names are too long, count as nothing.
        with suppress(OSError):
            status = one.lstat()
            if stat.S_ISDIR(status.st_mode):
                left += one.iterdir()
            else:
                size += status.st_size
    return size
