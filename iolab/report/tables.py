# SPDX-License-Identifier: MIT
"""Tables for a page: what was measured and on which machine, what holds, what a treatment does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from iolab.pathology.base import Pathology
from iolab.stats.conditions import (
    cell_columns,
    comparable_cells,
    kernels_of,
    main_value,
    pathology_of,
    shared_columns,
)
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.kernels import kernel_ratio
from iolab.stats.tables import mean_table, ratio_table
from iolab.store.dataset import Dataset, with_measure
from iolab.store.kernels import KernelBuild
from iolab.store.soundness import findings

__all__ = [
    "aa_check",
    "control_load",
    "effect_table",
    "factors",
    "invalid_cells",
    "kernel_effects",
    "level_table",
    "machine_table",
    "main_grid",
    "mechanism_table",
    "overview",
    "traced_measures",
]

# A core idle for at least this share of its time does not limit the control.
IDLE_SHARE: Final = 0.05


def overview(cells: pd.DataFrame, kernels: Mapping[str, KernelBuild] | None = None) -> pd.DataFrame:
    """Return what was measured on each kernel.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    kernels : mapping of str to KernelBuild, optional
        How each kernel was built and booted, as `iolab.store.dataset.Dataset` has it.

    Returns
    -------
    DataFrame
        A row for each kernel: kernel, release, scheduler, preemption (the model in use) and hz (the
        timer ticks per second; both missing where they are not known), clock, the levels of each
        factor, boots, cells, invalid (counts).
    """
    rows = []
    for kernel in kernels_of(cells):
        here = cells[cells["kernel"] == kernel]
        build = (kernels or {}).get(kernel, KernelBuild())
        rows.append(
            {
                "kernel": kernel,
                "release": _listed(here["kernel_release"]),
                "scheduler": _listed(here["scheduler"]),
                "preemption": build.preemption or None,
                "hz": build.hz,
                "clock": _listed(here["clock"]),
                **{name: _listed(here[name].dropna()) for name in factors(cells)},
                "boots": here["block"].nunique(),
                "cells": len(here),
                "invalid": int((~here["valid"]).sum()),
            }
        )
    return pd.DataFrame(rows).astype({"hz": "Int64"})


def factors(cells: pd.DataFrame) -> list[str]:
    """Return the names of all factors of the cells' pathology, the treatment first."""
    pathology = pathology_of(cells)
    return sorted(pathology.factors, key=lambda name: name != pathology.treatment)


def main_grid(cells: pd.DataFrame, keep: Sequence[str] = ()) -> pd.DataFrame:
    """Return the cells of a pathology's main condition; side experiments are left out.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    keep : sequence of str
        Factors of which all levels are kept.

    Returns
    -------
    DataFrame
        The cells in which each factor but the treatment, the kernel and those of `keep` has the
        level that most cells have.
    """
    for name in shared_columns(cells):
        if name != "kernel" and name not in keep:
            cells = cells[cells[name] == cells[name].mode().iloc[0]]
    return cells


def level_table(data: Dataset, value: str, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Return the mean of a value in each condition, the control first.

    Parameters
    ----------
    data : Dataset
        Measured data.
    value : str
        A column of the cells, or a measure of the pathology.
    confidence : float
        Level of the intervals, 0 to 1.

    Returns
    -------
    DataFrame
        A row for each kernel and condition: kernel, the factors that vary, the treatment (the
        control by its name), mean, low, high (t interval over boots), n (boots), cells.
    """
    table = mean_table(comparable_cells(with_measure(data, value)), value, confidence=confidence)
    pathology = pathology_of(data.cells)
    columns = [*_varying(table, data.cells), pathology.treatment]
    columns += ["mean", "low", "high", "n", "cells"]
    made = _with_control(table[columns], pathology)
    # What the numbers are, for their formatting.
    made.attrs["value"] = value
    return made


def effect_table(
    cells: pd.DataFrame,
    value: str = "iops",
    *,
    levels: Sequence[int | str] | None = None,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """Return the ratio of a value to the control's in a few rows, with a reading in words.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    value : str
        Column to compare.
    levels : sequence, optional
        Levels of the treatment, chosen before looking at the results; all by default.
    confidence : float
        Level of the intervals, 0 to 1.

    Returns
    -------
    DataFrame
        A row for each kernel and treated condition: kernel, the factors that vary, the treatment,
        ratio, low, high (t interval over boots), n (boots), reading (on which side of 1 the whole
        interval lies).
    """
    treatment = pathology_of(cells).treatment
    table = ratio_table(comparable_cells(cells), value, confidence=confidence)
    table = table[~table["aa"]]
    if levels is not None:
        table = table[table[treatment].isin(list(levels))]
    columns = [*_varying(table, cells), treatment, "ratio", "low", "high", "n"]
    # On machines of their own, cells are not paired.
    how = ", unpaired" if pathology_of(cells).apart else ""
    readings = [_reading(row) + how for row in table.to_dict("records")]
    return table[columns].assign(reading=readings).reset_index(drop=True)


def aa_check(cells: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Compare the control with itself: the ratio of the A/A pairs, which should be 1.

    At a confidence of 95 %, one interval in twenty misses although all is well.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    confidence : float
        Level of the intervals, 0 to 1.

    Returns
    -------
    DataFrame
        A row for each kernel and control condition, none without valid A/A pairs: kernel, the
        factors that vary, ratio, low, high, n (boots), pairs, p_value, and holds: whether the
        interval contains 1, or, where all boots agree to the last digit, their value is 1 (missing
        with a single boot).
    """
    kept = comparable_cells(cells)
    numbers = ["ratio", "low", "high", "n", "pairs", "p_value"]
    if not kept["aa"].any():
        return pd.DataFrame(columns=["kernel", *numbers, "holds"])
    table = ratio_table(kept, main_value(kept), confidence=confidence)
    table = table[table["aa"]].reset_index(drop=True)
    low, high = (table[name].fillna(table["ratio"].round(12)) for name in ("low", "high"))
    holds = ((low <= 1) & (high >= 1)).astype("boolean")
    columns = [*_varying(table, cells), *numbers]
    return table[columns].assign(holds=holds.mask(table["n"] < 2))


def control_load(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what limits the control: its device, or the core.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.

    Returns
    -------
    DataFrame
        A row for each kernel and control condition: kernel, all factors but the treatment, idle
        (share of the core's time, 0 to 1), iops, n (boots), and limit: "device" where the core is
        idle for at least 5 % of its time, else "core"; "unknown" where the machine does not count
        it.
    """
    kept = comparable_cells(cells)
    controls = kept[kept[pathology_of(kept).treatment].isna()]
    table = mean_table(controls, "idle").rename(columns={"mean": "idle"})
    return table[[*shared_columns(cells), "idle", "n"]].assign(
        iops=mean_table(controls, "iops")["mean"],
        limit=np.select(
            [table["idle"].isna(), table["idle"] >= IDLE_SHARE], ["unknown", "device"], "core"
        ),
    )


def invalid_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that a gate has excluded.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.

    Returns
    -------
    DataFrame
        A row for each: kernel, block, position, role, gate (the reason), all factors, cell.
    """
    columns = ["kernel", "block", "position", "role", "gate", *factors(cells), "cell"]
    return cells.loc[~cells["valid"], columns].reset_index(drop=True)


def kernel_effects(cells: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Compare each kernel's effect on IOPS with the oldest kernel's.

    Parameters
    ----------
    cells : DataFrame
        Cells of one pathology.
    confidence : float
        Level of the intervals, 0 to 1.

    Returns
    -------
    DataFrame
        Rows of `iolab.stats.kernels.kernel_ratio` for all kernels, A/A pairs too, with the reason
        of a kernel whose cells were all gated; empty with a single kernel.
    """
    kept = comparable_cells(cells)
    first, *others = kernels_of(cells)
    tables = [
        kernel_ratio(
            cells, main_value(kept), base=first, other=other, effect=True, confidence=confidence
        )
        for other in others
        if kept["kernel"].isin([first, other]).any()
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def mechanism_table(data: Dataset) -> pd.DataFrame:
    """Return what the traces say in each condition, the control by its name.

    Parameters
    ----------
    data : Dataset
        Measured data.

    Returns
    -------
    DataFrame
        A row for each kernel and recorded condition: kernel, the factors that vary, the treatment,
        n (valid recorded cells), and the mean of each measure, with its unit in the name.
    """
    return _with_control(traced_measures(data), pathology_of(data.cells))


def traced_measures(data: Dataset) -> pd.DataFrame:
    """Return `mechanism_table` with the treatment missing in the control."""
    recorded = data.cells.loc[data.cells["recorded"] & data.cells["valid"], "cell"]
    measures = data.mechanism[data.mechanism["cell"].isin(recorded)]
    wide = measures.pivot(index="cell", columns="measure", values="value")
    wide = wide[list(measures["measure"].unique())]
    rows = data.cells.merge(wide, left_on="cell", right_index=True)
    condition = cell_columns(data.cells)
    grouped = rows.groupby(condition, dropna=False, observed=True)
    table = grouped[list(wide.columns)].mean().reset_index()
    table.insert(len(condition), "n", grouped.size().to_numpy())
    order = [kernels_of(table).index(kernel) for kernel in table["kernel"]]
    treatment = pathology_of(data.cells).treatment
    table = table.assign(order=order).sort_values(["order", treatment], na_position="first")
    columns = [*_varying(table, data.cells), treatment, "n", *wide.columns]
    return table[columns].reset_index(drop=True)


def _varying(table: pd.DataFrame, cells: pd.DataFrame) -> list[str]:
    """Return the kernel and the factors that distinguish the rows."""
    return [n for n in shared_columns(cells) if n == "kernel" or table[n].nunique() > 1]


def _with_control(table: pd.DataFrame, pathology: Pathology) -> pd.DataFrame:
    """Return a table with the control's name in place of a missing level of the treatment."""
    levels = table[pathology.treatment].astype(object)
    return table.assign(**{pathology.treatment: levels.where(levels.notna(), pathology.control)})


def _reading(row: Mapping[Any, Any]) -> str:
    if row["n"] < 2:
        return "one boot: no interval"
    # Boots that agree to the last digit have no spread for an interval.
    low, high = (row["ratio"] if math.isnan(row[name]) else row[name] for name in ("low", "high"))
    if high < 1:
        return "treatment lower"
    return "treatment higher" if low > 1 else "no difference seen"


def _listed(values: pd.Series) -> str:
    return ", ".join(str(value) for value in sorted(values.unique()))


def machine_table(facts: Mapping[str, Any]) -> pd.DataFrame:
    """Return what a real machine's survey says: a row for each thing that was looked at.

    Parameters
    ----------
    facts : mapping
        The facts of a block, with its survey.

    Returns
    -------
    DataFrame
        Columns: looked at, found, reading ("good", "a warning" or "no cell is valid").
    """
    rows = []
    for finding in findings(facts):
        bad = "no cell is valid" if finding["needed"] else "a warning"
        rows.append((finding["what"], finding["found"], "good" if finding["good"] else bad))
    return pd.DataFrame(rows, columns=["looked at", "found", "reading"])
