# SPDX-License-Identifier: MIT
"""Large stores of made-up blocks: as many cells as wanted, written fast."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.store.files import DIGESTS, digests_of
from iolab.store.raw import STORE_FORMAT, RawStore, block_key
from iolab_base.files import canonical_json
from tests.support.results import TARGET, block
from tests.support.stores import stored


def large_blocks(cells: int) -> dict[str, Block]:
    """Return blocks of dio_kworker's threshold profile by their keys: at least so many cells."""
    pathology = get_pathology("dio_kworker")
    fine = pathology.profiles["threshold"]
    few = blocks_of(pathology, fine, kernel="6.1", clock="virtual")
    # The first boots record, and have more cells than the others.
    last = sum(len(made.cells) for made in few if made.boot == fine.boots - 1)
    profile = replace(fine, boots=max(fine.boots, -(-cells // last)))
    found = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    return {block_key(made, TARGET): made for made in found}


def large_store(root: Path, cells: int) -> list[str]:
    """Write a store of sound blocks; their cells differ in nothing but what they stand for.

    Parameters
    ----------
    root : Path
        The folder of the store; made.
    cells : int
        At least so many.

    Returns
    -------
    list of str
        The keys of the blocks.
    """
    pattern = RawStore(root.with_name(f"{root.name}-pattern"))
    (key,) = stored(pattern.root)
    first = block().cells[0].id
    cell = json.loads(
        gzip.decompress((pattern.folder(key) / f"cells/{first}.json.gz").read_bytes())
    )
    rest = {n: (pattern.folder(key) / n).read_bytes() for n in ("target.json", "facts.json")}
    (root / "raw").mkdir(parents=True)
    (root / "store.json").write_text(canonical_json({"format": STORE_FORMAT}) + "\n")
    keys = []
    for key, made in large_blocks(cells).items():
        folder = root / "raw" / key
        (folder / "cells").mkdir(parents=True)
        document = made.document()
        (folder / "block.json").write_text(canonical_json(document))
        for name, data in rest.items():
            (folder / name).write_bytes(data)
        (folder / "run.json").write_text(canonical_json({"wall_s": 100.0}))
        for planned in document["cells"]:
            result = {**cell["result"], "id": planned["id"]}
            text = canonical_json({**cell, "cell": planned, "result": result})
            data = gzip.compress(text.encode(), compresslevel=1, mtime=0)
            (folder / "cells" / f"{planned['id']}.json.gz").write_bytes(data)
        (folder / DIGESTS).write_text(canonical_json(digests_of(folder)))
        keys.append(key)
    return keys


def large_tables(pattern: Path, folder: Path, cells: int, bins: int = 60) -> None:
    """Write tables of at least so many cells, from those of a few; each has `bins` latencies.

    Parameters
    ----------
    pattern : Path
        A folder of results of one pathology.
    folder : Path
        The folder of the large ones; made.
    cells : int
        At least so many.
    bins : int, optional
        Rows of each cell in the histograms.
    """
    folder.mkdir(parents=True)
    for name in ("unavailable.json", "kernels.json"):
        (folder / name).write_bytes((pattern / name).read_bytes())
    few = pd.read_parquet(pattern / "cells.parquet")
    few = few[~few["recorded"]]
    copies = cells // len(few) + 1
    whole = pd.concat([few] * copies, ignore_index=True)
    boots = np.repeat(np.arange(copies), len(few))
    for name in ("cell", "block"):
        parts = whole[name].str.partition("-")
        made = [f"{number:016x}" for number in boots]
        whole[name] = pd.Series(made) + (("-" + parts[2]) if name == "cell" else "")
        if name == "cell":
            whole[name] = whole[name] + "-" + whole.groupby("cell").cumcount().astype(str)
    whole["boot"] = boots
    whole["twin"] = ""
    whole.to_parquet(folder / "cells.parquet", index=False)
    names = np.repeat(whole["cell"].to_numpy(), bins)
    sizes = np.tile(1000.0 * 1.05 ** np.arange(bins), len(whole))
    latency = pd.DataFrame({"cell": names, "bin_ns": sizes, "count": np.int64(7)})
    latency.to_parquet(folder / "latency.parquet", index=False)
    told = pd.DataFrame({"cell": whole["cell"], "measure": "made_up", "value": 1.0})
    told.to_parquet(folder / "mechanism.parquet", index=False)
