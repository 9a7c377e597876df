# SPDX-License-Identifier: MIT
"""Names and types of the columns of a data set's tables."""

from __future__ import annotations

from typing import Final

from iolab.pathology import get_pathology
from iolab.pathology.factors import IntegerFactor
from iolab.store.program_counters import PROGRAM_COLUMNS
from iolab_base.errors import UserError

__all__ = [
    "CELL_COLUMNS",
    "LATENCY_COLUMNS",
    "MECHANISM_COLUMNS",
    "UNAVAILABLE_COLUMNS",
    "column_types",
]

# The columns of every pathology's cells; the levels of its factors are added.
CELL_COLUMNS: Final = {
    "cell": "str",
    "block": "str",
    "pathology": "str",
    "kernel": "str",
    "kernel_release": "str",
    "scheduler": "str",
    "target": "str",
    "clock": "str",
    "boot": "int64",
    "position": "int64",
    "pair": "int64",
    "role": "str",
    "aa": "bool",
    "recorded": "bool",
    "twin": "str",
    "iops": "float64",
    "steady_iops": "float64",
    "seconds_per_io": "float64",
    "latency_mean_ns": "float64",
    "latency_p50_ns": "float64",
    "latency_p95_ns": "float64",
    "latency_p99_ns": "float64",
    "latency_p999_ns": "float64",
    "fio_cpu": "float64",
    "kworker_cpu": "float64",
    "idle": "float64",
    "switches_per_io": "float64",
    "fio_voluntary_per_io": "float64",
    "fio_involuntary_per_io": "float64",
    "ios": "int64",
    "runtime_s": "float64",
    **dict.fromkeys(PROGRAM_COLUMNS, "float64"),
    "valid": "bool",
    "gate": "str",
}
LATENCY_COLUMNS: Final = {"cell": "str", "bin_ns": "float64", "count": "int64"}
MECHANISM_COLUMNS: Final = {"cell": "str", "measure": "str", "value": "float64"}
UNAVAILABLE_COLUMNS: Final = {"kernel": "str", "reason": "str"}


def column_types(pathology: str) -> dict[str, str]:
    """Return a pathology's cell columns with types; UserError if a factor's name is taken."""
    found = get_pathology(pathology)
    columns = dict(CELL_COLUMNS)
    if taken := sorted(set(columns) & set(found.factors)):
        raise UserError(f"pathology {pathology}: a factor cannot be called {', '.join(taken)}")
    for name, factor in found.factors.items():
        number = "Int64" if name == found.treatment else "int64"
        columns[name] = number if isinstance(factor, IntegerFactor) else "str"
    return columns
