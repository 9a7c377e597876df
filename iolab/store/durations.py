# SPDX-License-Identifier: MIT
"""How long the blocks of a store took to measure, to predict how long others will take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BlockDuration", "block_durations"]


@dataclass(frozen=True)
class BlockDuration:
    """How long one block took.

    Parameters
    ----------
    pathology, clock : str
        What was measured, and by which clock.
    target : str
        Kind of the machine: "vm", "local" or "ssh".
    runtime_ms : int
        Longest job of the block in the machine's own time; 0 where cells are numbers of writes.
    cells : int
        Number of cells.
    wall_s : float
        Seconds from the start of the machine to its results.
    """

    pathology: str
    clock: str
    target: str
    runtime_ms: int
    cells: int
    wall_s: float


def block_durations(root: Path) -> list[BlockDuration]:
    """Return the durations of all blocks in the store below `root`.

    Blocks that are damaged, or of a format without these fields, are left out.
    """
    durations = []
    for folder in sorted((root / "raw").glob("[0-9a-f]*")):
        try:
            block, target, run = (
                json.loads((folder / f"{name}.json").read_text())
                for name in ("block", "target", "run")
            )
            jobs = (cell.get("job") or {} for cell in block["plan"]["cells"])
            durations.append(
                BlockDuration(
                    pathology=str(block["pathology"]),
                    clock=str(block["clock"]),
                    target=str(target["target"]),
                    runtime_ms=max((int(job.get("runtime_ms", 0)) for job in jobs), default=0),
                    cells=len(block["cells"]),
                    wall_s=float(run["wall_s"]),
                )
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return durations
