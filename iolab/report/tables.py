# SPDX-License-Identifier: MIT
"""What a page says about a data set: tables to read, and one summary for machines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from iolab import trace
from iolab.errors import UserError
from iolab.figures.save import caption, save_figure
from iolab.files import atomic_write
from iolab.stats.conditions import (
    cell_columns,
    comparable_cells,
    kernels_of,
    pathology_of,
    shared_columns,
)
from iolab.stats.drift import order_table
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.kernels import kernel_ratio
from iolab.stats.tables import mean_table, ratio_table, recording_cost
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset, with_measure
from iolab.store.findings import findings
from iolab.trace import Trace

__all__ = [
    "aa_check",
    "factors",
    "headline",
    "invalid_cells",
    "kernel_effects",
    "level_table",
    "machine_table",
    "main_grid",
    "mechanism_table",
    "overview",
    "plain",
    "publish",
    "recorded_traces",
    "regime",
    "summary",
    "write_summary",
]

# The timer tick of a kernel with HZ=250: completions of a device on ticks come once in so long.
TICK_S: Final = 0.004
# A core that is idle for at least this share of its time is not what limits the control.
IDLE_SHARE: Final = 0.05

_MEANS = ("iops", "switches_per_io", "fio_cpu", "kworker_cpu", "idle")
_RATIOS = ("iops", "latency_p50_ns", "latency_p99_ns")


def overview(cells: pd.DataFrame) -> pd.DataFrame:
    """Say what is there: a row per kernel with its release, scheduler, conditions and counts."""
    rows = []
    for kernel in kernels_of(cells):
        here = cells[cells["kernel"] == kernel]
        rows.append(
            {
                "kernel": kernel,
                "release": _listed(here["kernel_release"]),
                "scheduler": _listed(here["scheduler"]),
                "clock": _listed(here["clock"]),
                **{name: _listed(here[name].dropna()) for name in factors(cells)},
                "boots": here["block"].nunique(),
                "cells": len(here),
                "invalid": int((~here["valid"]).sum()),
            }
        )
    return pd.DataFrame(rows)


def factors(cells: pd.DataFrame) -> list[str]:
    """Return the names of all factors of the cells' pathology, the treatment first."""
    pathology = pathology_of(cells)
    return sorted(pathology.factors, key=lambda name: name != pathology.treatment)


def main_grid(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of a pathology's main conditions, all treatments and iodepths of them.

    Each other factor is at the level that most cells have: what side experiments vary is left out.
    """
    for name in shared_columns(cells):
        if name not in ("kernel", "iodepth"):
            cells = cells[cells[name] == cells[name].mode().iloc[0]]
    return cells


def level_table(data: Dataset, value: str, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Return the mean of a column or measure: a row per kernel and condition, the control first.

    Columns: kernel, the factors that vary, mean, low, high (t interval over boots), n (boots),
    cells. Errors: as `stats.mean_table`.
    """
    table = mean_table(comparable_cells(with_measure(data, value)), value, confidence=confidence)
    treatment = pathology_of(data.cells).treatment
    columns = [*_varying(table, shared_columns(data.cells)), treatment]
    return table[[*columns, "mean", "low", "high", "n", "cells"]]


def headline(cells: pd.DataFrame, weight: int, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Answer in a few rows: the IOPS ratio and the switches per I/O at `weight` and the largest.

    Weights are chosen before looking at the results, not because their effect is the largest.
    ``reading`` says on which side of 1 the whole interval lies. Errors: as `stats.ratio_table`.
    """
    kept = comparable_cells(cells)
    ratios = ratio_table(kept, confidence=confidence)
    largest = ratios["weight"].max()
    chosen = ratios[ratios["weight"].isin([weight, largest]) & ~ratios["aa"]]
    switches = mean_table(kept, "switches_per_io", confidence=confidence)
    factors = shared_columns(cells)
    outside = switches[switches["placement"] == "outside"].set_index(factors)["mean"]
    inside = switches.set_index([*factors, "weight"])["mean"]
    keys = pd.MultiIndex.from_frame(chosen[factors])
    weighted = pd.MultiIndex.from_frame(chosen[[*factors, "weight"]])
    columns = [*_varying(chosen, factors), "weight", "ratio", "low", "high", "n"]
    return (
        chosen[columns]
        .assign(
            switches_outside=outside.reindex(keys).to_numpy(),
            switches_inside=inside.reindex(weighted).to_numpy(),
            reading=[_reading(row) for row in chosen.to_dict("records")],
        )
        .reset_index(drop=True)
    )


def aa_check(cells: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Compare outside with outside: the ratio of the A/A pairs, which should be 1.

    ``holds`` is whether the interval contains 1, or, where all boots agree to the last digit and
    there is none, their value is 1 (missing with a single boot). At a level of 95 %, one interval
    in twenty misses although all is well. The table is empty without valid A/A pairs.
    Errors: as `stats.ratio_table`.
    """
    table = ratio_table(comparable_cells(cells), confidence=confidence)
    table = table[table["aa"]].reset_index(drop=True)
    low, high = (table[name].fillna(table["ratio"].round(12)) for name in ("low", "high"))
    holds = ((low <= 1) & (high >= 1)).astype("boolean")
    columns = [*_varying(table, shared_columns(cells)), "ratio", "low", "high", "n"]
    columns += ["pairs", "p_value"]
    return table[columns].assign(holds=holds.mask(table["n"] < 2))


def regime(cells: pd.DataFrame) -> pd.DataFrame:
    """Say what limits the control: a row per kernel and condition, from the cells outside.

    ``limit`` is "device" where the core idles for at least 5 % of its time, else "core", "unknown"
    where the kernel does not count that. With
    completions on ticks, ``ceiling_iops`` is one full queue per tick of 4 ms (HZ=250) and
    ``of_ceiling`` the share of it that was reached; NaN where completions are evenly spaced.
    """
    outside = comparable_cells(cells)
    outside = outside[outside["placement"] == "outside"]
    table = mean_table(outside, "idle").rename(columns={"mean": "idle"})
    iops = mean_table(outside, "iops")["mean"]
    ceiling = (table["iodepth"] * table["numjobs"] / TICK_S).where(table["clumping"] == "tick")
    return table[[*shared_columns(cells), "idle", "n"]].assign(
        iops=iops,
        ceiling_iops=ceiling,
        of_ceiling=iops / ceiling,
        limit=np.select(
            [table["idle"].isna(), table["idle"] >= IDLE_SHARE], ["unknown", "device"], "core"
        ),
    )


def invalid_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """List the cells a gate has excluded, with the reason."""
    columns = ["kernel", "block", "position", "role", *factors(cells), "gate", "cell"]
    return cells.loc[~cells["valid"], columns].reset_index(drop=True)


def machine_table(facts: Mapping[str, Any]) -> pd.DataFrame:
    """Say what a real machine was found to be like: a row for each thing that was looked at.

    ``reading`` is "good", "a warning", or "no cell is valid". Errors: as `findings`.
    """
    rows = [
        {
            "looked at": found["what"],
            "found": found["found"],
            "reading": _severity(good=found["good"], needed=found["needed"]),
        }
        for found in findings(facts)
    ]
    return pd.DataFrame(rows, columns=["looked at", "found", "reading"])


def _severity(*, good: bool, needed: bool) -> str:
    if good:
        return "good"
    return "no cell is valid" if needed else "a warning"


def kernel_effects(cells: pd.DataFrame, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Compare each kernel's effect with the oldest one's (`stats.kernel_ratio` of the ratios).

    One table for all kernels, empty with a single one. The A/A pairs are in it as the control of
    this comparison too.
    """
    kept = comparable_cells(cells)
    first, *others = kernels_of(kept)
    tables = [
        kernel_ratio(kept, base=first, other=other, effect=True, confidence=confidence)
        for other in others
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def mechanism_table(data: Dataset) -> pd.DataFrame:
    """Return what the traces say: a row per kernel and condition, a column per measure.

    Means over the recorded cells, ``n`` of them; units are in the names. Empty without traces.
    """
    recorded = data.cells.loc[data.cells["recorded"], "cell"]
    told = data.mechanism[data.mechanism["cell"].isin(recorded)]
    wide = told.pivot(index="cell", columns="measure", values="value")
    wide = wide[list(told["measure"].unique())]
    rows = data.cells.merge(wide, left_on="cell", right_index=True)
    state = cell_columns(data.cells)
    grouped = rows.groupby(state, dropna=False, observed=True)
    table = grouped[list(wide.columns)].mean().reset_index()
    table.insert(len(state), "n", grouped.size().to_numpy())
    order = [kernels_of(table).index(kernel) for kernel in table["kernel"]]
    treatment = pathology_of(data.cells).treatment
    table = table.assign(order=order).sort_values(["order", treatment], na_position="first")
    columns = [*_varying(table, shared_columns(data.cells)), treatment, "n", *wide.columns]
    return table[columns].reset_index(drop=True)


def recorded_traces(data: Dataset, kernel: str | None = None) -> dict[str, Trace]:
    """Return the kept traces of a kernel's first recorded boot by label, the control first.

    Without `kernel`, the first of those that have traces; empty where nothing was recorded. One
    trace for each level of the treatment. Errors: UserError if the kernel that is named has none.
    """
    kept = data.cells[data.cells["cell"].isin(list(data.traces))]
    treatment = pathology_of(data.cells).treatment
    known = kernels_of(kept)
    if kernel is not None and kernel not in known:
        raise UserError(f"no trace is kept of kernel {kernel} (there are: {', '.join(known)})")
    kept = kept[kept["kernel"] == (kernel or next(iter(known), ""))].sort_values(
        [treatment, "boot", "cell"], na_position="first"
    )
    first = kept.drop_duplicates(treatment)
    return {
        "control" if pd.isna(row[treatment]) else f"{treatment} {row[treatment]}": trace.read(
            data.traces[row["cell"]]
        )
        for row in first.to_dict("records")
    }


def publish(
    name: str,
    figure: Figure,
    data: Dataset,
    folder: Path | str | None = None,
    *,
    says: str | None = None,
) -> str:
    """Return a figure's caption and, given a folder, save the figure and the caption there.

    `says` as in `figure_files.caption`.
    """
    text = caption(name, data.cells, data.unavailable, says=says)
    if folder is not None:
        save_figure(figure, Path(folder), name, caption=text)
    return text


def summary(
    data: Dataset,
    *,
    published: Mapping[str, Any] | None = None,
    family: Sequence[Mapping[str, object]] | None = None,
    more: Mapping[str, pd.DataFrame] | None = None,
    confidence: float = CONFIDENCE,
) -> dict[str, Any]:
    """Return all results of a data set as plain JSON values; what is missing is None, never NaN.

    Keys: pathology, target, clock, confidence, kernels, unavailable, published (as given), cells,
    verdicts, ratios (by value: rows of `stats.ratio_table`), means (by value: rows of
    `stats.mean_table`), measures (the same of the pathology's own), aa, order, kernel_effects (the
    ratio of ratios of each kernel against the first), mechanism (what the traces say), recording
    (what tracing cost), and the tables of `more`. Units are in the names. Errors: as the tables'.
    """
    cells = comparable_cells(data.cells)
    context = {name: str(cells[name].iloc[0]) for name in ("pathology", "target", "clock")}
    ratios = {
        value: ratio_table(cells, value, family=family, confidence=confidence)
        for value in _RATIOS
        if cells[value].notna().all()
    }
    counted = data.mechanism.loc[data.mechanism["cell"].isin(cells["cell"]), "measure"].unique()
    own = {name: comparable_cells(with_measure(data, name)) for name in counted}
    found: dict[str, Any] = plain(
        {
            **context,
            "confidence": confidence,
            "kernels": overview(data.cells),
            "unavailable": data.unavailable,
            "published": None if published is None else dict(published),
            "cells": {
                "total": len(data.cells),
                "valid": len(cells),
                "invalid": invalid_cells(data.cells),
            },
            "verdicts": verdict_table(data, confidence=confidence),
            "ratios": ratios,
            "means": {value: mean_table(cells, value, confidence=confidence) for value in _MEANS},
            "measures": {
                name: mean_table(c, name, confidence=confidence) for name, c in own.items()
            },
            "aa": aa_check(cells, confidence=confidence),
            "order": order_table(cells, confidence=confidence),
            "kernel_effects": kernel_effects(cells, confidence=confidence),
            "mechanism": mechanism_table(data),
            "recording": recording_cost(data.cells, confidence=confidence),
            **(more or {}),
        }
    )
    return found


def write_summary(path: Path | str, results: Mapping[str, Any]) -> None:
    """Write a summary as JSON, the same text for the same results; whole or not at all."""
    text = json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    atomic_write(Path(path), text + "\n")


def _varying(table: pd.DataFrame, factors: Sequence[str]) -> list[str]:
    """Return the factors a reader needs to tell the rows apart."""
    return [name for name in factors if name in ("kernel", "iodepth") or table[name].nunique() > 1]


def _reading(row: Mapping[Any, Any]) -> str:
    if row["n"] < 2:
        return "one boot: no interval"
    # Boots that agree to the last digit have no spread to make an interval of.
    low, high = (row["ratio"] if math.isnan(row[name]) else row[name] for name in ("low", "high"))
    if high < 1:
        return "slower inside"
    return "faster inside" if low > 1 else "no difference seen"


def _listed(values: pd.Series) -> str:
    return ", ".join(str(value) for value in sorted(values.unique()))


def plain(value: Any) -> Any:
    """Return tables and what is nested of them as plain JSON; what is not there is None."""
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
