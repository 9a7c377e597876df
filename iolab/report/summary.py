# SPDX-License-Identifier: MIT
"""Results for other programs: all of a data set as JSON, and archives that pyperf's tools read."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from pyperf import Benchmark, BenchmarkSuite, Run

from iolab.pathology.base import Pathology, rules_digest
from iolab.pathology.factors import NO_INTERVENTION, CategoricalFactor
from iolab.report.tables import aa_check, invalid_cells, kernel_effects, overview, traced_measures
from iolab.stats.conditions import (
    cell_columns,
    comparable_cells,
    kernels_of,
    levels_of,
    main_value,
    order_table,
    pathology_of,
    refuse_mixture,
    shared_columns,
    valid_cells,
)
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.tables import mean_table, ratio_table, recording_cost
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset, with_measure
from iolab_base.errors import UserError
from iolab_base.files import atomic_write, finite

_MEANS: Final = ("iops", "switches_per_io", "fio_cpu", "kworker_cpu", "idle")
_RATIOS: Final = ("iops", "latency_p50_ns", "latency_p99_ns")


def summary(
    data: Dataset,
    *,
    published: Mapping[str, Any] | None = None,
    family: Sequence[Mapping[str, object]] | None = None,
    more: Mapping[str, pd.DataFrame] | None = None,
    confidence: float = CONFIDENCE,
) -> dict[str, Any]:
    """Return all results of a data set as plain JSON values.

    `published` is stored as it is. It corrects p-values for the conditions of `family`, as
    `iolab.stats.tables.ratio_table` does. `more` has further tables, by the key they get.

    Keys: pathology, target, clock, confidence, kernels, unavailable, published, cells, rules_sha256
    (of `iolab.pathology.base.rules_digest`), verdicts, ratios (by value: rows of `ratio_table`),
    means (by value: rows of `mean_table`), measures (the same of the pathology's own), aa, order,
    kernel_effects, mechanism (what the traces say), recording (what tracing cost), and those of
    `more`. Units are in the names; what is missing is None.
    """
    cells = comparable_cells(data.cells)
    context = {name: str(cells[name].iloc[0]) for name in ("pathology", "target", "clock")}
    ratios = {
        value: ratio_table(cells, value, family=family, confidence=confidence)
        for value in dict.fromkeys((main_value(cells), *_RATIOS))
        if cells[value].notna().all()
    }
    counted = data.mechanism.loc[data.mechanism["cell"].isin(cells["cell"]), "measure"].unique()
    own = {name: comparable_cells(with_measure(data, name)) for name in counted}
    results: dict[str, Any] = plain(
        {
            **context,
            "confidence": confidence,
            "kernels": overview(data.cells, data.kernels),
            "unavailable": data.unavailable,
            "published": None if published is None else dict(published),
            "cells": {
                "total": len(data.cells),
                "valid": len(cells),
                "invalid": invalid_cells(data.cells),
            },
            "rules_sha256": rules_digest(pathology_of(cells)),
            "verdicts": verdict_table(data, confidence=confidence),
            "ratios": ratios,
            "means": {
                value: mean_table(cells, value, confidence=confidence)
                for value in _MEANS
                # A program's I/O is not counted; a core's idle time may be unknown.
                if main_value(cells) == "iops" or cells[value].notna().all()
            },
            "measures": {
                name: mean_table(c, name, confidence=confidence) for name, c in own.items()
            },
            "aa": aa_check(cells, confidence=confidence),
            "order": order_table(cells, main_value(cells), confidence=confidence),
            "kernel_effects": kernel_effects(data.cells, confidence=confidence),
            "mechanism": traced_measures(data),
            "recording": recording_cost(data.cells, confidence=confidence),
            **(more or {}),
        }
    )
    return results


def write_summary(path: Path | str, results: Mapping[str, Any]) -> None:
    """Write a `summary` as JSON, the same text for the same results; whole or not at all."""
    text = json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    atomic_write(Path(path), text + "\n")


def plain(value: Any) -> Any:
    """Return a table, number, text, or mappings and lists of these as plain JSON.

    Tables become lists of rows; what is missing or not finite becomes None.
    """
    if isinstance(value, pd.DataFrame):
        return [plain(row) for row in value.to_dict(orient="records")]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is pd.NA else finite(value)


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
