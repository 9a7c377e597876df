# SPDX-License-Identifier: MIT
"""Measure blocks of a folder of results again, and compare them with its hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iolab.blocks import Block
from iolab.files import cache_dir, scratch_dir
from iolab.stats.conditions import main_value
from iolab.store.block_tables import block_tables
from iolab.store.differences import block_values, different_values
from iolab.store.hashes import CellHashes, cell_hashes
from iolab.store.raw import RawStore, block_key
from iolab.sweeps.choosing import ChosenBlock
from iolab.sweeps.durations import forecast
from iolab.sweeps.limits import usable_memory
from iolab.sweeps.measuring import block_job
from iolab.sweeps.pool import BlockJob, LocalPlace, OnProgress, run_jobs_in

__all__ = ["CheckedBlock", "CheckedCell", "compare_block", "expected_seconds", "verify_blocks"]


@dataclass(frozen=True)
class CheckedCell:
    """A cell that was measured again.

    Parameters
    ----------
    id : str
        Its name in the plan.
    role : str
        "control" or "treatment".
    same_bytes : bool
        Whether the agent recorded the same bytes.
    same_trace : bool or None
        Whether its trace.dat is the same; None without one.
    different : dict of str to tuple
        The values that are not the same, each as the tables have it and as it is now.
    value : tuple of float
        What the cell's work did (`CheckedBlock.value`), as the tables have it and as it is now.
    """

    id: str
    role: str
    same_bytes: bool
    same_trace: bool | None
    different: dict[str, tuple[Any, Any]]
    value: tuple[float, float]

    @property
    def same(self) -> bool:
        """Whether all of it is the same."""
        return self.same_bytes and self.same_trace is not False and not self.different

    @property
    def ratio(self) -> float:
        """What its work did now, relative to the tables."""
        stored, measured = self.value
        return measured / stored if stored else float("nan")


@dataclass(frozen=True)
class CheckedBlock:
    """A block that was measured again, or why it could not be.

    Parameters
    ----------
    chosen : ChosenBlock
        The block.
    value : str
        Column of the tables that says how much its work did, such as "iops".
    cells : list of CheckedCell
        In the order of measuring.
    seconds : float
        From the start of the machine to its results.
    error : str
        Why it could not be measured, or "".
    """

    chosen: ChosenBlock
    value: str = "iops"
    cells: Sequence[CheckedCell] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def compared(self) -> bool:
        """Whether its bytes were compared: it was measured on the very same target."""
        return not self.error and not self.chosen.differs

    @property
    def same(self) -> bool:
        """Whether all bytes and all values of the tables came out again."""
        return self.compared and all(cell.same for cell in self.cells)


def verify_blocks(
    chosen: Sequence[ChosenBlock],
    *,
    jobs: int,
    on_progress: OnProgress = lambda progress: None,
    on_block: Callable[[CheckedBlock], None] = lambda checked: None,
) -> None:
    """Measure blocks again, side by side, and compare each with the hashes and tables it is from.

    What is measured is removed at the end, and on Ctrl-C with everything that runs. ``on_block`` is
    called with each block as it is done.

    Raises
    ------
    UserError
        If a block is of a format that this iolab does not read.
    IolabError
        If the cache folder, where it is measured, cannot be written.
    """
    blocks = [Block.parse(one.hashes.block) for one in chosen]
    with scratch_dir(cache_dir("verify")) as root:
        wanted = {}
        for number, (one, block) in enumerate(zip(chosen, blocks, strict=True)):
            # Two folders may hold blocks of the same name, and even the same block.
            own = root / str(number)
            job = block_job(f"{number} {one.words}", block, own / "plan.json", own)
            wanted[job.name] = (one, block_key(block, one.identity), RawStore(job.root), job)

        def on_end(job: BlockJob, error: str) -> None:
            one, key, store, _ = wanted[job.name]
            on_block(CheckedBlock(one, error=error) if error else compare_block(one, key, store))

        place = LocalPlace(jobs, usable_memory)
        again = [job for *_, job in wanted.values()]
        run_jobs_in(place, again, on_progress=on_progress, on_end=on_end)


def expected_seconds(chosen: Sequence[ChosenBlock], jobs: int) -> float:
    """Return the seconds that measuring blocks again may take, `jobs` of them side by side."""
    return forecast([Block.parse(one.hashes.block) for one in chosen], jobs).seconds


def compare_block(one: ChosenBlock, key: str, store: RawStore) -> CheckedBlock:
    """Compare a block that was measured again with the hashes and tables that it is from.

    ``store`` holds it under ``key``.

    Raises
    ------
    IolabError
        If the store lacks the block, or holds it damaged.
    """
    found = cell_hashes(store, key)
    cells, latency, mechanism = block_tables(store, [key])
    now = block_values(key[:16], cells, latency, mechanism)
    data = one.data
    before = block_values(one.hashes.name, data.cells, data.latency, data.mechanism)
    value = main_value(data.cells)
    checked = [
        _cell(name, value, (hashes, found[name]), (before[name], now[name]))
        for name, hashes in one.hashes.cells.items()
    ]
    return CheckedBlock(one, value, checked, float(store.read(key, "run.json")["wall_s"]))


def _cell(
    name: str,
    value: str,
    hashes: tuple[CellHashes, CellHashes],
    values: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> CheckedCell:
    (stored, found), (before, now) = hashes, values
    traced = stored.trace_sha256 or found.trace_sha256
    return CheckedCell(
        id=name,
        role=str(before["role"]),
        same_bytes=stored.recorded_sha256 == found.recorded_sha256,
        same_trace=stored.trace_sha256 == found.trace_sha256 if traced else None,
        different=different_values(before, now),
        value=(float(before[value]), float(now[value])),
    )
