# SPDX-License-Identifier: MIT
"""Made-up data of every pathology, as one of its profiles would measure it.

Nothing here is a measurement, and it is never stored as a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.store.counters import (
    CELL_COLUMNS,
    LATENCY_COLUMNS,
    MECHANISM_COLUMNS,
    UNAVAILABLE_COLUMNS,
    column_types,
)
from iolab.store.dataset import Dataset

COMMAND = "nox -s sweep -- --profile study --kernel 6.1 --kernel 6.12"
_RATIO = 0.6
# Measures that a page shows although no claim is about them.
_SHOWN = {
    "aio_migration": {"migrations_per_1000_ios"},
    "bfq_idling": {"kb_per_s", "device_ios_per_write"},
    "fsnotify_contention": {"__fsnotify_parent_per_io"},
}


def report(
    name: str, *, kernels: Sequence[str] = ("6.1", "6.12"), seed: int = 0, profile: str = ""
) -> Dataset:
    """Return data in which each value of a treated cell is 0.6 of the control's, with 1 % noise."""
    rng = np.random.default_rng(seed)
    pathology = get_pathology(name)
    values = {c.value for c in pathology.claims} - set(column_types(name))
    values |= _SHOWN.get(name, set())
    rows: list[dict[str, Any]] = []
    told: list[tuple[str, str, float]] = []
    # A pathology of a user need not have a study.
    usual = "study" if "study" in pathology.profiles else "quick"
    measured = pathology.profiles[profile or usual]
    for kernel in kernels:
        for block in blocks_of(pathology, measured, kernel=kernel, clock="virtual"):
            for cell in block.cells:
                key = f"{block.plan.block}/{cell.id}"
                treated = cell.role == "treatment" and not cell.aa
                value = (_RATIO if treated else 1.0) * float(np.exp(0.01 * rng.standard_normal()))
                rows.append(
                    {column: value for column, kind in CELL_COLUMNS.items() if kind == "float64"}
                    | {"cell": key, "block": block.plan.block, "boot": block.boot}
                    | {"pathology": name, "kernel": kernel, "kernel_release": f"{kernel}-made-up"}
                    | {"scheduler": "CFS", "target": "vm", "clock": "virtual", "ios": 1000}
                    | {n: getattr(cell, n) for n in ("position", "pair", "role", "aa", "recorded")}
                    | {"twin": cell.twin or "", "valid": True, "gate": "", **cell.condition}
                )
                told += [(key, measure, value) for measure in sorted(values)]
    columns = column_types(name)
    cells = pd.DataFrame(rows, columns=list(columns)).astype(columns)
    latency = pd.DataFrame({"cell": cells["cell"], "bin_ns": 1e6, "count": 1})
    unavailable = pd.DataFrame([{"kernel": "6.8", "reason": "6.8 cannot be fetched here"}])
    return Dataset(
        cells,
        latency.astype(LATENCY_COLUMNS),
        unavailable.astype(UNAVAILABLE_COLUMNS),
        pd.DataFrame(told, columns=list(MECHANISM_COLUMNS)).astype(MECHANISM_COLUMNS),
        traces={},
    )


def every_report() -> dict[str, Dataset]:
    """Return made-up data of each pathology by its name."""
    return {name: report(name, seed=number) for number, name in enumerate(PATHOLOGIES)}
