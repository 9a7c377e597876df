# SPDX-License-Identifier: MIT
"""How long blocks took on this machine: a line in the cache for each, the newest kept."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from iolab.blocks import Block
from iolab.errors import IolabError
from iolab.files import atomic_write, cache_dir, digest_of, locked
from iolab.sweeps.limits import usable_cores

__all__ = ["Took", "assumed_block", "measured_here", "note_duration"]

# As 90 blocks of the profile study took on two cores of 2026, each with a core of its own: 13 s and
# 2.7 s for each cell with a job of 0.5 s, 2.5 s for each cell that is a number of writes.
_BOOT_S: Final = 13.0
_CELL_S: Final = 1.5
_CELL_S_PER_JOB_S: Final = 2.4
_WRITES_S: Final = 2.5
# Lines that are kept, and the bytes above which the file is cut back to them.
_KEPT: Final = 2000
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Took:
    """How long one block took.

    Parameters
    ----------
    pathology, kernel, clock : str
        What was measured, and by which clock.
    cells : int
        Number of its cells.
    guessed_s : float
        What `assumed_block` says of it.
    seconds : float
        From the start of its program to its end.
    beside : float
        Blocks that ran at the same time, itself among them, on average.
    cores : int
        Cores that they had.
    machine : str
        Digest of the machine's name, processor and number of cores.
    """

    pathology: str
    kernel: str
    clock: str
    cells: int
    guessed_s: float
    seconds: float
    beside: float
    cores: int
    machine: str

    @property
    def alone_s(self) -> float:
        """Seconds that it takes where every block has a core of its own."""
        return self.seconds / max(1.0, self.beside / max(1, self.cores))


def assumed_block(block: Block) -> float:
    """Return the seconds that a block may take, if nothing is known of such blocks."""
    times = (int(getattr(cell.job, "runtime_ms", 0)) for cell in block.plan.cells)
    cells = (_CELL_S + _CELL_S_PER_JOB_S * time / 1e3 if time else _WRITES_S for time in times)
    return _BOOT_S + sum(cells)


def _machine() -> str:
    # A home on NFS is the cache of several machines.
    model = ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line for line in lines if line.startswith("model name")), "")
    except OSError:
        pass
    return digest_of([platform.node(), model, os.cpu_count()])[:16]


def _file() -> Path:
    return cache_dir("durations.jsonl")


def note_duration(block: Block, seconds: float, beside: float) -> None:
    """Keep how long a block took on this machine; a cache that cannot be written keeps nothing.

    Parameters
    ----------
    block : Block
        The block.
    seconds : float
        From the start of its program to its end.
    beside : float
        Blocks that ran at the same time, itself among them, on average.
    """
    took = Took(
        pathology=block.pathology,
        kernel=block.kernel,
        clock=block.clock,
        cells=len(block.cells),
        guessed_s=assumed_block(block),
        seconds=round(seconds, 2),
        beside=round(beside, 2),
        cores=usable_cores(),
        machine=_machine(),
    )
    try:
        path = _file()
        with locked(path.with_name(".durations.lock")):
            with path.open("a") as stream:
                stream.write(json.dumps(asdict(took)) + "\n")
            if path.stat().st_size > _MOST_BYTES:
                kept = path.read_text(errors="replace").splitlines()[-_KEPT:]
                atomic_write(path, "".join(f"{line}\n" for line in kept))
    except (IolabError, OSError):
        # A forecast is no result.
        return


def measured_here() -> list[Took]:
    """Return how long blocks took on this machine, the oldest first; damaged lines are left out."""
    machine, found = _machine(), []
    try:
        lines = _file().read_text(errors="replace").splitlines()
    except (IolabError, OSError):
        return []
    for line in lines:
        try:
            took = Took(**json.loads(line))
            numbers = (took.guessed_s, took.seconds, took.beside, float(took.cores))
            if took.machine == machine and all(0 < number < float("inf") for number in numbers):
                found.append(took)
        except (ValueError, TypeError):
            continue
    return found
