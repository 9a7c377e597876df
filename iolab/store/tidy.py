# SPDX-License-Identifier: MIT
"""Make tables and the canonical export from raw results."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from iolab.store.block_tables import block_rows
from iolab.store.counters import UNAVAILABLE_COLUMNS
from iolab.store.dataset import Dataset, gate_other_regimes
from iolab.store.hashes import recorded_digest, write_hashes
from iolab.store.kernels import KernelBuild, build_of, kernel_config, merge_builds
from iolab.store.partitions import kept_hashes, kept_tables
from iolab.store.raw import RawStore, named_blocks
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write, canonical_json, scratch_dir

__all__ = ["canonical_lines", "read_blocks", "write_tables"]


def read_blocks(store: RawStore, keys: Iterable[str], unavailable: Mapping[str, str]) -> Dataset:
    """Return the tables of some blocks of the store, their kernels, and the paths of their traces.

    `unavailable` maps a kernel that cannot run here to the reason.
    """
    blocks = {key[:16]: key for key in keys}
    cells, latency, mechanism = kept_tables(store, list(blocks.values()))
    cells = gate_other_regimes(cells)
    traces: dict[str, Path] = {}
    for cell in cells.loc[cells["valid"] & cells["recorded"], "cell"]:
        block, _, name = cell.rpartition("-")
        traces[cell] = store.trace(blocks[block], name)
    missing = [{"kernel": kernel, "reason": reason} for kernel, reason in unavailable.items()]
    away = pd.DataFrame(missing, columns=list(UNAVAILABLE_COLUMNS))
    return Dataset(cells, latency, away, mechanism, traces, _builds(store, blocks.values()))


def _builds(store: RawStore, keys: Iterable[str]) -> dict[str, KernelBuild]:
    """Return how each kernel of some blocks was built and booted."""
    # Many blocks share a kernel: its image is read once.
    configs: dict[tuple[str, str], str] = {}
    boots: dict[str, list[KernelBuild]] = {}
    for key in keys:
        facts, target = store.facts(key), store.read(key, "target.json")
        kernel, release = store.block(key).kernel, str(facts["kernel_release"])
        place = kernel, canonical_json(target)
        if place not in configs:
            configs[place] = kernel_config(kernel, release, target)
        try:
            boots.setdefault(kernel, []).append(build_of(facts, configs[place]))
        except (AttributeError, TypeError, ValueError) as error:
            raise IolabError(f"{store.folder(key) / 'facts.json'} is damaged") from error
    return {kernel: merge_builds(builds) for kernel, builds in boots.items()}


def _link(source: Path, target: Path) -> None:
    """Give a file of the store a second name; copy it where the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        with scratch_dir(target.parent) as work:
            Path(shutil.copyfile(source, work / target.name)).rename(target)


def write_tables(
    store: RawStore, keys: Sequence[str], unavailable: Mapping[str, str], folder: Path
) -> Dataset:
    """Write the tables of some blocks into `folder`, each whole or not at all, and return them.

    `unavailable` maps a kernel that cannot run here to the reason. The traces of recorded cells are
    linked into the folder, and hashes of everything are written beside the tables, to verify them.
    """
    data = read_blocks(store, keys, unavailable)
    tables = {"cells": data.cells, "latency": data.latency, "mechanism": data.mechanism}
    for name, table in tables.items():
        stream = io.BytesIO()
        table.to_parquet(stream, index=False)
        atomic_write(folder / f"{name}.parquet", stream.getvalue())
    traces = {cell: folder / "traces" / f"{cell}.dat" for cell in data.traces}
    for cell, source in data.traces.items():
        _link(source, traces[cell])
    missing = data.unavailable.to_dict("records")
    atomic_write(folder / "unavailable.json", json.dumps(missing, indent=1) + "\n")
    builds = {kernel: build.document() for kernel, build in data.kernels.items()}
    atomic_write(folder / "kernels.json", json.dumps(builds, indent=1, sort_keys=True) + "\n")
    atomic_write(folder / "blocks.json", json.dumps(list(keys), indent=1) + "\n")
    # Written last: it seals the tables.
    write_hashes(store, {key: kept_hashes(store, key) for key in keys}, folder)
    return replace(data, traces=traces)


def canonical_lines(store: RawStore, folder: Path) -> Iterator[str]:
    """Yield a line of canonical JSON for each measured cell of a sweep's folder.

    In virtual time the lines are the same bytes on every machine with the same kernels, image and
    QEMU. Each has the condition, the measures, and the SHA-256 of everything the agent recorded.
    """
    store.check_format()
    for key in _keys(folder):
        for row, document, mechanism in block_rows(store, key):
            plain = {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in (*row.items(), *mechanism.items())
            }
            plain["recorded_sha256"] = recorded_digest(document["result"])
            yield canonical_json(plain)


def _keys(folder: Path) -> list[str]:
    """Return the keys of the blocks that a sweep's folder is made of."""
    try:
        return named_blocks(folder)
    except FileNotFoundError as error:
        raise IolabError(f"{folder} holds no finished sweep") from error
    except UserError as error:
        raise IolabError(f"{folder} holds no finished sweep: {error}") from error
