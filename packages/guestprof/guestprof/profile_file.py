# SPDX-License-Identifier: MIT
"""Profiles in files: Parquet, with the totals in the schema's metadata."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from guestprof.profile import CostProfile
from iolab_base import foreign
from iolab_base.errors import IolabError
from iolab_base.files import atomic_write
from iolab_base.parquet import as_frame, read_metadata, read_table

_KEY = b"iolab"
EVENTS_KEY = b"iolab-calls"
_FORMAT = "iolab-profile/1"
# Errors raised by values that are not a profile's.
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_COLUMNS = ("parent", "task", "pid", "cpu", "function", "module", "instructions", "calls")


def write_profile(path: Path, profile: CostProfile) -> None:
    """Write a profile, whole or not at all."""
    described = {"format": _FORMAT, "totals": dict(profile.totals)}
    _write(path, profile.nodes[list(_COLUMNS)], _KEY, described)


def write_events(path: Path, events: pd.DataFrame, functions: Iterable[str]) -> None:
    """Write recorded calls, whole or not at all; `functions` were recorded, called or not."""
    _write(path, events, EVENTS_KEY, sorted(functions))


def _write(path: Path, frame: pd.DataFrame, key: bytes, described: object) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({key: json.dumps(described, sort_keys=True).encode()})
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    atomic_write(path, stream.getvalue())


def read_profile(path: Path, *, below: Path | None = None) -> CostProfile:
    """Return the profile in a file; raise IolabError if it is missing, damaged or foreign.

    `path` and `below` are as in `iolab_base.reading.open_regular`.
    """
    try:
        described = json.loads(read_metadata(path, below=below)[_KEY])
        if described["format"] != _FORMAT:
            raise IolabError(f"{path} is of the format {described['format']!r:.80}, not {_FORMAT}")
        nodes = as_frame(read_table(path, below=below), path)[list(_COLUMNS)]
        totals = {str(name): int(value) for name, value in described["totals"].items()}
        # Parents come before their children, so one pass over the rows adds up everything.
        if (nodes["parent"] >= pd.RangeIndex(len(nodes))).any() or (nodes["parent"] < -1).any():
            raise IolabError(f"{path} holds a damaged profile: it is not a tree")
    except _DAMAGED as error:
        raise IolabError(f"{path} holds no profile: {foreign.line(str(error))}") from error
    return CostProfile(nodes, totals)


def is_flat(path: Path, *, below: Path | None = None) -> bool:
    """Return whether a file has a profile without callers; False for a damaged one."""
    try:
        described = json.loads(read_metadata(path, below=below)[_KEY])
        return bool(described["totals"].get("flat", 0))
    except (IolabError, *_DAMAGED):
        return False
