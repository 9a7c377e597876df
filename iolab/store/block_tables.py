# SPDX-License-Identifier: MIT
"""Make the tables of stored blocks from the agent's records of each cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

import tracedat
from iolab.pathology import get_pathology
from iolab.pathology.calls import (
    BrokenPathologyError,
    measures_of_result,
    measures_of_trace,
)
from iolab.store.counters import (
    CELL_COLUMNS,
    LATENCY_COLUMNS,
    MECHANISM_COLUMNS,
    column_types,
    histogram,
    measures,
)
from iolab.store.raw import RawStore
from iolab.store.soundness import machine_gates
from iolab_base import foreign
from iolab_base.errors import IolabError

__all__ = ["block_rows", "block_tables", "table_columns"]


def block_rows(
    store: RawStore, key: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, float]]]:
    """Yield the tidy row of each cell of a block, its document, and its mechanism's measures."""
    block = store.block(key)
    # Refuse links and devices: the traces are read by their paths.
    store.files(key)
    pathology = get_pathology(block.pathology)
    for document, planned in zip(store.cells(key), block.plan.cells, strict=True):
        cell, facts, target = document["cell"], document["facts"], document["target"]
        try:
            found = measures(document["result"], cpu=block.plan.cpu)
        except IolabError as error:
            raise IolabError(
                f"{store.folder(key)}: cell {cell['id']}: {error}; remove this folder, and the "
                "next sweep measures it again"
            ) from error
        if gates := machine_gates(facts):
            gates = [found["gate"], *gates] if found["gate"] else gates
            found.update(valid=False, gate="; ".join(gates))
        mechanism: dict[str, float] = {}
        if found["valid"]:
            mechanism = measures_of_result(pathology, document["result"])
        if cell["recorded"] and found["valid"]:
            try:
                room = store.trace_room(key, planned)
                recorded = tracedat.read(store.trace(key, cell["id"]), most=room)
                mechanism |= measures_of_trace(pathology, recorded)
            except BrokenPathologyError:
                raise
            except (IolabError, tracedat.TraceError) as error:
                found.update(valid=False, gate=f"its trace tells nothing: {error}")
        row = {
            "cell": f"{key[:16]}-{cell['id']}",
            "block": key[:16],
            "pathology": block.pathology,
            "kernel": block.kernel,
            "kernel_release": foreign.line(facts["kernel_release"], foreign.NAME),
            "scheduler": foreign.line(facts["scheduler"] or "unknown", foreign.SCHEDULER),
            "target": target["target"],
            "clock": block.clock,
            "boot": block.boot,
            **{name: cell[name] for name in ("position", "pair", "role", "aa", "recorded")},
            "twin": "" if cell["twin"] is None else f"{key[:16]}-{cell['twin']}",
            **pathology.before,
            **cell["condition"],
            **found,
            "gate": foreign.line(found["gate"]),
        }
        yield row, document, mechanism


def table_columns(
    pathologies: Collection[str],
) -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]:
    """Return the columns of each table of `block_tables`, with their types.

    Factors are columns only if all blocks are of one pathology.
    """
    one = len(pathologies) == 1
    cells = column_types(*pathologies) if one else CELL_COLUMNS
    return cells, LATENCY_COLUMNS, MECHANISM_COLUMNS


def _frame(rows: Sequence[Any], columns: Mapping[str, str]) -> pd.DataFrame:
    try:
        return pd.DataFrame(rows, columns=list(columns)).astype(columns)
    except (TypeError, ValueError, OverflowError) as error:
        raise IolabError(
            f"a stored block holds what no table takes ({foreign.line(str(error), 200)}): "
            "`iolab fsck` names the block"
        ) from error


def block_tables(
    store: RawStore, keys: Iterable[str]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the tables ``cells``, ``latency`` and ``mechanism`` (see `iolab.store.dataset`)."""
    rows: list[dict[str, Any]] = []
    bins: list[tuple[str, float, int]] = []
    told: list[tuple[str, str, float]] = []
    for key in keys:
        for row, document, measured in block_rows(store, key):
            rows.append(row)
            bins += [(row["cell"], *entry) for entry in histogram(document["result"])]
            told += [(row["cell"], *entry) for entry in measured.items()]
    cells, latency, mechanism = table_columns({row["pathology"] for row in rows})
    return _frame(rows, cells), _frame(bins, latency), _frame(told, mechanism)
