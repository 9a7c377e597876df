# SPDX-License-Identifier: MIT
"""Merge a store into another: blocks by their keys, each checked before it is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from iolab import foreign
from iolab.errors import IolabError, UserError
from iolab.store.profiles import ProfileStore, RefusedProfileError
from iolab.store.raw import RawStore
from iolab.store.soundness import BlockState, block_state

__all__ = ["Merged", "differing_files", "merge_store"]


@dataclass
class Merged:
    """What became of the blocks of a store that was merged into another.

    Parameters
    ----------
    taken, same : list of str
        Keys of the blocks that were taken, and of those that were there already with the same
        bytes.
    different : dict of str to list of str
        Blocks that were there with other bytes, and the files that differ. What was there first
        stays. In virtual time equal keys promise equal bytes; on a host's clock a block that was
        measured twice differs.
    left_out : list of BlockState
        Blocks that are damaged, refused by their machine's checks, or of another format; and those
        that were taken without a profile, because it is damaged.
    """

    taken: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    different: dict[str, list[str]] = field(default_factory=dict)
    left_out: list[BlockState] = field(default_factory=list)


def merge_store(
    source: Path, root: Path, on_block: Callable[[str], None] = lambda key: None
) -> Merged:
    """Take the sound blocks of a store, with their profiles, into another; nothing is replaced.

    Parameters
    ----------
    source : Path
        The folder whose ``raw`` has the blocks. It is only read.
    root : Path
        The folder that takes them; hold it with `iolab.sweeps.measuring.store_locked`.
    on_block : callable
        Called with the key of each block of `source` that is dealt with.

    Raises
    ------
    UserError
        If `source` holds no store, is `root` itself, or one of them is of another format.
    IolabError
        If `root` cannot be written. What was taken stays.
    """
    if not (source / "raw").is_dir():
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
    """Take a block that looks sound: what is kept is the copy, if that is sound. Return its state.

    Somebody may write to the other store.
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
    """Return the files that two blocks' digests do not agree in."""
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}
