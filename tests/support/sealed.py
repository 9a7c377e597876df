# SPDX-License-Identifier: MIT
"""Folders of results with hashes, honest and forged."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from iolab.store.hashes import HASHES
from iolab.store.raw import RawStore, block_key
from iolab.store.tables import write_tables
from iolab_base.files import canonical_json, digest_file, digest_of
from tests.support.results import TARGET, block, write_results


def made_up(folder: Path, target: dict[str, Any] | None = None, kernel: str = "6.1") -> Path:
    """Write the tables and hashes of a made-up block of four cells; return their folder."""
    store, made = RawStore(folder / "store"), block(kernel=kernel)
    on = {**TARGET, **(target or {})}
    key = block_key(made, on)
    results = write_results(folder / "results", made.plan)
    store.put(key, block=made, target=on, results=results, run={"iolab": "0.0.9"})
    write_tables(store, [key], {}, folder / "out")
    return folder / "out"


def forged(folder: Path, into: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """Copy a folder with hashes, edit its first block's line, and seal it again."""
    shutil.copytree(folder, into)
    header, first, *others = gzip.decompress((into / HASHES).read_bytes()).decode().splitlines()
    document = json.loads(first)
    edit(document)
    _seal(into, json.loads(header), [canonical_json(document), *others])
    return into


def forged_table(folder: Path, into: Path, edit: Callable[[pd.DataFrame], None]) -> Path:
    """Copy a folder with hashes, edit its cells, and seal it again."""
    shutil.copytree(folder, into)
    path = into / "cells.parquet"
    cells = pd.read_parquet(path)
    edit(cells)
    cells.to_parquet(path, index=False)
    header, *lines = gzip.decompress((into / HASHES).read_bytes()).decode().splitlines()
    sealed = json.loads(header)
    sealed["tables"]["cells.parquet"] = digest_file(path)
    _seal(into, sealed, lines)
    return into


def _seal(folder: Path, header: dict[str, Any], lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    header["blocks_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    whole = canonical_json(header) + "\n" + text
    (folder / HASHES).write_bytes(gzip.compress(whole.encode()))


def measured_on(root: Path, key: str, into: Path, **parts: str) -> Path:
    """Write tables and hashes of a stored block as if another target had measured it."""
    store = RawStore(root)
    target = {**store.read(key, "target.json"), **parts}
    other = digest_of({"block": store.block(key).document(), "target": target})
    copy = into / "store" / "raw" / other
    shutil.copytree(store.folder(key), copy)
    (copy / "target.json").unlink()
    (copy / "target.json").write_text(canonical_json(target))
    write_tables(RawStore(into / "store"), [other], {}, into / "out")
    return into / "out"
