# SPDX-License-Identifier: MIT
"""Archives of seconds per I/O that pyperf's own tools read."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyperf import Benchmark, BenchmarkSuite, Run

from iolab.pathology.base import Pathology
from iolab.pathology.factors import NO_INTERVENTION, CategoricalFactor
from iolab.stats.conditions import (
    cell_columns,
    kernels_of,
    levels_of,
    pathology_of,
    refuse_mixture,
    shared_columns,
    valid_cells,
)
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from iolab_base.files import atomic_write

_VALUE = "seconds_per_io"
_CONTROL = "control"


@dataclass(frozen=True)
class Archive:
    """An archive of pyperf for one kernel and one level of the treatment, or "control"."""

    path: Path
    kernel: str
    treatment: str
    level: int | str


def _pyperf_suites(data: Dataset) -> dict[tuple[str, int | str], BenchmarkSuite]:
    """Return a suite by kernel and level: kernels by version, each with its control first."""
    # A benchmark is a condition, a run a boot, a value the seconds per I/O of one valid untraced
    # cell. A name leaves out the treatment's level and first levels of categorical factors, so that
    # a condition and its control compare on every machine; the metadata have every factor. pyperf
    # assumes independent values; those of one boot are not.
    kept = valid_cells(data.cells, _VALUE)
    good = (kept[_VALUE] > 0) & (kept[_VALUE] < math.inf)
    if not good.all():
        cell = kept.loc[~good, "cell"].iloc[0]
        raise UserError(f"the valid cell {cell} has no seconds per I/O above 0")
    condition = cell_columns(kept)
    refuse_mixture(kept, condition, condition)
    kept = kept.sort_values([*condition, "boot", "block", "position"], na_position="first")
    treatment = pathology_of(kept).treatment
    suites = {}
    for kernel in kernels_of(kept):
        here = kept[kept["kernel"] == kernel]
        for level in (None, *levels_of(here)):
            side = here[here[treatment].isna() if level is None else here[treatment] == level]
            if not side.empty:
                groups = side.groupby(condition, dropna=False, sort=False)
                benchmarks = [_benchmark(group) for _, group in groups]
                suites[kernel, _plain(level)] = BenchmarkSuite(benchmarks)
    return suites


def write_archives(data: Dataset, folder: Path) -> list[Archive]:
    """Write ``KERNEL-control.json`` and ``KERNEL-TREATMENT-LEVEL.json`` of benchmarks."""
    suites = _pyperf_suites(data)
    treatment = pathology_of(data.cells).treatment
    archives = []
    for kernel, level in suites:
        if Path(kernel).name != kernel:
            raise UserError(f"a kernel's archive cannot be named {kernel!r}")
        side = _CONTROL if level == _CONTROL else f"{treatment}-{level}"
        archives.append(Archive(folder / f"{kernel}-{side}.json", kernel, treatment, level))
    for archive, suite in zip(archives, suites.values(), strict=True):
        text = io.StringIO()
        suite.dump(text)
        atomic_write(archive.path, text.getvalue())
    return archives


def _benchmark(cells: pd.DataFrame) -> Benchmark:
    """Return the cells of one condition on one kernel as a benchmark, a run for each boot."""
    pathology = pathology_of(cells)
    first = cells.iloc[0]
    condition = {name: _plain(first[name]) for name in shared_columns(cells)[1:]}
    metadata = {
        "name": _name(condition, pathology),
        "unit": "second",
        "description": "seconds per I/O of each measured run",
        **{
            name: str(first[name])
            for name in ("pathology", "kernel", "kernel_release", "scheduler", "target", "clock")
        },
        **condition,
        pathology.treatment: _plain(first[pathology.treatment]),
    }
    return Benchmark([_run(boot, metadata) for _, boot in cells.groupby("block", sort=False)])


def _run(cells: pd.DataFrame, metadata: Mapping[str, Any]) -> Run:
    """Return one boot's cells as a run."""
    own = {
        "block": str(cells["block"].iloc[0]),
        "boot": int(cells["boot"].iloc[0]),
        # For the whole run: each of its values is the mean of at least so many I/Os.
        "loops": int(cells["ios"].min()),
        "duration": float(cells["runtime_s"].sum()),
    }
    values = [float(value) for value in cells[_VALUE]]
    return Run(values, metadata={**metadata, **own}, collect_metadata=False)


def _plain(level: Any) -> int | str:
    """Return a level as a plain value, "control" for the control."""
    if pd.isna(level):
        return _CONTROL
    return level if isinstance(level, str) else int(level)


def _name(condition: Mapping[str, int | str], pathology: Pathology) -> str:
    """Return the measure and a condition's FACTOR=LEVEL words, without the usual ones."""
    words = []
    for name, level in condition.items():
        factor = pathology.factors[name]
        usual = factor.levels[0] if isinstance(factor, CategoricalFactor) else NO_INTERVENTION
        if level != usual:
            words.append(f"{name}={level}")
    return " ".join([_VALUE, *words])
