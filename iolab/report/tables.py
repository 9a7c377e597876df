# SPDX-License-Identifier: MIT
"""Tables for a page: what was measured and on which machine, what holds, what a treatment does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pandas as pd

from fiojobs import Row
from iolab.figures.style import condition_text
from iolab.pathology.base import Pathology
from iolab.pathology.factors import Condition
from iolab.stats.claims import cells_of
from iolab.stats.conditions import (
    cell_columns,
    comparable_cells,
    in_kernel_order,
    kernels_of,
    main_value,
    pair_columns,
    pathology_of,
    shared_columns,
)
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.tables import kernel_ratio, mean_table, ratio_table
from iolab.store.dataset import Dataset, KernelBuild, with_measure
from iolab.store.soundness import findings

# A core idle for at least this share of its time does not limit the control.
_IDLE_SHARE: Final = 0.05


def overview(cells: pd.DataFrame, kernels: Mapping[str, KernelBuild] | None = None) -> pd.DataFrame:
    """Return what was measured on each kernel.

    A row has kernel, release, scheduler, preemption (the model in use) and hz (the timer ticks per
    second; both missing where `kernels`, as a `Dataset` has them, do not say), clock, the levels of
    each factor, boots, cells, invalid (counts).
    """
    rows, names = [], factors(cells)
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
                **{name: _listed(here[name].dropna()) for name in names},
                "boots": here["block"].nunique(),
                "cells": len(here),
                "invalid": int((~here["valid"]).sum()),
            }
        )
    return pd.DataFrame(rows).astype({"hz": "Int64"})


def kernel_columns(cells: pd.DataFrame, kernels: Mapping[str, KernelBuild]) -> pd.DataFrame:
    """Return `overview` on its side: a row for each thing in ``what``, a column for each kernel."""
    table = overview(cells, kernels).set_index("kernel").T
    return table.rename_axis("what").reset_index()


def recipe_table(pathology: Pathology) -> pd.DataFrame:
    """Return how a recipe differs from its report, or how iolab translated a fio job.

    A row has ``section``, ``option``, ``asked``, ``measured`` and ``why``; the rest is as asked.
    """
    names = [field.name for field in fields(Row)]
    return pd.DataFrame([vars(row) for row in pathology.translation], columns=names)


def factors(cells: pd.DataFrame) -> list[str]:
    """Return the names of all factors of the cells' pathology, the treatment first."""
    pathology = pathology_of(cells)
    return sorted(pathology.factors, key=lambda name: name != pathology.treatment)


def main_grid(cells: pd.DataFrame, keep: Sequence[str] = ()) -> pd.DataFrame:
    """Return the cells of a pathology's main condition; side experiments are left out.

    Each factor but the treatment, the kernel and those of `keep` has the level that most cells
    have.
    """
    for name in shared_columns(cells):
        if name != "kernel" and name not in keep:
            cells = cells[cells[name] == cells[name].mode().iloc[0]]
    return cells


def level_table(data: Dataset, value: str, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Return the mean of a column of the cells, or a measure of the pathology, in each condition.

    A row has the kernel, the factors that vary, the treatment (the control first, by its name),
    mean, low, high, n, cells. ``idle`` is not below 0.
    """
    table = mean_table(comparable_cells(with_measure(data, value)), value, confidence=confidence)
    if value == "idle":
        # A cell has the difference of two counts, which may be a little below 0 for a busy core.
        shares = ["mean", "low", "high"]
        table[shares] = table[shares].clip(lower=0)
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

    `levels` of the treatment are chosen before looking at the results; by default all. A row has
    the kernel, the factors that vary, the treatment, ratio, low, high, n, and reading: on which
    side of 1 the whole interval lies, or that no pair is valid.
    """
    pathology = pathology_of(cells)
    treatment = pathology.treatment
    # On machines of their own, cells are not paired.
    if _has_pairs(cells.assign(block="", pair=0) if pathology.apart else cells):
        table = ratio_table(cells, value, confidence=confidence)
    else:
        table = cells[cells["role"] == "treatment"].drop_duplicates(pair_columns(cells))
        table = table.assign(ratio=math.nan, low=math.nan, high=math.nan, n=0)
    table = table[~table["aa"]]
    if levels is not None:
        table = table[table[treatment].isin(list(levels))]
    columns = [*_varying(table, cells), treatment, "ratio", "low", "high", "n"]
    how = ", unpaired" if pathology.apart else ""
    readings = [_reading(row) + how for row in table.to_dict("records")]
    return table[columns].assign(reading=readings).reset_index(drop=True)


def aa_check(
    cells: pd.DataFrame, value: str | None = None, *, confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """Compare the control with itself: the ratio of the A/A pairs, which should be 1.

    `value` is a column of the cells, by default `main_value`. At a confidence of 95 %, one interval
    in twenty misses 1 by chance.

    A row, for each kernel and control condition with valid A/A pairs, has the kernel, the factors
    that vary, ratio, low, high, n, pairs, p_value, and holds: whether the interval contains 1, or,
    where all boots agree to the last digit, their value is 1 (missing with a single boot).
    """
    numbers = ["ratio", "low", "high", "n", "pairs", "p_value"]
    if not _has_pairs(cells[cells["aa"]]):
        return pd.DataFrame(columns=["kernel", *numbers, "holds"])
    kept = comparable_cells(cells)
    table = ratio_table(kept, value or main_value(kept), confidence=confidence)
    table = table[table["aa"]].reset_index(drop=True)
    low, high = (table[name].fillna(table["ratio"].round(12)) for name in ("low", "high"))
    holds = ((low <= 1) & (high >= 1)).astype("boolean")
    return table[[*_varying(table, cells), *numbers]].assign(holds=holds.mask(table["n"] < 2))


def control_load(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what limits the control: its device, or the core.

    A row has the kernel, all factors but the treatment, idle (share of the core's time, 0..1),
    iops, n, and limit: "device" where the core is idle for at least 5 % of its time, else "core";
    "unknown" where the machine does not count it.
    """
    kept = comparable_cells(cells)
    controls = kept[kept[pathology_of(kept).treatment].isna()]
    table = mean_table(controls, "idle").rename(columns={"mean": "idle"})
    return table[[*shared_columns(cells), "idle", "n"]].assign(
        iops=mean_table(controls, "iops")["mean"],
        limit=np.select(
            [table["idle"].isna(), table["idle"] >= _IDLE_SHARE], ["unknown", "device"], "core"
        ),
    )


def invalid_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that a gate has excluded: place, the gate's reason, all factors."""
    columns = ["kernel", "block", "position", "role", "gate", *factors(cells), "cell"]
    return cells.loc[~cells["valid"], columns].reset_index(drop=True)


# Reasons that are listed one by one.
_REASONS: Final = 3


def spinning_text(cells: pd.DataFrame) -> str:
    """Return a warning of cells in which two or more virtual processors never idle; "" for none."""
    count = int(((cells["busy_cpus"] >= 2) & cells["clock"].eq("virtual")).sum())
    if not count:
        return ""
    return (
        f"in {count} cells two or more processors were never idle, and virtual time runs them in "
        "turns of about a millisecond: if one spins until another answers, these cells are too slow"
    )


def invalid_text(cells: pd.DataFrame) -> str:
    """Return how many cells are invalid and why, the most frequent reasons first; "" for none."""
    invalid = cells[~cells["valid"]]
    if invalid.empty:
        return ""
    verb = "is" if len(invalid) == 1 else "are"
    many = f"{len(invalid)} of {len(cells)} cells {verb} invalid"
    counts = invalid["gate"].value_counts()
    reasons = [f"{gate} ({count})" for gate, count in counts.head(_REASONS).items()]
    if more := counts.iloc[_REASONS:].sum():
        reasons.append(f"other reasons ({more})")
    return f"{many}: {'; '.join(reasons)}"


def asked_claims(data: Dataset) -> set[tuple[str, str]]:
    """Return kernel and name of each claim whose condition was measured, validly or not."""
    return {
        (kernel, claim.name)
        for kernel in kernels_of(data.cells)
        for claim in pathology_of(data.cells).claims
        if len(cells_of(data, claim, kernel, data.cells))
    }


def unasked_claims(data: Dataset) -> str:
    """Return a sentence that names the primary claims about other conditions; "" for none."""
    pathology = pathology_of(data.cells)
    if not pathology.claims:
        return f"{pathology.name} has no claim (claims=...), so there is no verdict."
    asked = {name for _, name in asked_claims(data)}
    others = [c for c in pathology.claims if not c.secondary and c.name not in asked]
    if not others:
        return ""
    measured = {name: set(data.cells[name].dropna()) for name in pathology.factors}

    def where(condition: Condition) -> str:
        # What was not measured; if each level was, it is their combination.
        new = {name: level for name, level in condition.items() if level not in measured[name]}
        return condition_text(pathology, new or condition)

    words = "; ".join(f"{claim.name} ({where(claim.condition)})" for claim in others)
    return f"Not judged, because their conditions were not measured here: {words}."


def kernel_effects(cells: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Compare each kernel's effect on the work done with the oldest kernel's.

    Rows are those of `iolab.stats.tables.kernel_ratio`, A/A pairs too, with the reason of a kernel
    whose cells were all gated; none with a single kernel.
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

    A row has the kernel, the factors that vary, the treatment, n (valid recorded cells), and the
    mean of each measure, with its unit in the name.
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
    treatment = pathology_of(data.cells).treatment
    table = in_kernel_order(table, ["kernel", treatment])
    return table[[*_varying(table, data.cells), treatment, "n", *wide.columns]]


def _varying(table: pd.DataFrame, cells: pd.DataFrame) -> list[str]:
    """Return the kernel and the factors that distinguish the rows."""
    return [n for n in shared_columns(cells) if n == "kernel" or table[n].nunique() > 1]


def _with_control(table: pd.DataFrame, pathology: Pathology) -> pd.DataFrame:
    """Return a table with the control's name in place of a missing level of the treatment."""
    levels = table[pathology.treatment].astype(object)
    return table.assign(**{pathology.treatment: levels.where(levels.notna(), pathology.control)})


def _has_pairs(cells: pd.DataFrame) -> bool:
    """Return whether both cells of any untraced pair are valid."""
    kept = cells[cells["valid"] & ~cells["recorded"]]
    return bool((kept.groupby(["block", "pair"])["role"].nunique() == 2).any())


def _reading(row: Mapping[Any, Any]) -> str:
    if not row["n"]:
        return "no valid pair"
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
    """Return what a real machine's survey, in the facts of a block, found: a row for each thing.

    Columns: looked at, found, reading ("good", "a warning" or "no cell is valid").
    """
    rows = []
    for finding in findings(facts):
        bad = "no cell is valid" if finding["needed"] else "a warning"
        rows.append((finding["what"], finding["found"], "good" if finding["good"] else bad))
    return pd.DataFrame(rows, columns=["looked at", "found", "reading"])
