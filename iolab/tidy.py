# SPDX-License-Identifier: MIT
"""From raw results to tables, and the canonical text of what was measured."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from iolab.counters import histogram, measures
from iolab.errors import IolabError
from iolab.files import atomic_write, canonical_json
from iolab.raw import RawStore
from iolab.store import CELL_COLUMNS, LATENCY_COLUMNS, Dataset

__all__ = ["block_tables", "canonical_lines", "write_tables"]


def _rows(store: RawStore, key: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the tidy row of each cell of a block, beside the document it was made from."""
    block = store.read(key, "block.json")
    for document in store.cells(key):
        cell, facts, target = document["cell"], document["facts"], document["target"]
        found = measures(document["result"], cpu=block["plan"]["cpu"])
        row = {
            "cell": f"{key[:16]}-{cell['id']}",
            "block": key[:16],
            "pathology": block["pathology"],
            "kernel": block["kernel"],
            "kernel_release": facts["kernel_release"],
            "scheduler": facts["scheduler"] or "unknown",
            "target": target["target"],
            "clock": block["clock"],
            "boot": block["boot"],
            **{name: cell[name] for name in ("position", "pair", "role", "aa")},
            **cell["condition"],
            **found,
        }
        yield row, document


def block_tables(store: RawStore, keys: Iterable[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables ``cells`` and ``latency`` (columns as `iolab.store`) of some blocks."""
    rows: list[dict[str, Any]] = []
    bins: list[tuple[str, float, int]] = []
    for key in keys:
        for row, document in _rows(store, key):
            rows.append(row)
            bins += [(row["cell"], *entry) for entry in histogram(document["result"])]
    cells = pd.DataFrame(rows, columns=list(CELL_COLUMNS)).astype(CELL_COLUMNS)
    latency = pd.DataFrame(bins, columns=list(LATENCY_COLUMNS)).astype(LATENCY_COLUMNS)
    return cells, latency


def write_tables(
    store: RawStore, keys: Sequence[str], absent: Mapping[str, str], folder: Path
) -> Dataset:
    """Write the tables of some blocks into `folder`, each whole or not at all, and return them.

    `absent` maps a kernel that cannot run here to the reason.

    Errors: IolabError if the folder cannot be written.
    """
    cells, latency = block_tables(store, keys)
    for name, table in (("cells", cells), ("latency", latency)):
        stream = io.BytesIO()
        table.to_parquet(stream, index=False)
        atomic_write(folder / f"{name}.parquet", stream.getvalue())
    missing = [{"kernel": k, "reason": r} for k, r in absent.items()]
    atomic_write(folder / "absent.json", json.dumps(missing, indent=1) + "\n")
    atomic_write(folder / "blocks.json", json.dumps(list(keys), indent=1) + "\n")
    return Dataset(cells, latency, pd.DataFrame(missing, columns=["kernel", "reason"]))


def canonical_lines(store: RawStore, folder: Path) -> Iterator[str]:
    """Yield what was measured, a line of canonical JSON for each cell of a sweep's folder.

    In virtual time the lines are the same bytes on every machine with the same kernels, image and
    QEMU. Each has the condition, the measures, and the SHA-256 of everything the agent recorded.

    Errors: IolabError if `folder` holds no finished sweep.
    """
    try:
        keys = json.loads((folder / "blocks.json").read_text())
    except (OSError, ValueError) as error:
        raise IolabError(f"{folder} holds no finished sweep") from error
    for key in keys:
        for row, document in _rows(store, key):
            plain = {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in row.items()
            }
            recorded = canonical_json(document["result"]).encode()
            plain["recorded_sha256"] = hashlib.sha256(recorded).hexdigest()
            yield canonical_json(plain)
