# SPDX-License-Identifier: MIT
"""Sweeps on a disk that becomes full at a random place, and go on when it has room."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from iolab_base.errors import IolabError
from iolab_base.process import run
from tests.support.fault_runs import (
    Bench,
    Hear,
    Run,
    half_written,
    left_over,
    said_wrong,
    store_wrongs,
    tables_of,
)

_END_S: Final = 1200
_ROOM: Final = "256m"


class _Disk:
    """A small disk that holds all results, or those of the pathology alone."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        said = bench.begin().end(_END_S)
        self.tables = tables_of(bench.root)
        if said.code or not self.tables:
            raise IolabError(f"a sweep with room enough fails:\n{said.words}")
        files = [path for path in bench.root.rglob("*") if path.is_file()]
        self.needs = sum(-(-path.stat().st_size // 4096) * 4096 for path in files)
        shutil.rmtree(bench.root)
        self.kept: dict[str, Any] = {}
        self.free = 0
        self.place: Path | None = None

    def mount(self, place: Path) -> None:
        """Put a disk there that has no room yet."""
        place.mkdir(parents=True)
        run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=0755", "none", place], timeout_s=60)
        self.place = place
        self.free = 0

    def unmount(self) -> None:
        """Take the disk and all results away."""
        if self.place is not None:
            run(["umount", self.place], timeout_s=60)
            self.place = None
        shutil.rmtree(self.bench.root, ignore_errors=True)
        self.kept.clear()

    def run(self, draw: random.Random) -> Run:
        """Run the sweep with some room more than before, or with room enough."""
        if self.place is None:
            below = self.bench.root / self.bench.file.stem
            self.mount(draw.choice((self.bench.root, below)))
        assert self.place is not None
        whole = self.free > 0 and draw.random() < 0.25
        self.free += round(draw.uniform(0, self.needs * draw.choice((0.05, 0.5))))
        whole |= self.free > self.needs
        size = _ROOM if whole else f"{max(4, self.free >> 10)}k"
        run(["mount", "-o", f"remount,size={size}", self.place], timeout_s=60)
        what = f"a disk of {size} as {self.place.name}"
        try:
            said = self.bench.begin().end(_END_S)
        except subprocess.TimeoutExpired:
            return Run(what, "killed", (f"it does not end in {_END_S} s",))
        root = self.bench.root
        wrongs = said_wrong(said) + half_written(root) + store_wrongs(root, self.kept)
        wrongs += left_over(root, self.bench.tmp)
        wrongs += ["something is left running"] if self.bench.processes() else []
        if whole:
            wrongs += [f"with room: {said.words[-500:]}"] if said.code else []
            wrongs += [] if tables_of(root) == self.tables else ["the tables differ"]
        if not said.code:
            self.unmount()
        return Run(what, "sentence" if said.code else "result", tuple(wrongs), said.last)


def fill_disks(folder: Path, runs: int, draw: random.Random, hear: Hear) -> None:
    """Let as many sweeps meet a full disk; `hear` hears of each."""
    bench = Bench(folder, 3, boots=1)
    try:
        disk = _Disk(bench)
        try:
            for _ in range(runs):
                hear(disk.run(draw))
        finally:
            disk.unmount()
    finally:
        bench.down()
