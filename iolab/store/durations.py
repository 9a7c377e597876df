# SPDX-License-Identifier: MIT
"""Durations of a store's measured blocks, to predict those of other blocks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iolab.store.raw import RawStore
from iolab_base.errors import IolabError

__all__ = ["BlockDuration", "block_durations"]

_DAMAGED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class BlockDuration:
    """How long one block took: `wall_s` is from the start of its machine to its results.

    The target is "vm", "local" or "ssh". `runtime_ms` is the longest job in the machine's own time,
    0 where cells are numbers of writes.
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
    store = RawStore(root)
    for key in store.all_keys():
        try:
            block, target, run = (
                json.loads(store.content(key, f"{name}.json"))
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
        except (IolabError, *_DAMAGED):
            continue
    return durations
