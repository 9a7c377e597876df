# SPDX-License-Identifier: MIT
"""How long large stores take to plan, to resume and to load, as a Markdown table.

    python -m tests.bench.bench_store [--share PERCENT]

Each step runs in a process of its own, with its largest memory beside it. A share of 10 makes
stores of a tenth of the size, and allows a tenth of the time.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iolab.paths import REFERENCE
from iolab.store.dataset import load
from iolab.store.raw import RawStore
from iolab.store.tables import kept_tables
from iolab.sweeps.measure import missing_blocks
from tests.support.large import large_blocks, large_store, large_tables

# What is measured: cells, and the seconds and MiB that it may take.
STEPS: Final = {
    "plan": (100_000, 10.0, 1024),
    "resume": (10_000, 5.0, 1024),
    "again": (10_000, 5.0, 1024),
    "table": (100_000, 2.0, 1024),
}


def plan(folder: Path, cells: int) -> None:
    """Make the blocks and their keys."""
    assert sum(len(block.cells) for block in large_blocks(cells).values()) >= cells


def resume(folder: Path, cells: int) -> None:
    """Plan, and find out which blocks of a whole store have to be measured: none."""
    blocks = large_blocks(cells)
    assert missing_blocks(RawStore(folder / "store"), blocks) == []


def again(folder: Path, cells: int) -> None:
    """Make the tables of a store whose blocks' tables were made before."""
    store = RawStore(folder / "store")
    assert len(kept_tables(store, store.all_keys())[0]) >= cells


def _made_once(folder: Path, cells: int) -> None:
    kept_tables(RawStore(folder / "store"), large_store(folder / "store", cells))


def table(folder: Path, cells: int) -> None:
    """Load the tables, and count."""
    assert len(load(folder / "tables").cells) >= cells


MADE: Final[dict[str, Callable[[Path, int], object]]] = {
    "resume": lambda folder, cells: large_store(folder / "store", cells),
    "again": _made_once,
    "table": lambda folder, cells: large_tables(
        REFERENCE / "dio_kworker", folder / "tables", cells
    ),
}
RUN: Final = {"plan": plan, "resume": resume, "again": again, "table": table}


def _measured(step: str, folder: Path, cells: int) -> list[float]:
    argv = [sys.executable, "-m", "tests.bench.bench_store", "--step", step]
    argv += ["--folder", str(folder), "--cells", str(cells)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    return list(map(float, said))


def main() -> None:
    """Print the table, or run one step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=100.0)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--cells", type=int)
    given = parser.parse_args()
    if given.step:
        began, worked = time.monotonic(), time.process_time()
        RUN[given.step](given.folder, given.cells)
        seconds, cpu = time.monotonic() - began, time.process_time() - worked
        print(seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    print("| step | cells | seconds | of a CPU | may take | MiB | may take |")
    print("|---|---|---|---|---|---|---|")
    for step, (cells, most_s, most_mib) in STEPS.items():
        share = given.share / 100
        with tempfile.TemporaryDirectory() as folder:
            wanted = round(cells * share)
            if step in MADE:
                MADE[step](Path(folder), wanted)
            seconds, cpu, mib = _measured(step, Path(folder), wanted)
        limits = f"{most_s * share:.1f} | {mib:.0f} | {most_mib}"
        print(f"| {step} | {wanted} | {seconds:.2f} | {cpu:.2f} | {limits} |", flush=True)


if __name__ == "__main__":
    main()
