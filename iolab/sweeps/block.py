# SPDX-License-Identifier: MIT
"""Run one block, and observe it.

``python -m iolab.sweeps.block PLAN ROOT [OBSERVED]`` is its program.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from iolab import __version__
from iolab.blocks import Block
from iolab.logs import lines_shown
from iolab.pathology import get_pathology
from iolab.pathology.expressions import parse_levels
from iolab.store.raw import RawStore, block_key
from iolab.sweeps.pool import run_saying
from iolab.targets import Target, target_of
from iolab.targets.real import RealTarget
from iolab.targets.vm import VmTarget
from iolab_base import foreign
from iolab_base.errors import CannotRunError, IolabError, UserError, error_of
from iolab_base.files import atomic_write, canonical_json
from iolab_base.reading import read_regular

if TYPE_CHECKING:
    from guestprof.observation import Observation
    from iolab.store.profiles import ProfileStore

_log = logging.getLogger(__name__)
_ALL = "all"
_NO_GUEST = "a real machine cannot be observed from outside"
_RECORD = "perf record -a -g -- sleep 30"
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


class Observed(NamedTuple):
    """What is observed: cells by id, functions whose calls are recorded; `flat` omits callers."""

    cells: Sequence[str] = ()
    calls: Sequence[str] = ()
    flat: bool = False

    def lacking(self, profiles: ProfileStore, key: str) -> Observed:
        """Return the part of it that a store's profiles of a block lack."""
        has = partial(profiles.has, key, calls=self.calls, flat=self.flat)
        return self._replace(cells=[cell for cell in self.cells if not has(cell)])


_NOTHING = Observed()


def observed_cells(block: Block, wanted: Sequence[str]) -> list[str]:
    """Return the ids of a block's cells that are observed: all, or both cells of some pairs."""
    # ``wanted`` has the pairs' levels, ``FACTOR=LEVEL[,LEVEL...]``, or is "all".
    if _ALL in wanted:
        return [cell.id for cell in block.cells]
    if not wanted:
        return []
    levels = parse_levels(get_pathology(block.pathology), "--observe", wanted)
    pairs = {
        cell.pair
        for cell in block.cells
        if all(cell.condition[name] in chosen for name, chosen in levels.items())
    }
    return [cell.id for cell in block.cells if cell.pair in pairs]


def _no_guest(target: str) -> str:
    """Return why a real machine is not observed, and what to do there instead."""
    # perf does not run beside the measurement: it would interrupt what is measured.
    command = _RECORD if target == "local" else f"ssh {target} {_RECORD}"
    if target == "local" and shutil.which("perf") is None:
        return f"{_NO_GUEST}: install perf (Debian's linux-perf) and profile another run with it"
    return f"{_NO_GUEST}: profile another run with `{command}`"


def prepare_observer(
    blocks: Iterable[Block], wanted: Sequence[str], *, calls: Sequence[str] = ()
) -> list[str]:
    """Build what observes the machines of some blocks; return why some cannot be observed."""
    reasons = []
    seen = set()
    for block in blocks:
        machine = (block.kernel, block.clock, block.machine, block.target)
        cells = observed_cells(block, wanted)
        if not cells or machine in seen:
            continue
        seen.add(machine)
        try:
            if block.target is not None:
                raise CannotRunError(_no_guest(block.target))
            observation_of(target_of(block), block, Observed(cells, calls))
        except CannotRunError as error:
            reasons.append(str(error))
            _log.info("measured, but not observed: %s", error)
    return reasons


def observation_of(target: Target, block: Block, observed: Observed) -> Observation | None:
    """Return the observation of these cells of a block; None without cells."""
    from guestprof.observation import ready_observer
    from iolab.targets.shipped import program_entries

    if not observed.cells:
        return None
    if not isinstance(target, VmTarget):
        raise CannotRunError(_no_guest(block.target or ""))
    return ready_observer(
        target,
        cells=[n for n, cell in enumerate(block.cells) if cell.id in observed.cells],
        files=program_entries(block.plan),
        events=observed.calls,
        flat=observed.flat,
    )


def _measure(
    block: Block, store: RawStore, observed: Observed, progress: Callable[[int, int], None]
) -> str:
    target = target_of(block)
    identity = target.identity()
    key = block_key(block, identity)
    observation = None
    if observed.cells:
        from iolab.store.profiles import ProfileStore

        profiles = ProfileStore(store.root)
        with suppress(CannotRunError):
            # The reason was logged when the observer was prepared.
            observation = observation_of(target, block, observed.lacking(profiles, key))
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
                raise error_of(error.exit_code)(f"results{where} were not kept: {error}") from error
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
    """Run a block's plan on its machine, and return when and how it ran: ``run.json``."""

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
                f"cell {cell} of block {key} gave other results when it was observed: its profile "
                "is not kept"
            )


def measure_block(plan_path: Path, store: RawStore, observed: Observed = _NOTHING) -> str:
    """Measure the block in a file unless the store has it, and return its key."""
    block = read_block(plan_path)
    note = plan_path.with_suffix(".progress")

    def on_progress(done: int, total: int) -> None:
        atomic_write(note, f"{done} {total}\n")

    try:
        return _measure(block, store, observed, on_progress)
    finally:
        note.unlink(missing_ok=True)


def main(argv: list[str]) -> int:
    """Measure the block that the arguments name; print an error as one line of JSON."""
    plan, root, *words = argv

    def measure() -> None:
        observed = Observed(*json.loads(words[0])) if words else _NOTHING
        # The end of the output tells what was done, if no error does.
        with lines_shown(partial(print, flush=True)):
            measure_block(Path(plan), RawStore(Path(root)), observed)

    return run_saying(measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
