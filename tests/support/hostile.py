# SPDX-License-Identifier: MIT
"""Folders of results of somebody hostile: links, devices, fifos, bombs. What commands make of them.

``python -m tests.support.hostile FOLDER [PAYLOAD...]`` runs every command over every payload, each
in a process of its own, and prints a line of JSON for each.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyarrow import parquet as pq

from guestprof.profile import CostProfile
from guestprof.profile_file import write_profile
from iolab.blocks import Block
from iolab.cli import main
from iolab.store.files import DIGESTS, digests_of
from iolab.store.hashes import HASHES
from iolab.store.raw import RawStore
from iolab.store.tables import write_tables
from iolab.sweeps.measure import missing_blocks
from iolab_base.errors import IolabError
from tests.support.parquet_writer import (
    BYTE_ARRAY,
    DATA,
    DATA_2,
    DICTIONARY,
    FIXED,
    INT64,
    LIST,
    encoded,
    lying,
    page,
    repeated,
    varint,
)
from tests.support.results import block
from tests.support.stores import spoil, stored

PRIVATE: Final = "what the operator keeps to himself"
# What a machine may take for one payload, with Python and pandas.
_SECONDS: Final = 60
_HUGE: Final = 1 << 40

Payload = Callable[["Hostile"], None]
# Makes what stands in a file.
Content = Callable[[], bytes]
_LARGE: Final[list[Content]] = []


class Hostile:
    """A whole folder of results: a store with a block, its tables, and a profile of a cell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole, self.root, self.mine = (folder / n for n in ("whole", "root", "mine"))
        self.secret = folder / "secret"
        self.secret.write_text(PRIVATE)
        (self.key,) = stored(self.whole)
        self.made: Block = block()
        write_tables(RawStore(self.whole), [self.key], {}, self.whole / "dio_kworker")
        nodes = {"parent": [-1], "task": ["fio"], "pid": [1], "cpu": [0], "function": ["read"]}
        profile = pd.DataFrame({**nodes, "module": ["vmlinux"], "instructions": [9], "calls": [1]})
        write_profile(
            self.whole / f"profiles/{self.key}/c000.parquet", CostProfile(profile, {"ios": 1})
        )

    @property
    def block(self) -> Path:
        """The folder of the block."""
        return self.root / "raw" / self.key

    @property
    def tables(self) -> Path:
        """The folder of the tables."""
        return self.root / "dio_kworker"

    def commands(self) -> dict[str, Callable[[], object]]:
        """Return what reads the store, by name; what changes it comes last."""
        store, cell = RawStore(self.root), f"{self.key[:16]}-c000"
        return {
            "fsck": _command("fsck", self.root),
            "merge": _command("merge", self.root, "--root", self.mine),
            "export": _command("export", self.tables, "--canonical", "--root", self.root),
            "profile": _command("profile", "--root", self.root),
            "profile CELL": _command("profile", cell, "--root", self.root),
            "gc": _command("gc", self.root, "--unused"),
            "sweep": lambda: missing_blocks(store, {self.key: self.made}),
            "sweep again": lambda: missing_blocks(store, {self.key: self.made}),
            "fsck --set-aside": _command("fsck", self.root, "--set-aside"),
            "gc --delete": _command("gc", self.root, "--delete"),
        }

    def commands_of_tables(self) -> dict[str, Callable[[], object]]:
        """Return what reads the tables, by name."""
        return {
            "fsck": _command("fsck", self.tables),
            "verdicts": _command("verdicts", self.tables),
            "export": _command("export", self.tables),
            "pyperf": _command("export", self.tables, "--pyperf", self.folder / "archives"),
            "verify": _command("verify", self.tables, "--dry-run", "--anyway"),
            "mail": _command("mail", self.tables),
            "mail --why": _command("mail", self.tables, "--why", self.tables),
            "gc": _command("gc", self.root, "--unused"),
        }

    def run(self, payload: str) -> dict[str, Any]:
        """Put a payload into a copy of the folder, and run every command over it.

        Returns
        -------
        dict
            ``codes`` of the commands by their names, or the traceback of one; ``mib``: the most
            that they took; ``kept``: whether something that is not of the folder was taken over;
            ``there``: whether the store has its block at the end.
        """
        for folder in (self.root, self.mine):
            _remove(folder)
        shutil.copytree(self.whole, self.root, symlinks=True)
        PAYLOADS[payload](self)
        codes: dict[str, Any] = {}
        of_tables = payload not in OF_STORES
        commands = self.commands_of_tables() if of_tables else self.commands()
        for name, command in commands.items():
            try:
                out = io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                    command()
                codes[name] = 0
            except SystemExit as ended:
                codes[name] = ended.code
            except IolabError as error:
                codes[name] = error.exit_code
            except BaseException:
                codes[name] = traceback.format_exc()
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        texts = (p for p in self.mine.rglob("*") if p.is_file())
        kept = any(PRIVATE.encode() in path.read_bytes() for path in texts)
        return {
            "codes": codes,
            "mib": mib,
            "kept": kept,
            "there": RawStore(self.root).has(self.key),
        }


def _command(*words: object) -> Callable[[], object]:
    def call() -> None:
        sys.argv = ["iolab", *map(str, words)]
        main()

    return call


def _remove(path: Path) -> None:
    # Not by Python: folders may be too deep.
    subprocess.run(["rm", "-rf", str(path)], check=True)


# What may lie in the place of a file or folder.
def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(path.parent, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(_HUGE)


def _link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def _in_place(make: Callable[[Path], object], *names: str) -> Payload:
    """Return what puts something else in the place of these files and folders."""

    def put(hostile: Hostile) -> None:
        for name in names:
            path = hostile.root / name.replace("KEY", hostile.key)
            _remove(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)

    return put


def _to_secret(*names: str) -> Payload:
    def put(hostile: Hostile) -> None:
        _in_place(lambda path: path.symlink_to(hostile.secret), *names)(hostile)

    return put


def _moved(name: str) -> Payload:
    """Return what makes a folder a link to its content elsewhere."""

    def put(hostile: Hostile) -> None:
        path = hostile.root / name.replace("KEY", hostile.key)
        elsewhere = hostile.folder / "elsewhere"
        _remove(elsewhere)
        path.rename(elsewhere)
        path.symlink_to(elsewhere)

    return put


def _large(make: Content) -> Content:
    """Make content once, and only where it is put in place."""
    _LARGE.append(functools.cache(make))
    return _LARGE[-1]


def _holding(name: str, content: Content) -> Payload:
    return _in_place(lambda path: path.write_bytes(content()), name)


def _sealed(name: str, content: Content) -> Payload:
    """Return what replaces a file of the block, and lists its digest."""

    def put(hostile: Hostile) -> None:
        _holding(f"raw/KEY/{name}", content)(hostile)
        listed = json.dumps(digests_of(hostile.block)).encode()
        spoil(hostile.block / DIGESTS, lambda _: listed)

    return put


def _old(name: str, content: Content) -> Payload:
    """Return what replaces a file of a block that has no digests."""

    def put(hostile: Hostile) -> None:
        _holding(f"raw/KEY/{name}", content)(hostile)
        (hostile.block / DIGESTS).unlink()

    return put


def _deep(hostile: Hostile) -> None:
    path = hostile.block
    here = os.open(path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def _deep_tables(hostile: Hostile) -> None:
    _deep(hostile)
    (hostile.block / "d").rename(hostile.root / "d")


def _odd_names(hostile: Hostile) -> None:
    for name in (b"\xff\xfe", b"a\nb\x1b[2J", b"deadbeef\n"):
        (Path(os.fsdecode(bytes(hostile.block) + b"/cells/" + name))).write_bytes(b"")
        (Path(os.fsdecode(bytes(hostile.root) + b"/raw/" + name))).mkdir()
        place = Path(os.fsdecode(bytes(hostile.root) + b"/" + name))
        shutil.copytree(hostile.tables, place)
        (place / "cells.parquet").write_bytes(b"")


def _looping(hostile: Hostile) -> None:
    for name in ("dio_kworker/up", "raw/up", "profiles/up", "up", "set-aside", ".tables", "plans"):
        with contextlib.suppress(FileExistsError):
            (hostile.root / name).symlink_to(hostile.root)


def _unknown_file(hostile: Hostile) -> None:
    (hostile.block / "notes.txt").write_text("a file that nobody stored")
    (hostile.block / "more").mkdir()


def _unlisted_trace(hostile: Hostile) -> None:
    (hostile.block / "traces").mkdir()
    (hostile.block / "traces" / "c000.dat").symlink_to("/dev/zero")


def _run_with_secret(hostile: Hostile) -> None:
    run = {"wall_s": 1.0, "iolab": "0.0.9", "more": PRIVATE}
    spoil(hostile.block / "run.json", lambda _: json.dumps(run).encode())


def _sparse_traces(hostile: Hostile) -> None:
    (hostile.block / "traces").mkdir()
    for cell in ("c000", "c001"):
        with (hostile.block / "traces" / f"{cell}.dat").open("wb") as stream:
            stream.truncate(3 << 30)


def _hashes_of(text: Content) -> Payload:
    """Return what seals lines of hashes with the tables as they are."""

    def put(hostile: Hostile) -> None:
        path = hostile.tables / HASHES
        header = gzip.decompress(path.read_bytes()).partition(b"\n")[0]
        spoil(path, lambda _: gzip.compress(header + b"\n", 1) + text())

    return put


def _metadata(**said: Any) -> Payload:
    def put(hostile: Hostile) -> None:
        path = hostile.tables / "latency.parquet"
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[b"pandas"]) | said
        pq.write_table(table.replace_schema_metadata({b"pandas": json.dumps(about)}), path)

    return put


def _equal_rows(rows: int) -> bytes:
    """Return a run of one index, which stands for so many rows."""
    return b"\x01" + varint(rows << 1) + b"\0"


def _latencies(rows: int, times: int) -> Payload:
    """Return what repeats a histogram's row: so many rows in each of so many row groups."""

    def put(hostile: Hostile) -> None:
        row = pd.read_parquet(hostile.tables / "latency.parquet").iloc[[0] * rows]
        table = pa.Table.from_pandas(row, preserve_index=False)
        spoil(hostile.tables / "latency.parquet", lambda _: repeated(table, times))

    return put


def _texts(one: bytes, rows: int) -> bytes:
    """Return a file in which one long text stands in every row."""
    word = len(one).to_bytes(4, "little") + one
    pages = [page(DICTIONARY, word, 1), page(DATA, _equal_rows(rows), rows, 8)]
    leaf = {1: BYTE_ARRAY, 3: 0, 4: "cell", 6: 0}
    return lying(pages, kind=BYTE_ARRAY, rows=rows, schema=[{4: "schema", 5: 1}, leaf])


_FIVE: Final = (5).to_bytes(8, "little")
_EQUAL: Final = [page(DICTIONARY, _FIVE, 1), page(DATA, _equal_rows(300_000_000), 300_000_000, 8)]
_ONES: Final = bytes(8 * 5)


@_large
def _zeros() -> bytes:
    return bytes(pa.Codec("zstd").compress(bytes(1 << 30), asbytes=True))


def _twice() -> bytes:
    """Return a page whose size stands there twice."""
    head = encoded({1: 0, 2: 2 << 29, 3: len(_zeros()), 5: {1: 5, 2: 0, 3: 3, 4: 3}})[:-1]
    # The same field again, as an i64: Thrift's own reader skips that.
    return head + bytes([6]) + varint(2 * 2) + varint(40 * 2) + b"\0" + _zeros()


def _bombs() -> dict[str, Content]:
    """Return what makes Parquet files that are far larger in memory, or lie about it."""
    million = _equal_rows(1_000_000)
    nested: list[dict[int, Any]] = [
        {4: "schema", 5: 1},
        {3: 1, 4: "cell", 5: 1, 6: LIST},
        {3: 2, 4: "list", 5: 1},
        {1: INT64, 3: 1, 4: "element"},
    ]
    return {
        "3*10^8 equal rows": lambda: lying(_EQUAL, rows=300_000_000),
        "10^6 equal rows 300 times": lambda: lying(
            [page(DICTIONARY, _FIVE, 1), page(DATA, million, 1_000_000, 8)],
            rows=1_000_000,
            groups=300,
        ),
        "a footer of fewer rows": lambda: lying(_EQUAL, rows=5),
        "a text of 7 MiB in 10^6 rows": lambda: _texts(b"x" * (7 << 20), 1_000_000),
        "a text of 100 MB in 10^6 rows": lambda: _texts(b"x" * 100_000_000, 1_000_000),
        "a text that is not UTF-8": lambda: _texts(b"\xff\xfe\xc0", 5),
        "a page of zstd": lambda: lying([page(DATA, _zeros(), 5, unpacked=1 << 30)], codec=6),
        "a page that claims 2 GiB": lambda: lying(
            [page(DATA, _ONES, 5, unpacked=(1 << 31) - 1)], codec=6
        ),
        "a page of version 2": lambda: lying(
            [page(DATA_2, _zeros(), 5, unpacked=1 << 30)], codec=6
        ),
        "a size that stands there twice": lambda: lying([_twice()], codec=6),
        "a dictionary of 2^31 values": lambda: lying(
            [page(DICTIONARY, _FIVE, (1 << 31) - 1), page(DATA, _equal_rows(5), 5, 8)]
        ),
        "shared beginnings (DELTA_BYTE_ARRAY)": lambda: lying(
            [page(DATA, _ONES, 5, 7)], kind=BYTE_ARRAY
        ),
        "packed differences": lambda: lying([page(DATA, _ONES, 300_000_000, 5)], rows=300_000_000),
        "pages of a group without rows": lambda: lying(_EQUAL, rows=0),
        "texts of 2 GiB each": lambda: lying(
            [page(DATA, _ONES, 5)],
            kind=FIXED,
            schema=[{4: "schema", 5: 1}, {1: FIXED, 2: (1 << 31) - 1, 3: 0, 4: "cell"}],
        ),
        "a list in a row": lambda: lying(_EQUAL, rows=300_000_000, schema=nested),
        "3000 columns": lambda: lying(
            [*_EQUAL[:1], page(DATA, million, 1_000_000, 8)],
            rows=1_000_000,
            schema=[{4: "schema", 5: 3000}, *({1: INT64, 3: 0, 4: f"c{n}"} for n in range(3000))],
        ),
        "a schema 100,000 deep": lambda: lying(
            [page(DATA, _ONES, 5)],
            schema=[{4: "schema", 5: 1}]
            + [{3: 0, 4: "a", 5: 1}] * 100_000
            + [{1: INT64, 3: 0, 4: "cell"}],
        ),
        "a footer of 8 MiB": lambda: lying(
            [page(DATA, _ONES, 5)], footer={5: [{1: "a", 2: "b" * (8 << 20)}]}
        ),
        "pages elsewhere": lambda: lying([page(DATA, _ONES, 5)], column={9: (1 << 40,)}),
        "an encrypted footer": lambda: lying([page(DATA, _ONES, 5)])[:-4] + b"PARE",
        "no bytes": lambda: b"",
        "nothing but magic": lambda: b"PAR1" * 3,
    }


SOUND: Final = ("a sound store", "sound tables")


@_large
def _flat() -> bytes:
    return b"[" + b"{}," * (10 << 20) + b"{}]"


def _gibibyte() -> bytes:
    """Return 1 GiB of zeros, packed."""
    return gzip.compress(bytes(1 << 24), 1) * 64


def _equal_file() -> bytes:
    return lying(_EQUAL, rows=300_000_000)


def _of_stores() -> dict[str, Payload]:
    cell = _large(lambda: gzip.compress(b'{"x":' + _flat() + b"}", 1))
    files = ("block.json", "target.json", "facts.json", "run.json", DIGESTS, "console.txt")
    block_files = (*files, "cells/c000.json.gz")
    found: dict[str, Payload] = {SOUND[0]: lambda hostile: None}
    for name in block_files:
        found[f"{name} is a link to /dev/zero"] = _in_place(_link("/dev/zero"), f"raw/KEY/{name}")
        found[f"{name} is a link to a secret"] = _to_secret(f"raw/KEY/{name}")
    for name in ("block.json", "console.txt", "cells/c000.json.gz", "traces/c000.dat"):
        found[f"{name} is a fifo"] = _in_place(_fifo, f"raw/KEY/{name}")
        found[f"{name} has 1 TiB"] = _in_place(_sparse, f"raw/KEY/{name}")
    found |= {
        "block.json is a folder": _in_place(Path.mkdir, "raw/KEY/block.json"),
        "block.json is a socket": _in_place(_socket, "raw/KEY/block.json"),
        "console.txt is a device": _in_place(
            lambda path: os.mknod(path, 0o20666, os.makedev(1, 5)), "raw/KEY/console.txt"
        ),
        "the cells are a link": _moved("raw/KEY/cells"),
        "the block is a link": _moved("raw/KEY"),
        "the block is a link to itself": _in_place(_link("."), "raw/KEY"),
        "the block is a file": _holding("raw/KEY", bytes),
        "the block is a fifo": _in_place(_fifo, "raw/KEY"),
        "the block is a dangling link": _in_place(_link("nowhere"), "raw/KEY"),
        "raw is a file": _holding("raw", bytes),
        "raw is a link to /proc": _in_place(_link("/proc"), "raw"),
        "raw is a link": _moved("raw"),
        "store.json is a fifo": _in_place(_fifo, "store.json"),
        "store.json is a link to /dev/zero": _in_place(_link("/dev/zero"), "store.json"),
        "store.json is a folder": _in_place(Path.mkdir, "store.json"),
        "the places of the store are links": _in_place(
            _link("/etc"), "plans", "profiles", "set-aside", ".tables"
        ),
        "the places of the store are fifos": _in_place(
            _fifo, "plans", "profiles", "set-aside", ".tables"
        ),
        "links that loop": _looping,
        "folders 3000 deep": _deep,
        "tables 3000 deep": _deep_tables,
        "odd names": _odd_names,
        "a file that nobody stored": _unknown_file,
        "a trace that is a device": _unlisted_trace,
        "traces of 6 GiB": _sparse_traces,
        "a run that says more": _run_with_secret,
        "a run 100,000 deep": _holding("raw/KEY/run.json", lambda: b"[" * 100_000),
        "a block of 30 MiB": _holding("raw/KEY/block.json", _flat),
        "a cell of 30 MiB": _sealed("cells/c000.json.gz", cell),
        "an old cell of 30 MiB": _old("cells/c000.json.gz", cell),
        "a cell of 1 GiB": _old("cells/c000.json.gz", _large(_gibibyte)),
        "a profile is a link": _to_secret("profiles/KEY/c000.parquet"),
        "a profile is a fifo": _in_place(_fifo, "profiles/KEY/c000.parquet"),
        "a profile: 3*10^8 equal rows": _holding("profiles/KEY/c000.parquet", _equal_file),
    }
    return found


def _of_tables() -> dict[str, Payload]:
    widest = _large(lambda: json.dumps([{f"k{n}": ""} for n in range(200_000)]).encode())
    found = {
        SOUND[1]: lambda hostile: None,
        "kernels of 30 MiB": _holding("dio_kworker/kernels.json", _flat),
        "kernels without kernels": _in_place(_link("/dev/zero"), "dio_kworker/kernels.json"),
        "a row of reasons for each column": _holding("dio_kworker/unavailable.json", widest),
        "an attribution is a fifo": _in_place(_fifo, "dio_kworker/attribution.json"),
        "an attribution of 30 MiB": _holding("dio_kworker/attribution.json", _flat),
        "blocks.json is a fifo": _in_place(_fifo, "dio_kworker/blocks.json"),
        "blocks of 30 MiB": _holding("dio_kworker/blocks.json", _flat),
        "hashes of 1 GiB": _hashes_of(_large(_gibibyte)),
        "hashes of empty lines": _hashes_of(
            _large(lambda: gzip.compress(b"{}\n" * (4 << 20), 1) * 20)
        ),
        "hashes are a fifo": _in_place(_fifo, f"dio_kworker/{HASHES}"),
        "traces of tables are devices": _in_place(
            _link("/dev/zero"), "dio_kworker/traces/c000.dat"
        ),
        "traces are a link": _in_place(_link("/dev"), "dio_kworker/traces"),
        "latencies: 3*10^8 rows": _latencies(1_000_000, 300),
        "latencies: 10^8 rows of 1,000 groups": _latencies(100_000, 1000),
        "an index of 10^12 rows": _metadata(
            index_columns=[{"kind": "range", "name": None, "start": 0, "stop": 10**12, "step": 1}]
        ),
        "an index that is no column": _metadata(index_columns=["nothing"]),
    }
    tables = ("cells", "latency", "mechanism")
    for make, word in ((_fifo, "fifos"), (_sparse, "of 1 TiB"), (Path.mkdir, "folders")):
        found[f"tables are {word}"] = _in_place(make, *(f"dio_kworker/{t}.parquet" for t in tables))
    found["tables are links"] = _to_secret(*(f"dio_kworker/{t}.parquet" for t in tables))
    for what, bomb in _bombs().items():
        found[f"a table: {what}"] = _holding("dio_kworker/latency.parquet", _large(bomb))
    found["cells: 3*10^8 equal rows"] = _holding("dio_kworker/cells.parquet", _equal_file)
    return found


OF_STORES: Final = _of_stores()
PAYLOADS: Final = {**OF_STORES, **_of_tables()}


def _reported(hostile: Hostile, payload: str) -> dict[str, Any]:
    """Run the commands over a payload in a child of this process, which is quick to start."""
    inward, outward = os.pipe()
    if not (child := os.fork()):
        # What hangs is ended.
        signal.alarm(_SECONDS)
        with os.fdopen(outward, "w") as told:
            json.dump(hostile.run(payload), told)
        os._exit(0)
    os.close(outward)
    with os.fdopen(inward) as told:
        said = told.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said else {"ended": os.waitstatus_to_exitcode(status)}


def run_all(folder: Path, *chosen: str) -> None:
    """Print a line of JSON for each payload: its name, and what came of it."""
    hostile = Hostile(folder)
    # What a command imports, and what is large, is made once, before the children are forked.
    for content in _LARGE:
        content()
    for sound in SOUND:
        hostile.run(sound)
    for payload in chosen or PAYLOADS:
        print(json.dumps({"payload": payload, **_reported(hostile, payload)}), flush=True)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), *sys.argv[2:])
