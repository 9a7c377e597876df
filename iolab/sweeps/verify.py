# SPDX-License-Identifier: MIT
"""Verify folders of results: measure some of their blocks again, and compare with their hashes."""

from __future__ import annotations

import logging
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pandas as pd

from icountvm.image import ensure_image
from icountvm.kernels import known_kernels
from icountvm.toolbox import ensure_toolbox
from iolab import __version__
from iolab.blocks import BLOCK_FORMAT, Block
from iolab.stats.conditions import main_value
from iolab.store.counters import ADDED_COLUMNS
from iolab.store.dataset import Dataset, load, result_folders
from iolab.store.hashes import HASHES, BlockHashes, CellHashes, cell_hashes, has_hashes, read_hashes
from iolab.store.raw import RawStore, block_key
from iolab.store.tables import block_tables
from iolab.sweeps.measure import block_job
from iolab.sweeps.pool import BlockJob, Failure, LocalPlace, OnProgress, run_jobs_in
from iolab.sweeps.preview import forecast
from iolab.targets.vm import own_identity, prepare
from iolab_base import foreign
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.files import cache_dir, scratch_dir
from iolab_base.names import one_of

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
# The name of the latency histogram among the values of a cell.
LATENCIES: Final = "latency histogram"
# Sums of floats may differ in the last digits between two releases of NumPy.
_TOLERANCE: Final = 1e-9


_Prepared = Callable[[str, int, int], Mapping[str, Any] | CannotRunError]


class NothingComparedError(IolabError):
    """Nothing could be compared: the data lack hashes, or were measured by something else."""

    exit_code = 4


@dataclass(frozen=True)
class HashedFolder:
    """A folder of results that carries hashes: its tables, and its blocks."""

    folder: Path
    data: Dataset
    blocks: list[BlockHashes]


@dataclass(frozen=True, eq=False)
class ChosenBlock:
    """A block to measure again on a target, which may differ from then, as (then, now)."""

    folder: Path
    data: Dataset
    hashes: BlockHashes
    identity: Mapping[str, Any]
    # Empty: the bytes must be the same.
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


def read_sources(folders: Iterable[Path]) -> list[HashedFolder]:
    """Return the folders with hashes, after checking what these cover; log those without."""
    found: list[Path] = []
    bare: list[Path] = []
    for folder in folders:
        inside = [f for f in _folders(folder) if f not in found]
        without = [f for f in inside if not has_hashes(f)]
        found += inside
        bare += [folder] if inside and without == inside else without
    with_hashes = [folder for folder in found if has_hashes(folder)]
    if bare:
        sentence = (
            f"{', '.join(map(str, bare))} {'carries' if len(bare) == 1 else 'carry'} no hashes "
            f"({HASHES}), so nothing can be compared: an older iolab wrote them"
        )
        if not with_hashes:
            raise NothingComparedError(sentence)
        _log.info("%s", sentence)
    sources = []
    for folder in with_hashes:
        data = load(folder)
        sources.append(HashedFolder(folder, data, read_hashes(folder, data)))
    return sources


def _folders(folder: Path) -> list[Path]:
    """Return the folders of results at or below a folder; raise UserError if there are none."""
    if (folder / "cells.parquet").exists():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/cells.parquet")) or result_folders(folder)


def _prepared(kernel: str, cpus: int, memory_mib: int) -> Mapping[str, Any] | CannotRunError:
    """Return the identity of a virtual machine of this iolab, or why it cannot be made."""
    # The parts that every kernel needs come first: without them nothing can be measured.
    ensure_toolbox()
    ensure_image()
    if kernel not in known_kernels():
        return CannotRunError(f"kernel {kernel} is unknown here (add it: `iolab kernels add`)")
    try:
        return prepare(kernel, "virtual", cpus=cpus, memory_mib=memory_mib).identity()
    except CannotRunError as error:
        return error


def choose_blocks(
    sources: Sequence[HashedFolder],
    number: int,
    seed: int,
    *,
    kernels: Sequence[str] = (),
    anyway: bool = False,
    fetch: bool = True,
) -> Choice:
    """Draw up to `number` blocks, each equally likely, among those that can give the same bytes."""
    # `anyway` also takes blocks measured on something else. Without `fetch`, only iolab's own parts
    # of the target are compared.
    for kernel in kernels:
        one_of("kernel", kernel, {b.kernel for source in sources for b in source.blocks})
    drawn = [(s, b) for s in sources for b in s.blocks if not kernels or b.kernel in kernels]
    # Reproducible on purpose: the same seed draws the same blocks.
    random.Random(seed).shuffle(drawn)  # noqa: S311
    prepared = cache(_prepared) if fetch else None
    chosen: list[ChosenBlock] = []
    left_out: dict[str, list[BlockHashes]] = {}
    missing = True
    for source, hashes in drawn:
        if len(chosen) == number:
            break
        try:
            chosen.append(_chosen(source, hashes, prepared, anyway=anyway))
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
    source: HashedFolder, hashes: BlockHashes, prepared: _Prepared | None, *, anyway: bool
) -> ChosenBlock:
    virtual = hashes.target["target"] == "vm" and "target" not in hashes.block
    if not virtual or hashes.block["clock"] != "virtual":
        raise _LeftOutError("not measured in virtual time: only that repeats the same bytes")
    # Before anything is fetched: most often it is the agent.
    identity: Mapping[str, Any] = own_identity()
    differs = _differing(hashes, identity, anyway=anyway)
    if (found := hashes.block["format"]) != BLOCK_FORMAT:
        raise _LeftOutError(
            f"its block's format is {found!r:.80}, this iolab reads {BLOCK_FORMAT!r}"
        )
    if prepared is not None:
        machine = Block.parse(hashes.block).machine
        ready = prepared(hashes.kernel, machine.cpus, machine.memory_mib)
        if isinstance(ready, CannotRunError):
            raise _LeftOutError(str(ready), missing=True)
        identity = ready
        differs = _differing(hashes, identity, anyway=anyway)
    return ChosenBlock(source.folder, source.data, hashes, identity, differs)


def _differing(
    hashes: BlockHashes, here: Mapping[str, Any], *, anyway: bool
) -> dict[str, tuple[str, str]]:
    """Return the parts of a target that differ here, if so and not `anyway` as the reason."""
    stored = hashes.target
    parts = [part for part in dict.fromkeys((*_PARTS, *here)) if part in here]
    differs = {
        part: (_shown(part, stored), _shown(part, here))
        for part in parts
        if stored.get(part) != here[part] and part != _NOT_COMPARED
    }
    if differs and not anyway:
        raise _LeftOutError(_other(hashes, differs))
    return differs


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
        f"measured{by} with {' and '.join(words)}, so the bytes cannot be the same; --anyway "
        "measures it and compares the values"
    )


def block_values(
    block: str, cells: pd.DataFrame, latency: pd.DataFrame, mechanism: pd.DataFrame
) -> dict[str, dict[str, Any]]:
    """Return all values of each cell of a block (named as in the tables), by its id in the plan."""
    rows = cells[cells["cell"].str.startswith(f"{block}-")]
    found: dict[str, dict[str, Any]] = {}
    for row in rows.to_dict("records"):
        values = {str(name): value for name, value in row.items()}
        # The same block has another name if its kernel comes from another place.
        name = _without(block, str(values.pop("cell")))
        shared = {column: _without(block, str(values[column])) for column in ("block", "twin")}
        found[name] = {**values, **shared}
    for entry in mechanism[mechanism["cell"].isin(rows["cell"])].to_dict("records"):
        found[_without(block, entry["cell"])][entry["measure"]] = entry["value"]
    for cell, bins in latency[latency["cell"].isin(rows["cell"])].groupby("cell", sort=False):
        pairs = tuple(zip(bins["bin_ns"], bins["count"], strict=True))
        found[_without(block, str(cell))][LATENCIES] = pairs
    return found


def _without(block: str, name: str) -> str:
    return name.removeprefix(block).removeprefix("-")


def different_values(
    stored: Mapping[str, Any], measured: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the values of a cell that differ, each as stored and as measured; None is missing.

    >>> different_values({"iops": 3000.0, "idle": math.nan}, {"iops": 2990.0, "idle": math.nan})
    {'iops': {'stored': 3000.0, 'measured': 2990.0}}
    """
    pairs = {name: (stored.get(name), measured.get(name)) for name in {**stored, **measured}}
    return {
        name: {"stored": before, "measured": now}
        for name, (before, now) in pairs.items()
        if not _same(before, now)
    }


def _same(one: Any, other: Any) -> bool:
    if not (isinstance(one, tuple) or isinstance(other, tuple)) and (
        pd.isna(one) or pd.isna(other)
    ):
        return bool(pd.isna(one) and pd.isna(other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE)
    return bool(one == other)


@dataclass(frozen=True)
class CheckedCell:
    """A cell measured again: its work as stored, as measured, and their ratio; what differs."""

    # `same_trace` is None without a trace.

    id: str
    role: str
    same_bytes: bool
    same_trace: bool | None
    stored: float
    measured: float
    ratio: float
    different: dict[str, dict[str, Any]]

    @property
    def same(self) -> bool:
        """Whether everything is the same."""
        return self.same_bytes and self.same_trace is not False and not self.different


@dataclass(frozen=True)
class CheckedBlock:
    """A block measured again, or the `error`; `value` is the column for the amount of work."""

    chosen: ChosenBlock
    value: str = "iops"
    cells: Sequence[CheckedCell] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def compared(self) -> bool:
        """Whether its bytes were compared: it was measured on the same target."""
        return not self.error and not self.chosen.differs

    @property
    def same(self) -> bool:
        """Whether all bytes and all values of the tables are the same."""
        return self.compared and all(cell.same for cell in self.cells)


def verify_blocks(
    chosen: Sequence[ChosenBlock],
    *,
    jobs: int,
    on_progress: OnProgress = lambda progress: None,
    on_block: Callable[[CheckedBlock], None] = lambda checked: None,
) -> None:
    """Measure blocks again, side by side, in the cache; `on_block` gets each when compared."""
    blocks = [Block.parse(one.hashes.block) for one in chosen]
    with scratch_dir(cache_dir("verify")) as root:
        wanted = {}
        for number, (one, block) in enumerate(zip(chosen, blocks, strict=True)):
            # Two folders may have blocks of the same name, even the same block.
            own = root / str(number)
            job = block_job(f"{number} {one.words}", block, own / "plan.json", own)
            wanted[job.name] = (one, block_key(block, one.identity), RawStore(job.root), job)

        def on_end(job: BlockJob, error: Failure | None) -> None:
            one, key, store, _ = wanted[job.name]
            on_block(
                CheckedBlock(one, error=str(error)) if error else compare_block(one, key, store)
            )

        again = [job for *_, job in wanted.values()]
        run_jobs_in(LocalPlace(jobs), again, on_progress=on_progress, on_end=on_end)


def expected_seconds(chosen: Sequence[ChosenBlock], jobs: int) -> float:
    """Return the seconds to measure blocks again, `jobs` of them side by side."""
    return forecast([Block.parse(one.hashes.block) for one in chosen], jobs).seconds


def compare_block(one: ChosenBlock, key: str, store: RawStore) -> CheckedBlock:
    """Compare a block measured again, in a store under a key, with its hashes and tables."""
    found = cell_hashes(store, key)
    cells, latency, mechanism = block_tables(store, [key])
    data = one.data
    value = main_value(data.cells)
    now = block_values(key[:16], _known(cells, data.cells, value), latency, mechanism)
    before = block_values(one.hashes.name, data.cells, data.latency, data.mechanism)
    checked = [
        _cell(name, value, (hashes, found[name]), (before[name], now[name]))
        for name, hashes in one.hashes.cells.items()
    ]
    return CheckedBlock(one, value, checked, float(store.read(key, "run.json")["wall_s"]))


def _known(cells: pd.DataFrame, stored: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return cells without the columns that did not exist when a table was written, but `value`."""
    return cells.drop(columns=[n for n in ADDED_COLUMNS if n != value and stored[n].isna().all()])


def _cell(
    name: str,
    value: str,
    hashes: tuple[CellHashes, CellHashes],
    values: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> CheckedCell:
    (stored, found), (before, now) = hashes, values
    traced = stored.trace_sha256 or found.trace_sha256
    work, again = float(before[value]), float(now[value])
    return CheckedCell(
        id=name,
        role=str(before["role"]),
        same_bytes=stored.recorded_sha256 == found.recorded_sha256,
        same_trace=stored.trace_sha256 == found.trace_sha256 if traced else None,
        stored=work,
        measured=again,
        ratio=again / work if work else math.nan,
        different=different_values(before, now),
    )
