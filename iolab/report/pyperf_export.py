# SPDX-License-Identifier: MIT
"""Measured cells as archives of pyperf: seconds per I/O, for its own tools to read."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pyperf import Benchmark, BenchmarkSuite, Run

from iolab.errors import UserError
from iolab.files import atomic_write
from iolab.stats.conditions import (
    cell_columns,
    kernel_order,
    pathology_of,
    refuse_mixture,
    shared_columns,
    valid_cells,
)
from iolab.store.dataset import Dataset

__all__ = ["pyperf_suites", "write_archives"]

_VALUE = "seconds_per_io"


def pyperf_suites(data: Dataset) -> dict[str, BenchmarkSuite]:
    """Return a suite of benchmarks for each kernel that has valid cells, in the kernels' order.

    A benchmark is a condition, a run of it a boot, a value the seconds per I/O of one valid cell
    that was not traced; ``loops`` is the fewest I/Os behind a value of the run, ``duration`` the
    seconds that its cells ran. A benchmark's name holds every factor of the pathology, so that a
    condition has the same name in all archives: of another kernel, another machine, another sweep.
    Nothing of the machine that writes the archive is in it. pyperf takes all values for independent
    ones; those of one boot are not.

    Errors: UserError if no cell is valid, if a valid one has no seconds per I/O above 0, or if one
    condition would pool several releases, targets or clocks.
    """
    kept = valid_cells(data.cells, _VALUE)
    good = (kept[_VALUE] > 0) & (kept[_VALUE] < math.inf)
    if not good.all():
        cell = kept.loc[~good, "cell"].iloc[0]
        raise UserError(f"the valid cell {cell} has no seconds per I/O above 0")
    state = cell_columns(kept)
    refuse_mixture(kept, state, state)
    condition = [*shared_columns(kept), pathology_of(kept).treatment]
    kept = kept.sort_values([*condition, "boot", "block", "position"], na_position="first")
    return {
        kernel: BenchmarkSuite(
            [_benchmark(group) for _, group in here.groupby(state, dropna=False, sort=False)]
        )
        for kernel in sorted(kept["kernel"].unique(), key=kernel_order)
        for here in [kept[kept["kernel"] == kernel]]
    }


def write_archives(data: Dataset, folder: Path) -> list[Path]:
    """Write ``KERNEL.json`` for each kernel of `pyperf_suites` into `folder`; return the paths.

    The same data give the same bytes; each file is whole or absent. Errors: as `pyperf_suites`;
    UserError for a kernel whose name is no file's; IolabError if the folder cannot be written.
    """
    suites = pyperf_suites(data)
    for kernel in suites:
        if Path(kernel).name != kernel:
            raise UserError(f"a kernel's archive cannot be named {kernel!r}")
    paths = []
    for kernel, suite in suites.items():
        text = io.StringIO()
        suite.dump(text)
        paths.append(folder / f"{kernel}.json")
        atomic_write(paths[-1], text.getvalue())
    return paths


def _benchmark(cells: pd.DataFrame) -> Benchmark:
    """Return the cells of one condition on one kernel as a benchmark, a run for each boot."""
    pathology = pathology_of(cells)
    first = cells.iloc[0]
    condition = _condition(first, [*shared_columns(cells)[1:], pathology.treatment])
    metadata = {
        "name": _name(condition, pathology.treatment),
        "unit": "second",
        "description": "seconds per I/O of each measured run",
        **{
            name: str(first[name])
            for name in ("pathology", "kernel", "kernel_release", "scheduler", "target", "clock")
        },
        **condition,
    }
    return Benchmark([_run(boot, metadata) for _, boot in cells.groupby("block", sort=False)])


def _run(cells: pd.DataFrame, metadata: Mapping[str, Any]) -> Run:
    """Return one boot's cells as a run."""
    own = {
        "block": str(cells["block"].iloc[0]),
        "boot": int(cells["boot"].iloc[0]),
        # Of a whole run, so what holds for each of its values: the mean of at least so many I/Os.
        "loops": int(cells["ios"].min()),
        "duration": float(cells["runtime_s"].sum()),
    }
    values = [float(value) for value in cells[_VALUE]]
    return Run(values, metadata={**metadata, **own}, collect_metadata=False)


def _condition(cell: pd.Series[Any], factors: list[str]) -> dict[str, int | str]:
    """Return the levels of a cell's factors as plain values; the control's own is "control"."""
    levels = {name: "control" if pd.isna(cell[name]) else cell[name] for name in factors}
    return {name: v if isinstance(v, str) else int(v) for name, v in levels.items()}


def _name(condition: Mapping[str, int | str], treatment: str) -> str:
    """Return a condition as FACTOR=LEVEL words, the treatment first."""
    others = [f"{name}={level}" for name, level in condition.items() if name != treatment]
    return " ".join([f"{treatment}={condition[treatment]}", *others])
