# SPDX-License-Identifier: MIT
"""Choose random blocks of folders of results, among those that this machine can measure again."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from icountvm.image import ensure_image
from icountvm.kernels import known_kernels
from icountvm.toolbox import ensure_toolbox
from iolab import __version__
from iolab.blocks import BLOCK_FORMAT, Block
from iolab.store.dataset import Dataset, load, result_folders
from iolab.store.hashes import HASHES, BlockHashes, has_hashes, read_hashes
from iolab.targets.vm import own_identity, prepare
from iolab_base import foreign
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.names import one_of

__all__ = ["Choice", "ChosenBlock", "NothingComparedError", "choose_blocks", "read_sources"]

_log = logging.getLogger(__name__)

# The parts of a target's identity, in words. Where a kernel comes from does not change its bytes.
_PARTS: Final = {
    "agent": "agent",
    "guest_init": "first program of the guest",
    "machine": "virtual machine",
    "image": "guest image",
    "qemu": "QEMU",
    "kernel": "kernel",
    "start": "start of the machine",
}
_NOT_COMPARED: Final = "kernel_source"
_SHOWN: Final = 100
_DIGEST: Final = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")


class NothingComparedError(IolabError):
    """Nothing could be compared: the data lack hashes, or were measured by something else."""

    exit_code = 4


@dataclass(frozen=True)
class Source:
    """A folder of results that carries hashes: its tables, and its blocks."""

    folder: Path
    data: Dataset
    blocks: list[BlockHashes]


@dataclass(frozen=True, eq=False)
class ChosenBlock:
    """A block to measure again: its folder, tables and hashes.

    `identity` is what it will be measured on. `differs` has the parts in which that differs from
    the original target, each as (then, now); if it is empty, the bytes must be the same.
    """

    folder: Path
    data: Dataset
    hashes: BlockHashes
    identity: Mapping[str, Any]
    differs: Mapping[str, tuple[str, str]]

    @property
    def words(self) -> str:
        """The block's name for people."""
        return f"{self.hashes.pathology} {self.hashes.kernel} boot {self.hashes.boot}"


@dataclass(frozen=True)
class Choice:
    """Blocks to measure again, in the order drawn, and why blocks before them were left out."""

    chosen: list[ChosenBlock]
    left_out: list[str]


class _LeftOutError(Exception):
    """A block cannot be measured again here, or not with the same bytes: the reason."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def read_sources(folders: Iterable[Path]) -> list[Source]:
    """Return the folders of results that carry hashes, after checking everything these cover.

    `folders` hold results, or folders of results; those without hashes are logged.
    Raises UserError if a folder is empty or differs from its hashes, NothingComparedError without
    hashes.
    """
    found: list[Path] = []
    bare: list[Path] = []
    for folder in folders:
        held = [f for f in _held(folder) if f not in found]
        without = [f for f in held if not has_hashes(f)]
        found += held
        bare += [folder] if held and without == held else without
    with_hashes = [folder for folder in found if has_hashes(folder)]
    if bare:
        sentence = (
            f"{', '.join(map(str, bare))} {'carries' if len(bare) == 1 else 'carry'} no hashes "
            f"({HASHES}): measured before iolab wrote them, nothing can be compared"
        )
        if not with_hashes:
            raise NothingComparedError(sentence)
        _log.info("%s", sentence)
    sources = []
    for folder in with_hashes:
        data = load(folder)
        sources.append(Source(folder, data, read_hashes(folder, data)))
    return sources


def _held(folder: Path) -> list[Path]:
    """Return the folders of results at or below a folder; raise UserError if there are none."""
    if (folder / "cells.parquet").exists():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/cells.parquet")) or result_folders(folder)


@dataclass
class _Machines:
    """The virtual machines of this iolab: each is prepared once, or the obstacle is remembered."""

    fetch: bool
    known: dict[tuple[str, int, int], Mapping[str, Any] | CannotRunError] = field(
        default_factory=dict
    )

    def identity(self, block: Block) -> Mapping[str, Any]:
        """Return the identity of a block's target; without fetching, only its known parts.

        Raises _LeftOutError without the kernel, CannotRunError if no virtual machine can be made.
        """
        if not self.fetch:
            return own_identity()
        if not self.known:
            # The parts that every kernel needs come first: without them nothing can be measured.
            ensure_toolbox()
            ensure_image()
        shape = (block.kernel, block.machine.cpus, block.machine.memory_mib)
        if shape not in self.known:
            self.known[shape] = self._prepared(*shape)
        found = self.known[shape]
        if isinstance(found, CannotRunError):
            raise _LeftOutError(str(found), missing=True)
        return found

    def _prepared(
        self, kernel: str, cpus: int, memory_mib: int
    ) -> Mapping[str, Any] | CannotRunError:
        if kernel not in known_kernels():
            return CannotRunError(f"kernel {kernel} is not known here (`iolab kernels add`)")
        try:
            made = prepare(kernel, "virtual", cpus=cpus, memory_mib=memory_mib)
            return made.identity()
        except CannotRunError as error:
            return error


def choose_blocks(
    sources: Sequence[Source],
    number: int,
    seed: int,
    *,
    kernels: Sequence[str] = (),
    anyway: bool = False,
    fetch: bool = True,
) -> Choice:
    """Draw up to `number` blocks at random, among those that can give the same bytes again.

    Every block is equally likely. `anyway` also takes blocks measured on something else. Without
    `fetch`, only iolab's own parts of the target are compared. Raises UserError if a kernel has no
    block, CannotRunError if nothing can run here, NothingComparedError if every target differs.
    """
    for kernel in kernels:
        one_of("kernel", kernel, {b.kernel for source in sources for b in source.blocks})
    drawn = [(s, b) for s in sources for b in s.blocks if not kernels or b.kernel in kernels]
    # Reproducible on purpose: the same seed draws the same blocks.
    random.Random(seed).shuffle(drawn)  # noqa: S311
    machines = _Machines(fetch)
    chosen: list[ChosenBlock] = []
    left_out: dict[str, list[BlockHashes]] = {}
    missing = True
    for source, hashes in drawn:
        if len(chosen) == number:
            break
        try:
            chosen.append(_chosen(source, hashes, machines, anyway=anyway))
        except _LeftOutError as error:
            left_out.setdefault(str(error), []).append(hashes)
            missing = missing and error.missing
    sentences = [f"{_names(blocks)}: {reason}" for reason, blocks in left_out.items()]
    if not chosen:
        kind = CannotRunError if missing else NothingComparedError
        raise kind("; ".join(sentences) or "the folders hold no blocks")
    return Choice(chosen, sentences)


def _names(blocks: Iterable[BlockHashes]) -> str:
    """Name the pathologies and kernels of some blocks."""
    kernels: dict[str, dict[str, None]] = {}
    for block in blocks:
        kernels.setdefault(block.pathology, {})[block.kernel] = None
    return "; ".join(f"{name} on {', '.join(sorted(of))}" for name, of in sorted(kernels.items()))


def _chosen(
    source: Source, hashes: BlockHashes, machines: _Machines, *, anyway: bool
) -> ChosenBlock:
    virtual = hashes.target["target"] == "vm" and "target" not in hashes.block
    if not virtual or hashes.block["clock"] != "virtual":
        raise _LeftOutError("not measured in virtual time, where alone bytes come out again")
    # Before anything is fetched: most often it is the agent.
    differs = _differences(hashes.target, own_identity())
    if differs and not anyway:
        raise _LeftOutError(_other(hashes, differs))
    if (found := hashes.block["format"]) != BLOCK_FORMAT:
        raise _LeftOutError(
            f"its block's format is {found!r:.80}, this iolab reads {BLOCK_FORMAT!r}"
        )
    identity = machines.identity(Block.parse(hashes.block))
    differs = _differences(hashes.target, identity)
    if differs and not anyway:
        raise _LeftOutError(_other(hashes, differs))
    return ChosenBlock(source.folder, source.data, hashes, identity, differs)


def _differences(stored: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the parts of an identity that differ, among those known here."""
    parts = [*_PARTS, *(name for name in here if name not in _PARTS)]
    pairs = {part: (stored.get(part), here[part]) for part in parts if part in here}
    return {
        part: (_shown(part, stored), _shown(part, here))
        for part, (one, other) in pairs.items()
        if one != other and part != _NOT_COMPARED
    }


def _shown(part: str, identity: Mapping[str, Any]) -> str:
    words = _DIGEST.sub(r"\1", str(identity.get(part, "none")))
    source = identity.get(_NOT_COMPARED)
    # Untrusted text that becomes part of a sentence.
    return foreign.line(f"{source}, {words}" if part == "kernel" and source else words, _SHOWN)


def _other(hashes: BlockHashes, differs: Mapping[str, tuple[str, str]]) -> str:
    """Return a sentence on how a block's target differs from the one here."""
    words = [f"another {_PARTS.get(p, p)} ({a}; here {b})" for p, (a, b) in differs.items()]
    by = f" by iolab {hashes.iolab} (this is {__version__})" * (hashes.iolab != __version__)
    return (
        f"measured{by} with {' and '.join(words)}, so the same bytes cannot come out; --anyway "
        "measures, and says how far the values agree"
    )
