# SPDX-License-Identifier: MIT
"""Measure one block for a cluster: ``python -m iolab_cluster.program TASK FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from iolab.blocks import Block
from iolab.store.raw import block_key
from iolab.sweeps.block import run_on
from iolab.sweeps.pool import run_saying
from iolab.targets import target_of
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.files import atomic_write, canonical_json

# Exit code of a worker whose machine differs from the one that was asked for.
OTHER_MACHINE = 4


class _OtherMachineError(IolabError):
    exit_code = OTHER_MACHINE


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    """Return the names of the parts in which two identities of machines differ."""
    names = sorted({*expected, *found})
    return ", ".join(name for name in names if expected.get(name) != found.get(name))


def _measure(task: dict[str, Any], folder: Path) -> None:
    block = Block.parse(task["block"])
    try:
        target = target_of(block)
    except CannotRunError as error:
        raise _OtherMachineError(str(error)) from error
    identity = target.identity()
    if block_key(block, identity) != task["key"]:
        raise _OtherMachineError(
            "it would measure with another machine than the client's: "
            f"{difference(task['identity'], identity)} differs"
        )
    note = folder.with_name(f"{folder.name}.progress")

    def progress(done: int, total: int) -> None:
        atomic_write(note, str(done))

    run = run_on(target, block, folder, progress)
    atomic_write(folder / "run.json", canonical_json(run))


def main(argv: list[str]) -> int:
    """Measure the block of the task in a file; print an error as one line of JSON."""
    task, folder = map(Path, argv)

    def measure() -> None:
        _measure(json.loads(task.read_text()), folder)

    return run_saying(measure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
