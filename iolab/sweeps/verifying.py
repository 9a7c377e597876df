# SPDX-License-Identifier: MIT
"""Measure blocks of a folder of results again, and compare them with its hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iolab.blocks import Block
from iolab.stats.conditions import main_value
from iolab.store.differences import block_values, different_values
from iolab.store.hashes import CellHashes, cell_hashes
from iolab.store.raw import RawStore, block_key
from iolab.store.tables import block_tables
from iolab.sweeps.choosing import ChosenBlock
from iolab.sweeps.durations import forecast
from iolab.sweeps.measuring import block_job
from iolab.sweeps.pool import BlockJob, LocalPlace, OnProgress, run_jobs_in
from iolab.sweeps.programs import Failure
from iolab_base.files import cache_dir, scratch_dir
from tracedat import free_bytes

__all__ = ["CheckedBlock", "CheckedCell", "compare_block", "expected_seconds", "verify_blocks"]


@dataclass(frozen=True)
class CheckedCell:
    """A cell that was measured again, compared with the recorded bytes.

    `same_trace` is None without a trace.dat. `different` has the values that differ, and `value`
    the cell's work (`CheckedBlock.value`), each as (tables, now).
    """

    id: str
    role: str
    same_bytes: bool
    same_trace: bool | None
    different: dict[str, tuple[Any, Any]]
    value: tuple[float, float]

    @property
    def same(self) -> bool:
        """Whether everything is the same."""
        return self.same_bytes and self.same_trace is not False and not self.different

    @property
    def ratio(self) -> float:
        """The work done now, relative to the tables."""
        stored, measured = self.value
        return measured / stored if stored else float("nan")


@dataclass(frozen=True)
class CheckedBlock:
    """A block that was measured again, or why it could not be.

    `value` is the column for the amount of work, such as "iops"; `cells` are in the order measured;
    `seconds` run from the machine's start to its results; `error` is "" on success.
    """

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
    """Measure blocks again, side by side, and compare each with its hashes and tables.

    The measurements are removed at the end and on Ctrl-C. ``on_block`` gets each block when it is
    done. Raises UserError for a block of another format, IolabError if the cache is not writable.
    """
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

        place = LocalPlace(jobs, free_bytes)
        again = [job for *_, job in wanted.values()]
        run_jobs_in(place, again, on_progress=on_progress, on_end=on_end)


def expected_seconds(chosen: Sequence[ChosenBlock], jobs: int) -> float:
    """Return the seconds to measure blocks again, `jobs` of them side by side."""
    return forecast([Block.parse(one.hashes.block) for one in chosen], jobs).seconds


def compare_block(one: ChosenBlock, key: str, store: RawStore) -> CheckedBlock:
    """Compare a block measured again, in ``store`` under ``key``, with its hashes and tables.

    Raises IolabError if the store lacks the block, or has it damaged.
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
