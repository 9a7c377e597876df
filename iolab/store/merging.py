# SPDX-License-Identifier: MIT
"""Merge a store into another: blocks by their keys, each checked before it is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from iolab.store.files import RAW
from iolab.store.profiles import ProfileStore, RefusedProfileError
from iolab.store.raw import RawStore
from iolab.store.soundness import BlockState, block_state
from iolab_base import foreign
from iolab_base.errors import IolabError, UserError

__all__ = ["Merged", "differing_files", "merge_store"]


@dataclass
class Merged:
    """The outcome for each block of a store that was merged into another.

    `taken` are new, `same` were there with the same bytes, and `different` with other bytes, with
    the files that differ; the older block stays. In virtual time equal keys promise equal bytes; on
    a host's clock a block that was measured twice differs. `left_out` are blocks that are damaged,
    refused by their machine's checks, or of another format, and those that were taken without their
    profile, because it is damaged.
    """

    taken: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    different: dict[str, list[str]] = field(default_factory=dict)
    left_out: list[BlockState] = field(default_factory=list)


def merge_store(
    source: Path, root: Path, on_block: Callable[[str], None] = lambda key: None
) -> Merged:
    """Take the sound blocks of a store, with their profiles, into another; nothing is replaced.

    `source` is only read; hold `root` with `iolab.sweeps.measuring.store_locked`. `on_block` gets
    the key of each finished block. After an error, blocks that were taken stay.
    """
    if not (source / RAW).is_dir():
        raise UserError(f"{source} holds no store: there is no folder raw in it")
    if source.resolve() == root.resolve():
        raise UserError(f"{source} is the store to merge into: name another one")
    there, here = RawStore(source), RawStore(root)
    for store in (there, here):
        store.check_format()
    merged = Merged()
    for key in there.all_keys():
        _merge_block(there, here, key, merged)
        on_block(key)
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
    """Copy a sound block, keep the copy if it is sound too, and return its state.

    Another process may write to the other store meanwhile.
    """
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
