# SPDX-License-Identifier: MIT
"""Stores of somebody else, in which links, devices, fifos and bombs stand for files."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from iolab.store.raw import RawStore
from iolab.store.tables import write_tables
from tests.support.command import ARGV
from tests.support.fault_runs import Hear, Run, half_written, left_over, said_wrong
from tests.support.processes import child_environment
from tests.support.stores import stored
from tests.support.terminal import OnTerminal

_END_S: Final = 300
_MOST_KIB: Final = 1 << 20
_SECRET: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----\n"
# Runs a command, and writes to a file how much memory it and its children had at most.
_MEASURED: Final = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code if code >= 0 else 128 - code)
"""
_COMMANDS: Final = (
    ("fsck", "{store}"),
    ("merge", "{store}", "--root", "{mine}"),
    ("verdicts", "{tables}"),
    ("export", "--canonical", "{tables}", "--root", "{store}"),
    ("gc", "{store}"),
)


def _link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def _zeros(path: Path, secret: Path) -> None:
    path.symlink_to("/dev/zero")


def _device(path: Path, secret: Path) -> None:
    os.mknod(path, 0o020644, os.makedev(1, 5))


def _fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def _hole(path: Path, secret: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


def _folder(path: Path, secret: Path) -> None:
    path.mkdir()
    (path / "more").symlink_to("..")


def _gzip_bomb(path: Path, secret: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(2048):
            stream.write(bytes(1 << 20))


def _many_objects(path: Path, secret: Path) -> None:
    path.write_bytes(gzip.compress(b'{"x":[' + b"{}," * 20_000_000 + b"{}]}", 1))


def _deep(path: Path, secret: Path) -> None:
    path.write_bytes(b"[" * 5_000_000)


def _rows(path: Path, secret: Path) -> None:
    column = pa.array([1.0] * 1_000_000)
    table = pa.table(dict.fromkeys(("latency_ns", "count", "cell"), column))
    with parquet.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(300):
            writer.write_table(table)


def _long_text(path: Path, secret: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3_000_000, pa.int32()), ["x" * 10_000])
    parquet.write_table(pa.table({"cell": text}), path)


PAYLOADS: Final[dict[str, Callable[[Path, Path], None]]] = {
    "a link to a secret": _link,
    "a link to /dev/zero": _zeros,
    "a device": _device,
    "a fifo": _fifo,
    "a hole of 1 TiB": _hole,
    "a folder": _folder,
    "a gzip bomb": _gzip_bomb,
    "many objects": _many_objects,
    "deep JSON": _deep,
    "many rows": _rows,
    "a long text in many rows": _long_text,
}


class _Stores:
    """A store of somebody else, whole, of which each run spoils a copy; and a secret beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / "secret"
        self.secret.write_bytes(_SECRET)
        self.whole = folder / "whole"
        keys = stored(self.whole, boots=2)
        write_tables(RawStore(self.whole), keys, {}, self.whole / "own/quick")
        self.store = folder / "store"
        self.mine = folder / "mine"

    def run(self, name: str, draw: random.Random) -> Run:
        """Spoil a file, or what it is in, and read the store."""
        for made in (self.store, self.mine):
            shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(self.whole, self.store)
        words = draw.choice(_COMMANDS)
        read = self.store / ("own" if "{tables}" in words else "raw")
        path = draw.choice(sorted(read.rglob("*")))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        if draw.random() < 0.2:
            path = path.with_name("notes.txt")
        PAYLOADS[name](path, self.secret)
        what = f"{words[0]} with {name} as {path.relative_to(self.store)}"
        places = {"store": self.store, "mine": self.mine, "tables": self.store / "own/quick"}
        used = self.folder / "used"
        argv = [sys.executable, "-c", _MEASURED, str(used), *ARGV]
        argv += [word.format(**places) for word in words]
        environment = child_environment(TERM="xterm-256color", COLUMNS="200")
        try:
            said = OnTerminal(argv, environment, cwd=self.folder).end(_END_S)
        except subprocess.TimeoutExpired:
            return Run(what, "killed", (f"it does not end in {_END_S} s",))
        wrongs = said_wrong(said) + self._after()
        if (kib := int(used.read_text())) > _MOST_KIB:
            wrongs.append(f"it took {kib >> 10} MiB")
        return Run(what, "sentence" if said.code else "result", tuple(wrongs), said.last)

    def _after(self) -> list[str]:
        wrongs = ["the secret was changed"] if self.secret.read_bytes() != _SECRET else []
        if self.mine.exists():
            wrongs += half_written(self.mine) + left_over(self.mine)
            for path in self.mine.rglob("*"):
                if path.is_symlink() or not (path.is_file() or path.is_dir()):
                    wrongs.append(f"{path.name} was copied as it is")
                elif path.is_file() and _SECRET in path.read_bytes():
                    wrongs.append(f"{path.name} has the secret")
        return wrongs


def open_stores(folder: Path, runs: int, draw: random.Random, hear: Hear) -> None:
    """Read as many stores of somebody else; `hear` hears of each."""
    stores = _Stores(folder)
    names = list(PAYLOADS)
    for number in range(runs):
        hear(stores.run(names[number % len(names)], draw))
