# SPDX-License-Identifier: MIT
"""Measure the blocks of a plan that the store lacks, without pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from iolab.blocks import Block
from iolab.errors import IolabError
from iolab.files import locked, remove_abandoned
from iolab.store.raw import RawStore
from iolab.sweeps import pool
from iolab.sweeps.block import read_block, write_block
from iolab.sweeps.forecast import expected_s
from iolab.sweeps.history import measured_here, note_duration
from iolab.sweeps.limits import MACHINE_BYTES, usable_memory
from iolab.sweeps.observing import blocks_to_measure, note_observed
from iolab.sweeps.request import Request
from iolab.sweeps.warm import WarmPages

__all__ = [
    "block_job",
    "check_room",
    "measure_blocks",
    "measure_here",
    "measure_jobs",
    "store_locked",
]


@contextmanager
def store_locked(root: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Hold a store for the duration of a ``with`` block; say it if another process holds it.

    What a killed process left in its folders is removed, before and afterwards. A root without a
    block is left without a lock, too.

    Raises
    ------
    UserError
        If the store is of another format.
    IolabError
        If it cannot be locked.
    """
    store = RawStore(root)
    store.check_format()
    lock, made = root / ".sweep.lock", not root.exists()
    words = f"something else measures into {root}: waiting for its end"
    with locked(lock, lambda: log(words)):
        _remove_left(root)
        try:
            yield
        finally:
            _remove_left(root)
            if not any(store.all_keys()):
                lock.unlink(missing_ok=True)
                if made:
                    with suppress(OSError):
                        root.rmdir()


def _remove_left(root: Path) -> None:
    """Remove what killed sweeps left below a folder of results; its lock must be held."""
    for path in (root / "plans").glob("*.progress"):
        path.unlink(missing_ok=True)
    own = [root, root / "plans", root / "raw", *(root / "profiles").glob("*")]
    # Nobody else's folders: the root may be anywhere.
    sweeps = {path.parent for name in ("pages", "blocks.json") for path in root.glob(f"*/*/{name}")}
    for folder in (*own, *sweeps, *(below for sweep in sweeps for below in sweep.iterdir())):
        remove_abandoned(folder)


def check_room(request: Request, blocks: int) -> None:
    """Check that the store's disk has room for the virtual machines that measure so many blocks.

    Raises
    ------
    IolabError
        If it has not; nothing was measured.
    """
    if not blocks or request.target != "vm" or request.cluster:
        return
    request.root.mkdir(parents=True, exist_ok=True)
    machines = min(request.jobs, blocks)
    free, needed = shutil.disk_usage(request.root).free, machines * MACHINE_BYTES
    if free < needed:
        raise IolabError(
            f"measuring needs {needed >> 20} MiB in {request.root} (--jobs {machines}), "
            f"{free >> 20} MiB are free"
        )


def measure_jobs(
    jobs: Sequence[pool.BlockJob],
    request: Request,
    *,
    log: Callable[[str], None] = lambda line: None,
    on_progress: pool.OnProgress = lambda progress: None,
    on_end: pool.OnEnd = lambda job, error: None,
) -> dict[str, str]:
    """Measure blocks on this machine or on the request's cluster, and return why some failed."""
    if request.cluster and jobs:
        from iolab.sweeps.cluster.blocks import cluster_place  # noqa: PLC0415 - Dask takes a second

        blocks = [read_block(job.plan) for job in jobs]
        with cluster_place(request.cluster, blocks, RawStore(request.root), log) as place:
            return pool.run_jobs_in(place, jobs, on_progress=on_progress, on_end=on_end)
    return measure_here(jobs, request, on_progress=on_progress, on_end=on_end)


def measure_here(
    jobs: Sequence[pool.Job],
    request: Request,
    *,
    pages: WarmPages | None = None,
    on_progress: pool.OnProgress = lambda progress: None,
    on_end: pool.OnEnd = lambda job, error: None,
) -> dict[str, str]:
    """Measure blocks, or make pages that do, on this machine; return why some failed."""
    return pool.run_jobs(
        jobs,
        jobs=request.jobs,
        memory=usable_memory,
        pages=pages,
        on_progress=on_progress,
        on_end=on_end,
        on_time=_note_time(request),
    )


def _note_time(request: Request) -> pool.OnTime:
    """Return what keeps how long the blocks of a request take, for later forecasts."""

    def note(job: pool.BlockJob | pool.NotebookJob, seconds: float, beside: float) -> None:
        plan = job.plan if isinstance(job, pool.BlockJob) else Path(job.parameters["plan"])
        block = read_block(plan)
        # Whoever observes waits longer, and a real machine is another one.
        if block.target is None and not request.observed:
            note_duration(block, seconds, beside)

    return note


def block_job(
    name: str, block: Block, file: Path, root: Path, expected_s: float = 0.0
) -> pool.BlockJob:
    """Write a block to a file, and return the job that measures it into the store below `root`."""
    write_block(file, block)
    memory_bytes = block.machine.memory_mib << 20
    return pool.BlockJob(name, file, root, len(block.cells), memory_bytes, expected_s)


def measure_blocks(
    blocks: Mapping[str, Block],
    request: Request,
    on_progress: pool.OnProgress,
    log: Callable[[str], None] = lambda line: None,
) -> tuple[int, dict[str, str]]:
    """Measure the blocks that the store lacks, side by side.

    Parameters
    ----------
    blocks : mapping of str to Block
        The blocks by their key in the store.
    request : Request
        Its store, target and number of machines.
    on_progress : callable
        Called with the `Progress` of the measuring, some ten times a second.
    log : callable
        Called with a line for each stored block that is no result, and measured again.

    Returns
    -------
    (int, dict of str to str)
        How many blocks the store had, and why the others failed, by the names of the blocks.

    Raises
    ------
    UserError
        If the store is of another format.
    IolabError
        If measuring was interrupted: what was measured is kept.
    """
    store = RawStore(request.root)
    missing = blocks_to_measure(
        blocks, store, request.observed, request.calls, log, flat=request.flat
    )
    check_room(request, len(missing))
    jobs = []
    lengths = expected_s((blocks[key] for key in missing), measured_here())
    for key, seconds in zip(missing, lengths, strict=True):
        block = blocks[key]
        file = request.root / "plans" / f"{key}.json"
        jobs.append(block_job(block.plan.block, block, file, request.root, seconds))
        note_observed(file, block, request.observed, request.calls, flat=request.flat)
    try:
        failed = measure_jobs(jobs, request, log=log, on_progress=on_progress)
    except KeyboardInterrupt:
        done = sum(store.has(key) for key in missing)
        raise IolabError(
            f"interrupted: {done} of {len(missing)} blocks are measured and kept; "
            "run it again to go on"
        ) from None
    return len(blocks) - len(missing), failed
