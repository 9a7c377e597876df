# SPDX-License-Identifier: MIT
"""Measure the blocks of a plan that the store lacks, side by side, for all commands."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

from iolab.blocks import Block
from iolab.extras import PLACES, extra
from iolab.shown import rough_duration
from iolab.store.files import PLANS, PROFILES, RAW
from iolab.store.raw import RawStore
from iolab.store.soundness import block_state
from iolab.sweeps import pool
from iolab.sweeps.block import Observed, observed_cells, prepare_observer, write_block
from iolab.sweeps.pool import MACHINE_BYTES, Failure
from iolab.sweeps.preview import forecast, in_order, measured_here, note_duration
from iolab.sweeps.request import Request
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import check_free, locked, remove_abandoned

_log = logging.getLogger(__name__)
# Opens a place by its address, for blocks that are measured into a store.
_OpenPlace = Callable[[str, Sequence[Block], RawStore], AbstractContextManager[pool.JobPlace]]


class Measured(NamedTuple):
    """The keys that had to be measured, why blocks failed, by name, and why some are unobserved."""

    missing: list[str]
    failed: dict[str, Failure]
    unobserved: Sequence[str] = ()


@contextmanager
def store_locked(root: Path) -> Iterator[None]:
    """Lock a store for a ``with`` block; log that another process has it."""
    # Removes what killed processes left there, before and afterwards. A root without blocks is left
    # without a lock file.
    store = RawStore(root)
    store.check_format()
    lock, made = root / ".sweep.lock", not root.exists()
    words = "another process measures into %s: waiting until it ends"
    with locked(lock, lambda: _log.info(words, root)):
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
    """Remove what killed sweeps left below a folder of results; the caller must lock it."""
    for path in (root / PLANS).glob("*.progress"):
        path.unlink(missing_ok=True)
    own = [root, root / PLANS, root / RAW, *(root / PROFILES).glob("*")]
    # Only our own folders: the root may be anywhere.
    sweeps = {path.parent for path in root.glob("*/*/blocks.json")}
    for folder in (*own, *sweeps, *(below for sweep in sweeps for below in sweep.iterdir())):
        remove_abandoned(folder)


def missing_blocks(store: RawStore, blocks: Mapping[str, Block]) -> list[str]:
    """Return the keys of the blocks to measure; damaged and refused ones are set aside first."""
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
                words = "block %s is %s: set aside in %s, and measured again"
                _log.info(words, state.name, word, place)
        missing.append(key)
    return missing


def blocks_to_measure(blocks: Mapping[str, Block], request: Request) -> list[str]:
    """Return the keys of blocks that the store lacks, or that lack requested profiles."""
    wanting = set(missing_blocks(RawStore(request.root), blocks))
    if request.observed:
        from iolab.store.profiles import ProfileStore  # noqa: PLC0415 - pandas

        profiles = ProfileStore(request.root)
        for key, block in blocks.items():
            if _observed(block, request).lacking(profiles, key).cells:
                wanting.add(key)
    return [key for key in blocks if key in wanting]


def _observed(block: Block, request: Request) -> Observed:
    return Observed(observed_cells(block, request.observed), request.calls, request.flat)


def check_room(request: Request, blocks: Sequence[Block]) -> None:
    """Check that this machine has disk space and memory for the blocks' virtual machines."""
    if not blocks or request.target != "vm" or request.cluster:
        return
    machines = min(request.jobs, len(blocks))
    check_free(request.root, machines * MACHINE_BYTES, f"measuring with --jobs {machines}")
    # Linux refuses a program more memory than there is, used or not (mm/util.c).
    most = (psutil.virtual_memory().total + psutil.swap_memory().total) >> 20
    largest = max(block.machine.memory_mib for block in blocks)
    if largest > most:
        raise CannotRunError(
            f"a virtual machine with memory_mib={largest} does not fit: this machine has {most} MiB"
        )


def block_job(
    name: str, block: Block, file: Path, root: Path, expected_s: float = 0.0
) -> pool.BlockJob:
    """Write a block to a file, and return the job that measures it into the store below `root`."""
    write_block(file, block)
    memory_bytes = block.machine.memory_mib << 20
    return pool.BlockJob(name, file, root, len(block.cells), memory_bytes, expected_s)


@contextmanager
def _workers(
    request: Request, blocks: Sequence[Block], on_time: pool.OnTime
) -> Iterator[pool.JobPlace]:
    """Open where the blocks are measured: on this machine, or on the request's cluster."""
    if request.cluster and blocks:
        open_place: _OpenPlace = extra(PLACES, "cluster")
        with open_place(request.cluster, blocks, RawStore(request.root)) as cluster:
            yield cluster
    else:
        yield pool.LocalPlace(request.jobs, on_time=on_time)


def measure(
    blocks: Mapping[str, Block],
    request: Request,
    on_progress: pool.OnProgress = lambda progress: None,
) -> Measured:
    """Measure the blocks that the store lacks; the caller must lock the store."""
    unobserved = prepare_observer(blocks.values(), request.observed, calls=request.calls)
    missing = blocks_to_measure(blocks, request)
    if kept := len(blocks) - len(missing):
        _log.info("%d of %d blocks are in the store already", kept, len(blocks))
    history = measured_here()
    ordered = in_order(missing, blocks, history)
    wanted = [blocks[key] for key in ordered]
    check_room(request, wanted)
    if wanted and request.target == "vm" and not request.cluster:
        expected = forecast(wanted, request.jobs, history=history)
        about = rough_duration(expected.seconds)
        _log.info("%d blocks to measure, about %s (%s)", len(wanted), about, expected.basis)
    jobs = []
    for key, seconds in ordered.items():
        block, file = blocks[key], request.root / PLANS / f"{key}.json"
        job = block_job(block.plan.block, block, file, request.root, seconds)
        if (observed := _observed(block, request)).cells:
            job = replace(job, observed=json.dumps(observed))
        jobs.append(job)

    def note_time(job: pool.BlockJob, seconds: float, beside: float) -> None:
        block = blocks[job.plan.stem]
        # Observed blocks take longer, and a real machine is a different one.
        if block.target is None and not request.observed:
            note_duration(block, seconds, beside)

    def on_end(job: pool.BlockJob, error: Failure | None) -> None:
        _log.info("%s: %s", job.name, f"failed: {error}" if error else "measured")

    with _workers(request, wanted, note_time) as place:
        failed = pool.run_jobs_in(place, jobs, on_progress=on_progress, on_end=on_end)
    return Measured(list(ordered), failed, unobserved)


def measure_blocks(
    blocks: Mapping[str, Block], request: Request, on_progress: pool.OnProgress
) -> Measured:
    """Measure blocks as `measure` does; an interrupt is an IolabError that says what is kept."""
    store = RawStore(request.root)
    before = sum(map(store.has, blocks))
    try:
        return measure(blocks, request, on_progress)
    except KeyboardInterrupt:
        done = sum(map(store.has, blocks)) - before
        raise IolabError(
            f"interrupted: {done} of {len(blocks) - before} blocks are measured and kept; repeat "
            "the command to continue"
        ) from None
