# SPDX-License-Identifier: MIT
"""Keep the tables of each stored block as Parquet, so that a large sweep reads them once.

A block's partition lies in the store's folder ``.tables``: its cells, latencies and mechanism, and
a stamp with the hashes of its cells. It is made anew when a file of the block, the tables or the
code that makes tables does not match the stamp. A user-defined pathology has no partitions: its
code is not known here.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

import iolab
import iolab_base
import tracedat
from iolab.pathology import PATHOLOGIES
from iolab.store.block_tables import block_tables, table_columns
from iolab.store.dataset import conformed
from iolab.store.files import PARTITIONS
from iolab.store.hashes import CellHashes, cell_hashes
from iolab.store.raw import RawStore
from iolab_base import foreign
from iolab_base.code import code_of
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write, canonical_json, digest_of
from iolab_base.parquet import FILE_BYTES, plain_texts, read_table
from iolab_base.reading import digest_regular, read_regular

__all__ = ["kept_hashes", "kept_tables"]

_NAMES: Final = ("cells", "latency", "mechanism")
# The modules that determine the numbers and texts of tables.
_MAKERS: Final = {
    tracedat: ("*.py",),
    iolab_base: ("foreign.py", "parquet.py"),
    iolab: (
        *("agent/plan*.py", "blocks.py", "measure/*.py", "pathology/*.py", "results.py"),
        "store/*.py",
    ),
}


@dataclass(frozen=True)
class _Partition:
    """The tables of one block."""

    pathology: str
    tables: Mapping[str, pa.Table]


def kept_tables(
    store: RawStore, keys: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the result of `iolab.store.block_tables.block_tables`, from partitions if present."""
    if not keys:
        return block_tables(store, keys)
    partitions = [_partition(store, key) for key in keys]
    columns = table_columns({one.pathology for one in partitions})
    place = store.root / PARTITIONS
    cells, latency, mechanism = (
        conformed(_joined(one.tables[name] for one in partitions), types, place)
        for name, types in zip(_NAMES, columns, strict=True)
    )
    return cells, latency, mechanism


def kept_hashes(store: RawStore, key: str) -> Mapping[str, CellHashes]:
    """Return the result of `iolab.store.hashes.cell_hashes`, from the partition if present."""
    stamp = _stamp(store, key)
    return _hashes(stamp) if stamp else cell_hashes(store, key)


def _joined(tables: Iterable[pa.Table]) -> pd.DataFrame:
    frame: pd.DataFrame = pa.concat_tables(tables, promote_options="permissive").to_pandas()
    return frame


def _partition(store: RawStore, key: str) -> _Partition:
    if stamp := _stamp(store, key):
        # A damaged one is made anew.
        with suppress(UserError, LookupError, TypeError, ValueError, OSError):
            return _Partition(stamp["pathology"], _read(store, key, stamp))
    pathology = store.block(key).pathology
    files = _files(store, key)
    frames = dict(zip(_NAMES, block_tables(store, [key]), strict=True))
    made = _Partition(
        pathology,
        {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()},
    )
    # The store may be somebody else's, or a sweep that has just ended may have changed a file.
    if pathology in PATHOLOGIES and files == _files(store, key):
        with suppress(IolabError):
            _keep(store, key, made, files)
    return made


def _keep(store: RawStore, key: str, made: _Partition, files: Mapping[str, Any]) -> None:
    digests = {}
    for name, table in made.tables.items():
        stream = io.BytesIO()
        parquet.write_table(table, stream)
        data = stream.getvalue()
        digests[name] = _digest(data)
        atomic_write(_path(store, key, f"{name}.parquet"), data)
    stamp = {
        "code": _code(),
        "files": files,
        "hashes": {name: asdict(one) for name, one in cell_hashes(store, key).items()},
        "pathology": made.pathology,
        "tables": digests,
    }
    # Written last: it names the others.
    document = {"stamp": stamp, "sha256": digest_of(stamp)}
    atomic_write(_path(store, key, "json"), canonical_json(document))


def _read(store: RawStore, key: str, stamp: Mapping[str, Any]) -> dict[str, pa.Table]:
    tables = {}
    for name in _NAMES:
        path = _path(store, key, f"{name}.parquet")
        if digest_regular(path, FILE_BYTES, below=store.root) != stamp["tables"][name]:
            raise ValueError("it is not the table of the stamp")
        tables[name] = plain_texts(read_table(path, below=store.root), path)
    return tables


def _stamp(store: RawStore, key: str) -> dict[str, Any]:
    """Return the stamp of a block's partition; {} if it is damaged or outdated."""
    try:
        document = foreign.document(read_regular(_path(store, key, "json"), below=store.root))
        stamp: dict[str, Any] = document["stamp"]
        whole = document["sha256"] == digest_of(stamp)
        current = (stamp["code"], stamp["files"]) == (_code(), _files(store, key))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return stamp if whole and current else {}


def _hashes(stamp: Mapping[str, Any]) -> dict[str, CellHashes]:
    return {name: CellHashes(**one) for name, one in stamp["hashes"].items()}


def _files(store: RawStore, key: str) -> dict[str, list[int]]:
    """Return the size and the time of each of a block's files: a change of it changes one."""
    return {name: [one.st_size, one.st_mtime_ns] for name, one in store.files(key).items()}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _path(store: RawStore, key: str, ending: str) -> Path:
    return store.root / PARTITIONS / f"{key}.{ending}"


def sources() -> dict[str, str]:
    """Return the text of each module that makes tables, by its name."""
    found = {}
    for package, patterns in _MAKERS.items():
        root = Path(str(package.__file__)).parent
        for path in (path for pattern in patterns for path in root.glob(pattern)):
            found[str(path.relative_to(root.parent))] = path
    return {name: path.read_text() for name, path in sorted(found.items())}


def code_digest(modules: Mapping[str, str]) -> str:
    """Return the digest of modules' code, which no docstring or comment changes."""
    return digest_of({name: code_of(text) for name, text in modules.items()})


@cache
def _code() -> str:
    return code_digest(sources())
