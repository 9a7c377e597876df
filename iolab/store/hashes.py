# SPDX-License-Identifier: MIT
"""Hashes of a folder of results: the measured blocks, their targets, and the SHA-256 of every cell.

They lie beside the tables, so that anybody can measure a block again and compare bytes without the
store that the tables were made from (`iolab.sweeps.verify`). The first line of the file seals
the tables and the other lines; each of those is a block.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from iolab.blocks import BLOCK_FORMAT, Block
from iolab.store.dataset import Dataset
from iolab.store.files import digest_in, most_bytes, said_of
from iolab.store.raw import RawStore
from iolab_base import foreign
from iolab_base.errors import UserError
from iolab_base.files import atomic_write, canonical_json, digest_file, digest_of
from iolab_base.parquet import FILE_BYTES
from iolab_base.reading import RefusedFileError, digest_regular, lines_of_gzip

HASHES: Final = "hashes.jsonl.gz"
HASHES_FORMAT: Final = "iolab-hashes/1"
TABLES: Final = (
    *("cells.parquet", "latency.parquet", "mechanism.parquet"),
    *("unavailable.json", "kernels.json"),
)
# More marks a bomb; a thousand blocks of fifty cells take a third.
_MOST_BYTES: Final = 256 << 20
_TRACE_BYTES: Final = most_bytes("c000.dat")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CellHashes:
    """SHA-256 (hex) of the agent's record of a cell, and of its trace.dat if it was traced."""

    recorded_sha256: str
    trace_sha256: str | None = None


@dataclass(frozen=True)
class BlockHashes:
    """A measured block, its target, and the hashes of its cells."""

    # The key in the store is the digest of `block` and `target`. `iolab` is the version that
    # measured it. `cells` are by their names in the plan, in the order of measuring. `line` is its
    # JSON line of the file.

    key: str
    iolab: str
    pathology: str
    kernel: str
    boot: int
    cells: dict[str, CellHashes]
    line: bytes

    @property
    def name(self) -> str:
        """The first part of the key: the block's name in the tables."""
        return self.key[:16]

    # Decoded, a line takes thirty times as much memory.
    @property
    def block(self) -> dict[str, Any]:
        """The document of the `Block`, for `Block.parse` if its format is still known."""
        return cast("dict[str, Any]", json.loads(self.line)["block"])

    @property
    def target(self) -> dict[str, Any]:
        """Everything about the target that a result depends on: kernel, image, QEMU, agent."""
        return cast("dict[str, Any]", json.loads(self.line)["target"])


def recorded_digest(result: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of everything that the agent recorded of a cell."""
    return digest_of(dict(result))


def cell_hashes(store: RawStore, key: str) -> dict[str, CellHashes]:
    """Return the hashes of a block's cells by their names in the plan."""
    found, folder, files = {}, store.folder(key), store.files(key)
    for document in store.cells(key):
        name = document["cell"]["id"]
        trace = f"traces/{name}.dat"
        digest = digest_in(folder, trace) if trace in files else None
        found[name] = CellHashes(recorded_digest(document["result"]), digest)
    return found


def write_hashes(
    store: RawStore, blocks: Mapping[str, Mapping[str, CellHashes]], folder: Path
) -> None:
    """Write the hashes of blocks (from `cell_hashes`, by key) beside the tables made from them."""
    lines = [_line(store, key, cells) for key, cells in blocks.items()]
    header = {
        "format": HASHES_FORMAT,
        "tables": {name: digest_file(folder / name) for name in TABLES},
        "blocks_sha256": hashlib.sha256("".join(lines).encode()).hexdigest(),
    }
    text = "".join([canonical_json(header) + "\n", *lines])
    atomic_write(folder / HASHES, gzip.compress(text.encode(), mtime=0))


def _line(store: RawStore, key: str, hashes: Mapping[str, CellHashes]) -> str:
    block, target, run = (store.written(key, f"{n}.json") for n in ("block", "target", "run"))
    cells = {name: asdict(one) for name, one in hashes.items()}
    version = run.get("iolab", "")
    document = {"key": key, "iolab": version, "block": block, "target": target, "cells": cells}
    return canonical_json(document) + "\n"


def has_hashes(folder: Path) -> bool:
    """Return whether a folder of results has hashes; those of older releases do not."""
    return os.path.lexists(folder / HASHES)


def read_hashes(folder: Path, data: Dataset) -> list[BlockHashes]:
    """Return the hashes in a folder of results, after checking everything that they seal."""
    path = folder / HASHES
    header, *lines = _lines(path, folder)
    try:
        found = foreign.document(header)
        if not isinstance(found, dict) or "format" not in found:
            raise UserError(f"{path}: it has no format, so it has no hashes of iolab")
        if found["format"] != HASHES_FORMAT:
            raise UserError(
                f"{path}: its format is {found['format']!r:.80}, this iolab reads {HASHES_FORMAT!r}"
            )
        tables, sealed = dict(found["tables"]), str(found["blocks_sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: its first line is damaged") from error
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line)
    if digest.hexdigest() != sealed:
        raise UserError(f"{path}: its blocks were changed or cut since they were written")
    for name in TABLES:
        if _digest_of(folder / name, FILE_BYTES, folder) != tables.get(name):
            raise UserError(
                f"{folder / name}: it was changed since {HASHES} was written, or is of another "
                "sweep"
            )
    blocks = [_block(line, f"{path}: line {n}") for n, line in enumerate(lines, 2)]
    _check_cells(blocks, data, folder)
    return blocks


def _lines(path: Path, folder: Path) -> list[bytes]:
    try:
        return list(lines_of_gzip(path, _MOST_BYTES, below=folder)) or [b""]
    except RefusedFileError as error:
        raise UserError(f"{path} {error.strerror}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a whole file of hashes ({error})") from error


def _digest_of(path: Path, most: int, folder: Path) -> str:
    with said_of(path, UserError):
        return digest_regular(path, most, below=folder)


def _block(line: bytes, where: str) -> BlockHashes:
    try:
        document = json.loads(line)
        block, target = document["block"], document["target"]
        if document["key"] != digest_of({"block": block, "target": target}):
            raise UserError(f"{where}: its key does not match its block and target")
        cells = {name: CellHashes(**hashes) for name, hashes in document["cells"].items()}
        own = {name: block[name] for name in ("pathology", "kernel", "boot")}
        version = str(document["iolab"])
        found = BlockHashes(key=document["key"], iolab=version, **own, cells=cells, line=line)
        names = {cell["id"] for cell in block["cells"]}
        parts = [*own.values(), block["clock"], target["target"]]
        wanted = [str, str, int, str, str]
        digests = [h for c in cells.values() for h in (c.recorded_sha256, c.trace_sha256) if h]
        whole = [type(part) for part in parts] == wanted and all(map(_SHA256.fullmatch, digests))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{where}: it has no hashes of a block") from error
    if not whole or names != set(cells):
        raise UserError(f"{where}: its hashes do not match the cells of its block")
    if block.get("format") == BLOCK_FORMAT:
        try:
            Block.parse(block)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
    return found


def _check_cells(blocks: Iterable[BlockHashes], data: Dataset, folder: Path) -> None:
    """Check that the tables have the cells of these blocks, and that the traces are theirs."""
    hashed = {f"{b.name}-{name}": hashes for b in blocks for name, hashes in b.cells.items()}
    if unlike := sorted(set(hashed) ^ set(data.cells["cell"])):
        raise UserError(
            f"{folder / 'cells.parquet'} and {HASHES} have different cells: only one has "
            f"{unlike[0]}"
        )
    for cell, trace in data.traces.items():
        if cell not in hashed or _digest_of(trace, _TRACE_BYTES, folder) != (
            hashed[cell].trace_sha256
        ):
            raise UserError(f"{trace}: it is not the trace that {HASHES} has of this cell")
