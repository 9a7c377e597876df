# SPDX-License-Identifier: MIT
"""Read a folder of results into tables, and check them; how its kernels were built and booted."""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from iolab.pathology import PATHOLOGIES, get_pathology, pathology_names
from iolab.pathology.base import PATHOLOGY_NAME
from iolab.store.counters import (
    ADDED_COLUMNS,
    CELL_COLUMNS,
    LATENCY_COLUMNS,
    MECHANISM_COLUMNS,
    UNAVAILABLE_COLUMNS,
    column_types,
)
from iolab.store.files import said_of
from iolab_agent.settings import preemption_models
from iolab_base import foreign
from iolab_base.errors import UserError
from iolab_base.names import nearest
from iolab_base.parquet import as_frame, plain_texts, read_table
from iolab_base.reading import entries

# The most characters of texts in figures and captions; other texts may have a line's.
_MOST: Final = {
    "kernel": foreign.NAME,
    "kernel_release": foreign.NAME,
    "scheduler": foreign.SCHEDULER,
}
_MOST_TRACES: Final = 1_000_000
# By how much a traced cell may differ from its twin, as a factor. Half of the smallest published
# loss of IOPS, in logarithms, is a factor of 1.3; the cost of tracing itself comes on top of it.
_FACTOR: Final = 1.5
# Of switches per I/O the same, where they differ by half a switch. A smaller difference takes a
# larger factor: for large and few I/Os tracing alone makes up to 2.8 (XFS's flush worker, 6.12).
# Switches below the floor are none.
_SWITCHES: Final = 0.5
_FEW_FACTOR: Final = 3.0
_FLOOR: Final = 0.05


class MissingMeasureError(UserError):
    """No cell has the measure that a claim is about."""


class UnknownPathologyError(UserError):
    """The pathology of the tables is not known here."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The tidy tables of one folder of results.

    ``cells`` has one row per cell (columns of `column_types`; units in the names, CPU shares of the
    measured core 0..1). ``latency`` has the completion latency histograms in long form.
    ``unavailable`` lists requested kernels that cannot run here, with the reason. ``mechanism`` has
    the pathology's own measures, from the agent's counters and from the traces of recorded cells
    (in long form, units in their names). ``traces`` maps a cell to its trace.dat, if it is kept
    there. ``kernels`` describes how each kernel was built and booted, where that is known.
    """

    cells: pd.DataFrame
    latency: pd.DataFrame
    unavailable: pd.DataFrame
    mechanism: pd.DataFrame
    traces: Mapping[str, Path]
    kernels: Mapping[str, KernelBuild] = field(default_factory=dict)


def result_folders(folder: Path | str) -> list[Path]:
    """Return the folders of results that a folder is or contains, built-in pathologies first."""
    # A contained folder counts if its name is a valid name of a pathology, known or not.
    root = Path(folder)
    if (root / "cells.parquet").exists():
        return [root]
    built_in = list(PATHOLOGIES)
    found = sorted(
        (p.parent for p in root.glob("*/cells.parquet") if PATHOLOGY_NAME.fullmatch(p.parent.name)),
        key=lambda p: (built_in.index(p.name) if p.name in built_in else len(built_in), p.name),
    )
    if not found:
        raise UserError(f"{root} is not a folder of results, and holds none (no cells.parquet)")
    return found


def with_measure(data: Dataset, name: str) -> pd.DataFrame:
    """Return the cells that have a measure, as a column; MissingMeasureError if none has."""
    if name in data.cells.columns:
        return data.cells
    rows = data.mechanism[data.mechanism["measure"] == name]
    if rows.empty:
        own = sorted(data.mechanism["measure"].unique())
        guess = nearest(name, [*data.cells.columns, *own])
        known = ", ".join(own) or "none"
        raise MissingMeasureError(f"no cell has the measure {name}{guess} (known: {known})")
    if rows["cell"].duplicated().any() or data.cells["cell"].duplicated().any():
        raise UserError(f"a cell occurs twice, or has {name} twice")
    values = rows[["cell", "value"]].rename(columns={"value": name})
    return data.cells.merge(values, on="cell", validate="one_to_one")


def of_kernels(data: Dataset, kernels: Collection[str]) -> Dataset:
    """Return the part of a data set that is of some kernels."""
    cells = data.cells[data.cells["kernel"].isin(kernels)].reset_index(drop=True)
    names = set(cells["cell"])
    return replace(
        data,
        cells=cells,
        latency=data.latency[data.latency["cell"].isin(names)].reset_index(drop=True),
        mechanism=data.mechanism[data.mechanism["cell"].isin(names)].reset_index(drop=True),
        traces={name: path for name, path in data.traces.items() if name in names},
    )


def load(folder: Path | str) -> Dataset:
    """Read the tables of a folder of results, such as ``REFERENCE / "dio_kworker"``.

    Raises UserError if a file is missing, unreadable, or not a table of iolab's.
    """
    root = Path(folder)
    names = ("cells.parquet", "latency.parquet", "unavailable.json", "mechanism.parquet")
    paths = [root / name for name in names]
    # Tables that predate this gate are gated too.
    table = as_frame(read_table(paths[0], below=root), paths[0])
    cells = gate_other_regimes(_cells(table, paths[0]))
    latency = _of_cells(paths[1], LATENCY_COLUMNS, cells)
    unavailable = conformed(_unavailable(paths[2]), UNAVAILABLE_COLUMNS, paths[2])
    if cells["cell"].duplicated().any():
        raise UserError(f"{paths[0]}: a cell occurs twice")
    mechanism = _of_cells(paths[3], MECHANISM_COLUMNS, cells)
    kernels = read_builds(root / "kernels.json")
    return Dataset(cells, latency, unavailable, mechanism, _traces(root), kernels)


def _cells(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    lacking = {n: kind for n, kind in ADDED_COLUMNS.items() if n not in table.columns}
    table = table.assign(**{n: "" if kind == "str" else math.nan for n, kind in lacking.items()})
    names = conformed(table, {"pathology": CELL_COLUMNS["pathology"]}, path)["pathology"].unique()
    if len(names) > 1:
        raise UserError(f"{path}: holds {len(names)} pathologies, not one")
    if not len(names):
        return conformed(table, CELL_COLUMNS, path)
    # All packages of this Python are asked for the names of others.
    if names[0] not in PATHOLOGIES and names[0] not in pathology_names():
        raise UnknownPathologyError(
            f"{path}: its pathology {names[0]!r} is not known here: name the file that defines it "
            "(--pathology FILE), or register it"
        )
    before = get_pathology(names[0]).before
    table = table.assign(**{n: level for n, level in before.items() if n not in table.columns})
    return conformed(table, column_types(names[0]), path)


def _of_cells(path: Path, columns: dict[str, str], cells: pd.DataFrame) -> pd.DataFrame:
    """Return a table in long form, whose rows are of these cells."""
    # A histogram repeats the name of its cell in each row: each name is checked once.
    table = read_table(path, below=path.parent)
    known = set(cells["cell"].tolist())
    named = table["cell"] if "cell" in table.column_names else None
    if named is not None and pa.types.is_dictionary(named.type) and not named.null_count:
        # After this, all chunks have one dictionary.
        first = named.unify_dictionaries().chunks[:1]
        if all(known.issuperset(one.dictionary.to_pylist()) for one in first):
            whole = plain_texts(table, path)
            rest = {name: kind for name, kind in columns.items() if name != "cell"}
            found = conformed(as_frame(whole.drop_columns("cell"), path), rest, path)
            found.insert(0, "cell", whole["cell"].to_pandas())
            return found
    found = conformed(as_frame(table, path), columns, path)
    if not found["cell"].isin(cells["cell"]).all():
        raise UserError(f"{path}: has cells that cells.parquet lacks")
    return found


def _unavailable(path: Path) -> pd.DataFrame:
    try:
        rows = foreign.read_document(path, below=path.parent)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; is this a folder of results?") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: is not a list of kernels and reasons")
    # Only known columns: each row may name others.
    named = {name for row in rows for name in row}
    return pd.DataFrame(rows, columns=[n for n in UNAVAILABLE_COLUMNS if not rows or n in named])


def _traces(root: Path) -> dict[str, Path]:
    """Return the traces of a folder of tables by their cells."""
    folder = root / "traces"
    with said_of(folder, UserError):
        try:
            there = entries(folder, _MOST_TRACES, below=root)
        except FileNotFoundError:
            return {}
    traces = {name: status for name, status in there.items() if name.endswith(".dat")}
    for name, status in traces.items():
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{folder / name} is not a regular file")
    return {name.removesuffix(".dat"): folder / name for name in traces}


def _lines(texts: pd.Series, most: int) -> pd.Series:
    """Return texts as lines of printable characters; texts that are such lines are not copied."""
    known = texts.dropna().unique().tolist()
    # The condition of `foreign.line` for each text.
    if all(len(said) <= most for said in known) and "".join(known).isprintable():
        return texts
    return texts.map({said: foreign.line(said, most) for said in known}).astype("str")


def conformed(table: pd.DataFrame, columns: Mapping[str, str], path: Path) -> pd.DataFrame:
    """Return the columns of anybody's table in their types, with texts of printable characters."""
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise UserError(f"{path}: has no column {', '.join(missing)}")
    try:
        found = table[list(columns)].astype(dict(columns))
        # The texts may come from anybody, even if the table does not.
        texts = [name for name, kind in columns.items() if kind == "str"]
        return found.assign(
            **{name: _lines(found[name], _MOST.get(name, foreign.LINE)) for name in texts}
        )
    except (TypeError, ValueError, OverflowError) as error:
        said = foreign.line(str(error), 200)
        raise UserError(f"{path}: a column has unexpected values ({said})") from error


def gate_other_regimes(cells: pd.DataFrame) -> pd.DataFrame:
    """Invalidate traced cells whose regime differs from that of their untraced twin."""
    # A trace must explain the effect of its twin. Tracing always costs some IOPS; if it changes the
    # context switches per I/O or the IOPS too much, it shows something that was not measured.
    # Invalid twins and values that were not counted gate nothing. ``gate`` names both values.
    traced = cells.index[cells["valid"] & cells["recorded"] & cells["twin"].ne("")]
    twins = cells[cells["valid"]].drop_duplicates("cell").set_index("cell")
    gates = {}
    for index, cell in cells.loc[traced].iterrows():
        if cell["twin"] in twins.index and (gate := _gate(cell, twins.loc[cell["twin"]])):
            gates[index] = gate
    if not gates:
        return cells
    found = cells.copy()
    found.loc[list(gates), "valid"] = False
    found.loc[list(gates), "gate"] = pd.Series(gates)
    return found


def _gate(cell: pd.Series, twin: pd.Series) -> str:
    switches, without = cell["switches_per_io"], twin["switches_per_io"]
    factor = _FACTOR if abs(switches - without) > _SWITCHES else _FEW_FACTOR
    if max(switches, without) > _FLOOR and _apart(switches, without, factor):
        what = f"{switches:.3g} switches per I/O, {without:.3g} without tracing"
        return f"tracing changed its regime: {what}"
    if _apart(cell["steady_iops"], twin["steady_iops"], _FACTOR):
        what = f"{cell['steady_iops']:.4g} IOPS, {twin['steady_iops']:.4g} without tracing"
        return f"tracing changed its regime: {what}"
    return ""


def _apart(a: float, b: float, factor: float) -> bool:
    """Return whether two values differ by more than the factor; False if one was not counted."""
    return bool(np.isfinite([a, b]).all()) and max(a, b) > factor * min(a, b)


# Options of kernel/Kconfig.preempt and their models, the strongest first.
_MODELS: Final = (
    ("PREEMPT_RT", "rt"),
    ("PREEMPT_LAZY", "lazy"),
    ("PREEMPT", "full"),
    ("PREEMPT_VOLUNTARY", "voluntary"),
    ("PREEMPT_NONE", "none"),
)
_HZ: Final = re.compile(r"\d{1,6}")


@dataclass(frozen=True)
class KernelBuild:
    """How a kernel was built and booted."""

    # The version is that of ``uname -v``: the distribution's package, the compile-time preemption.
    # The preemption model in use is "none", "voluntary", "full", "lazy" or "rt", with commas
    # between those of several boots, or "" if unknown. `hz` is CONFIG_HZ, None if unknown.
    # `tunables` are the scheduler's tunables and features by file name, as the kernel booted.

    version: str = ""
    preemption: str = ""
    hz: int | None = None
    tunables: Mapping[str, str] = field(default_factory=dict)


def build_of(facts: Mapping[str, Any]) -> KernelBuild:
    """Return how a kernel was built and booted, from a block's facts."""
    # What the kernel reports takes precedence: ``preempt=`` on its command line overrides its
    # configuration, which is not known in results of earlier releases.
    tunables = {str(k): str(v) for k, v in (facts.get("scheduler_tunables") or {}).items()}
    options = dict(facts.get("kernel_options") or {})
    hz = str(options.get("HZ", ""))
    in_use = foreign.line(preemption_models(tunables.pop("preempt", ""))[0], foreign.SCHEDULER)
    built_in = next((model for name, model in _MODELS if options.get(name) == "y"), "")
    return KernelBuild(
        version=foreign.line(str(facts.get("kernel_version") or "")),
        preemption=in_use or built_in,
        hz=int(hz) if _HZ.fullmatch(hz) else None,
        tunables={name: foreign.line(value) for name, value in sorted(tunables.items())},
    )


def merge_builds(builds: Iterable[KernelBuild]) -> KernelBuild:
    """Return one kernel's build in several boots: all versions, and the tunables in common."""
    found = list(builds)
    rates = {build.hz for build in found}
    common = dict(found[0].tunables)
    for build in found[1:]:
        common = {k: v for k, v in common.items() if build.tunables.get(k) == v}
    return KernelBuild(
        version=", ".join(sorted({build.version for build in found})),
        preemption=", ".join(sorted({build.preemption for build in found})),
        hz=rates.pop() if len(rates) == 1 else None,
        tunables=common,
    )


def read_builds(path: Path) -> dict[str, KernelBuild]:
    """Read each kernel's build from a folder's ``kernels.json``; older results lack it: {}."""
    try:
        document = foreign.read_document(path, below=path.parent)
    except FileNotFoundError:
        return {}
    try:
        return {foreign.line(name, foreign.NAME): _build(b) for name, b in document.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: is not a mapping of kernels to their builds") from error


def _build(document: Mapping[str, Any]) -> KernelBuild:
    hz, tunables = document["hz"], document["tunables"]
    if not (hz is None or type(hz) is int):
        raise ValueError(json.dumps(hz))
    return KernelBuild(
        version=foreign.line(str(document["version"])),
        preemption=foreign.line(str(document["preemption"]), foreign.LINE),
        hz=hz,
        tunables={foreign.line(k): foreign.line(str(v)) for k, v in tunables.items()},
    )
