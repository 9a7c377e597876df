# SPDX-License-Identifier: MIT
"""All results of one data set as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from iolab.pathology.base import rules_digest
from iolab.report.tables import aa_check, invalid_cells, kernel_effects, overview, traced_measures
from iolab.stats.conditions import comparable_cells, main_value, order_table, pathology_of
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.tables import mean_table, ratio_table, recording_cost
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset, with_measure
from iolab_base.files import atomic_write

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

    `published` is stored as it is. p-values are corrected for the conditions of `family`, as in
    `iolab.stats.tables.ratio_table`. `more` has further tables, by the key they get.

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
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
