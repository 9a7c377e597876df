# SPDX-License-Identifier: MIT
"""Tables of stored blocks: made from the agent's records, kept as Parquet, and exported."""

from __future__ import annotations

import hashlib
import io
import json
import math
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

import fiojobs
import iolab_agent
import tracedat
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.registry import BrokenPathologyError, measures_of_result, measures_of_trace
from iolab.store.counters import (
    CELL_COLUMNS,
    LATENCY_COLUMNS,
    MECHANISM_COLUMNS,
    UNAVAILABLE_COLUMNS,
    column_types,
    histogram,
    measures,
)
from iolab.store.dataset import (
    Dataset,
    KernelBuild,
    build_of,
    conformed,
    gate_other_regimes,
    merge_builds,
)
from iolab.store.files import PARTITIONS
from iolab.store.hashes import CellHashes, cell_hashes, recorded_digest, write_hashes
from iolab.store.raw import RawStore, named_blocks
from iolab.store.soundness import machine_gates
from iolab_base import foreign
from iolab_base.code import code_of
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write, canonical_json, digest_of, scratch_dir
from iolab_base.parquet import FILE_BYTES, plain_texts, read_table
from iolab_base.reading import digest_regular, read_regular

_NAMES: Final = ("cells", "latency", "mechanism")
# The modules that determine the numbers and texts of tables.
_MAKERS: Final = {
    Path(str(tracedat.__file__)).parent: ("*.py",),
    Path(foreign.__file__).parent: ("foreign.py", "parquet.py"),
    Path(iolab_agent.__file__).parent: ("plan*.py",),
    Path(fiojobs.__file__).parent: ("table.py",),
    Path(__file__).parents[1]: (
        *("blocks.py", "measure/*.py", "pathology/*.py", "results.py"),
        "store/*.py",
    ),
}


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
            **{n: getattr(block, n) for n in ("pathology", "kernel", "clock", "boot")},
            "kernel_release": foreign.line(facts["kernel_release"], foreign.NAME),
            "scheduler": foreign.line(facts["scheduler"] or "unknown", foreign.SCHEDULER),
            "target": target["target"],
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
    """Return the columns of each table of `block_tables`; factors only if of one pathology."""
    cells = column_types(*pathologies) if len(pathologies) == 1 else CELL_COLUMNS
    return cells, LATENCY_COLUMNS, MECHANISM_COLUMNS


def _frame(rows: Sequence[Any], columns: Mapping[str, str]) -> pd.DataFrame:
    try:
        return pd.DataFrame(rows, columns=list(columns)).astype(columns)
    except (TypeError, ValueError, OverflowError) as error:
        raise IolabError(
            f"a stored block does not fit into the tables ({foreign.line(str(error), 200)}): "
            "`iolab fsck` names the block"
        ) from error


def block_tables(
    store: RawStore, keys: Iterable[str]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the tables ``cells``, ``latency`` and ``mechanism`` (see `iolab.store.dataset`)."""
    rows: list[dict[str, Any]] = []
    bins: list[tuple[str, float, int]] = []
    own: list[tuple[str, str, float]] = []
    for key in keys:
        for row, document, measured in block_rows(store, key):
            rows.append(row)
            bins += [(row["cell"], *entry) for entry in histogram(document["result"])]
            own += [(row["cell"], *entry) for entry in measured.items()]
    cells, latency, mechanism = table_columns({row["pathology"] for row in rows})
    return _frame(rows, cells), _frame(bins, latency), _frame(own, mechanism)


def kept_tables(
    store: RawStore, keys: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the result of `block_tables`, from partitions if present."""
    if not keys:
        return block_tables(store, keys)
    partitions = [_partition(store, key) for key in keys]
    columns = table_columns({pathology for pathology, _ in partitions})
    frames = []
    for name, types in zip(_NAMES, columns, strict=True):
        parts = [tables[name] for _, tables in partitions]
        whole = pa.concat_tables(parts, promote_options="permissive").to_pandas()
        frames.append(conformed(whole, types, store.root / PARTITIONS))
    cells, latency, mechanism = frames
    return cells, latency, mechanism


def kept_hashes(store: RawStore, key: str) -> Mapping[str, CellHashes]:
    """Return the result of `cell_hashes`, from the partition if present."""
    stamp = _stamp(store, key)
    if not stamp:
        return cell_hashes(store, key)
    return {name: CellHashes(**one) for name, one in stamp["hashes"].items()}


def _partition(store: RawStore, key: str) -> tuple[str, Mapping[str, pa.Table]]:
    """Return a block's pathology and tables; they are kept, so that its records are read once."""
    # In the folder ``.tables``: a Parquet file each, and a stamp with the hashes of the cells. A
    # partition is made anew when the block's files, the tables or the code do not match the stamp.
    if stamp := _stamp(store, key):
        # A damaged one is made anew.
        with suppress(UserError, LookupError, TypeError, ValueError, OSError):
            return stamp["pathology"], _read_partition(store, key, stamp)
    pathology = store.block(key).pathology
    files = _file_times(store, key)
    frames = zip(_NAMES, block_tables(store, [key]), strict=True)
    tables = {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames}
    # The code of a user's pathology is not in the stamp, so it has no partitions.
    # The store may be somebody else's, or a sweep that has just ended may have changed a file.
    if pathology in PATHOLOGIES and files == _file_times(store, key):
        with suppress(IolabError):
            _keep_partition(store, key, {"pathology": pathology, "files": files}, tables)
    return pathology, tables


def _keep_partition(
    store: RawStore, key: str, made_from: Mapping[str, Any], tables: Mapping[str, pa.Table]
) -> None:
    digests = {}
    for name, table in tables.items():
        stream = io.BytesIO()
        parquet.write_table(table, stream)
        data = stream.getvalue()
        digests[name] = hashlib.sha256(data).hexdigest()
        atomic_write(_partition_path(store, key, f"{name}.parquet"), data)
    hashes = {name: asdict(one) for name, one in cell_hashes(store, key).items()}
    stamp = {**made_from, "code": _code(), "hashes": hashes, "tables": digests}
    # Written last: it names the others.
    document = {"stamp": stamp, "sha256": digest_of(stamp)}
    atomic_write(_partition_path(store, key, "json"), canonical_json(document))


def _read_partition(store: RawStore, key: str, stamp: Mapping[str, Any]) -> dict[str, pa.Table]:
    tables = {}
    for name in _NAMES:
        path = _partition_path(store, key, f"{name}.parquet")
        if digest_regular(path, FILE_BYTES, below=store.root) != stamp["tables"][name]:
            raise ValueError("it is not the table of the stamp")
        tables[name] = plain_texts(read_table(path, below=store.root), path)
    return tables


def _stamp(store: RawStore, key: str) -> dict[str, Any]:
    """Return the stamp of a block's partition; {} if it is damaged or outdated."""
    try:
        document = foreign.document(
            read_regular(_partition_path(store, key, "json"), below=store.root)
        )
        stamp: dict[str, Any] = document["stamp"]
        whole = document["sha256"] == digest_of(stamp)
        current = (stamp["code"], stamp["files"]) == (_code(), _file_times(store, key))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return stamp if whole and current else {}


def _file_times(store: RawStore, key: str) -> dict[str, list[int]]:
    """Return the size and the time of each of a block's files: a change of it changes one."""
    return {name: [one.st_size, one.st_mtime_ns] for name, one in store.files(key).items()}


def _partition_path(store: RawStore, key: str, ending: str) -> Path:
    return store.root / PARTITIONS / f"{key}.{ending}"


def sources() -> dict[str, str]:
    """Return the text of each module that makes tables, by its name."""
    found = {}
    for root, patterns in _MAKERS.items():
        for path in (path for pattern in patterns for path in root.glob(pattern)):
            found[str(path.relative_to(root.parent))] = path
    return {name: path.read_text() for name, path in sorted(found.items())}


def code_digest(modules: Mapping[str, str]) -> str:
    """Return the digest of modules' code, which no docstring or comment changes."""
    return digest_of({name: code_of(text) for name, text in modules.items()})


@cache
def _code() -> str:
    return code_digest(sources())


def read_blocks(store: RawStore, keys: Iterable[str], unavailable: Mapping[str, str]) -> Dataset:
    """Return the tables of some blocks, and the reasons why kernels are unavailable here."""
    blocks = {key[:16]: key for key in keys}
    cells, latency, mechanism = kept_tables(store, list(blocks.values()))
    cells = gate_other_regimes(cells)
    recorded = cells.loc[cells["valid"] & cells["recorded"], "cell"]
    named = {cell: cell.rpartition("-") for cell in recorded}
    traces = {cell: store.trace(blocks[block], name) for cell, (block, _, name) in named.items()}
    away = pd.DataFrame([*unavailable.items()], columns=list(UNAVAILABLE_COLUMNS))
    return Dataset(cells, latency, away, mechanism, traces, _builds(store, blocks.values()))


def _builds(store: RawStore, keys: Iterable[str]) -> dict[str, KernelBuild]:
    """Return how each kernel of some blocks was built and booted."""
    boots: dict[str, list[KernelBuild]] = {}
    for key in keys:
        kernel = store.block(key).kernel
        try:
            boots.setdefault(kernel, []).append(build_of(store.facts(key)))
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
    """Write the tables of some blocks into `folder`, each whole or not at all, and return them."""
    data = read_blocks(store, keys, unavailable)
    for name in _NAMES:
        # Without it, a flipped byte of a number is another number.
        table = getattr(data, name).to_parquet(index=False, write_page_checksum=True)
        atomic_write(folder / f"{name}.parquet", table)
    traces = {cell: folder / "traces" / f"{cell}.dat" for cell in data.traces}
    for cell, source in data.traces.items():
        _link(source, traces[cell])
    # Of blocks with other keys: an agent or kernel before this one.
    for old in {*folder.glob("traces/*.dat")} - {*traces.values()}:
        old.unlink()
    missing = data.unavailable.to_dict("records")
    atomic_write(folder / "unavailable.json", json.dumps(missing, indent=1) + "\n")
    builds = {kernel: asdict(build) for kernel, build in data.kernels.items()}
    atomic_write(folder / "kernels.json", json.dumps(builds, indent=1, sort_keys=True) + "\n")
    atomic_write(folder / "blocks.json", json.dumps(list(keys), indent=1) + "\n")
    # Written last: it seals the tables.
    write_hashes(store, {key: kept_hashes(store, key) for key in keys}, folder)
    return replace(data, traces=traces)


def canonical_lines(store: RawStore, folder: Path) -> Iterator[str]:
    """Yield a line of canonical JSON for each measured cell of a sweep's folder."""
    store.check_format()
    try:
        keys = named_blocks(folder)
    except FileNotFoundError as error:
        raise IolabError(f"{folder} holds no finished sweep") from error
    except UserError as error:
        raise IolabError(f"{folder} holds no finished sweep: {error}") from error
    for key in keys:
        for row, document, mechanism in block_rows(store, key):
            plain = {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in (*row.items(), *mechanism.items())
            }
            plain["recorded_sha256"] = recorded_digest(document["result"])
            yield canonical_json(plain)
