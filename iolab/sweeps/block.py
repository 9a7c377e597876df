# SPDX-License-Identifier: MIT
"""Run one block.

``python -m iolab.sweeps.block PLAN ROOT`` measures one in a process of its own.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iolab import __version__
from iolab.blocks import Block
from iolab.logs import lines_shown
from iolab.store.raw import RawStore, block_key
from iolab.sweeps.observed import Observed, read_observed
from iolab.sweeps.programs import run_saying
from iolab.targets import Target, real_target
from iolab.targets.real import RealTarget
from iolab.targets.vm import VmTarget, prepare
from iolab_base import foreign
from iolab_base.errors import CannotRunError, IolabError, UserError, error_of
from iolab_base.files import atomic_write, canonical_json
from iolab_base.reading import read_regular

if TYPE_CHECKING:
    from guestprof.observation import Observation

__all__ = [
    "measure_block",
    "read_block",
    "run_on",
    "target_of",
    "write_block",
]

_CELL_LINE = re.compile(r"iolab: cell ([0-9]{1,6})/([0-9]{1,6}) ")


def write_block(path: Path, block: Block) -> None:
    """Write a block to a file, as `read_block` reads it."""
    atomic_write(path, canonical_json(block.document()))


def read_block(path: Path) -> Block:
    """Return the block in a file; raise UserError unless it is one of this format."""
    try:
        return Block.parse(json.loads(read_regular(path)))
    except (OSError, ValueError, RecursionError, UserError) as error:
        raise UserError(f"{path} holds no block: {foreign.line(str(error))}") from error


def target_of(block: Block) -> Target:
    """Prepare a block's virtual machine, or connect to its real one, and return it."""
    # The block of a virtual machine has no target.
    if block.target is not None:
        return real_target(block.target)
    return prepare(
        block.kernel,
        block.clock,
        cpus=block.machine.cpus,
        memory_mib=block.machine.memory_mib,
    )


def _measure(
    block: Block,
    store: RawStore,
    observed: Observed,
    progress: Callable[[int, int], None],
) -> str:
    target = target_of(block)
    identity = target.identity()
    key = block_key(block, identity)
    observation = None
    if observed.cells:
        from iolab.store.profiles import ProfileStore
        from iolab.sweeps.observing import observation_of

        profiles = ProfileStore(store.root)
        cells, calls, flat = observed
        with suppress(CannotRunError):
            # The reason was logged when the observer was prepared.
            observation = observation_of(
                target,
                block,
                [cell for cell in cells if not profiles.has(key, cell, calls, flat=flat)],
                calls=calls,
                flat=flat,
            )
    if store.has(key) and observation is None:
        return key

    with store.workspace() as work:
        results = work / "results"
        run = run_on(target, block, results, progress, observation=observation)
        if store.has(key):
            _check_same(store, key, results)
        else:
            try:
                store.put(key, block=block, target=identity, results=results, run=run)
            except IolabError as error:
                where = f" of {target.where}" if isinstance(target, RealTarget) else ""
                sentence = f"what came{where} is not kept: {error}"
                raise error_of(error.exit_code)(sentence) from error
        if observation is not None:
            profiles.take(key, results / "profiles")
    return key


def run_on(
    target: Target,
    block: Block,
    results: Path,
    progress: Callable[[int, int], None],
    *,
    observation: Observation | None = None,
) -> dict[str, Any]:
    """Run a block's plan on its machine, and return when and how it ran: ``run.json``.

    Leaves the agent's folder in ``results``. Calls ``progress`` with the cells done and their
    number.
    """

    def on_line(line: str) -> None:
        if match := _CELL_LINE.match(line):
            progress(int(match[1]), int(match[2]))

    progress(0, len(block.cells))
    # Before the clock starts, and before the agent checks the machine's other load.
    shown = target.system_shown() if isinstance(target, RealTarget) else None
    began = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    if isinstance(target, VmTarget):
        target.run(block.plan, results, on_line, observation=observation)
    else:
        target.run(block.plan, results, on_line)
    run: dict[str, Any] = {
        "started": started,
        "wall_s": round(time.monotonic() - began, 3),
        "iolab": __version__,
        "python": platform.python_version(),
        "host_kernel": platform.release(),
    }
    if shown is not None:
        run["pyperf_system_show"] = foreign.text(shown)
    return run


def _check_same(store: RawStore, key: str, results: Path) -> None:
    """Check that a block measured again for its profiles equals the stored one."""
    for document in store.cells(key):
        cell = document["cell"]["id"]
        found = foreign.document((results / "cells" / f"{cell}.json").read_bytes())
        if canonical_json(found) != canonical_json(document["result"]):
            raise IolabError(
                f"cell {cell} of block {key} came out differently when it was observed: "
                "its profile is not kept"
            )


def measure_block(plan_path: Path, store: RawStore) -> str:
    """Measure the block in a file unless the store has it, and return its key.

    Writes its progress to ``PLAN.progress`` while it runs. Raises UserError for an invalid block;
    after any error nothing is stored.
    """
    block, observed = read_block(plan_path), read_observed(plan_path)
    note = plan_path.with_suffix(".progress")

    def on_progress(done: int, total: int) -> None:
        atomic_write(note, f"{done} {total}\n")

    try:
        return _measure(block, store, observed, on_progress)
    finally:
        note.unlink(missing_ok=True)


def main(argv: list[str]) -> int:
    """Measure the block that the arguments name; print an error as one line of JSON."""
    plan, root = argv

    def measure() -> None:
        # The end of the output tells what was done, if no error does.
        with lines_shown(partial(print, flush=True)):
            measure_block(Path(plan), RawStore(Path(root)))

    return run_saying(measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
