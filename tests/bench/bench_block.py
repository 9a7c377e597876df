# SPDX-License-Identifier: MIT
"""How much of a block's wall time is spent outside of measured runs, and of a judgement's.

    python -m tests.bench.bench_block [KERNEL]

Of each report the first block of `quick` is measured, restored from a snapshot, and `iolab judge`
answers one question from one boot. An agent that prints a line before and after each measured run
tells when it is at work: other bytes, the same work. The shares say something on an idle machine
alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from iolab.blocks import Block
from iolab.cli.judge import EXIT_CODES
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES
from iolab.sweeps.block import read_block
from iolab.targets.vm import prepare
from iolab_base.errors import IolabError
from tests.support.command import ARGV
from tests.support.guest import start_in_guests

_QUESTION = "dio_kworker: switches_per_io < 0.5"
_TOLD = """
import sys
from iolab_agent import block
from iolab_agent.__main__ import main as agent

measure = block.measure


def told(*arguments, **options):
    print("iolab: run begins", flush=True)
    try:
        return measure(*arguments, **options)
    finally:
        print("iolab: run ends", flush=True)


vars(block)["measure"] = told
sys.exit(agent(sys.argv[1:]))
"""


def _runs(block: Block, folder: Path) -> tuple[float, float]:
    """Return the seconds of a block whose machine is restored, and those of its measured runs."""
    machine = block.machine
    target = prepare(block.kernel, block.clock, cpus=machine.cpus, memory_mib=machine.memory_mib)
    for name in ("kept", "restored"):
        heard: list[float] = []

        def hear(line: str, heard: list[float] = heard) -> None:
            if line.startswith("iolab: run "):
                heard.append(time.monotonic())

        with pytest.MonkeyPatch.context() as patch:
            start_in_guests(patch, _TOLD)
            began = time.monotonic()
            target.run(block.plan, folder / name, hear)
            took = time.monotonic() - began
    return took, sum(ends - begins for begins, ends in zip(heard[::2], heard[1::2], strict=True))


def _judged(kernel: str, root: Path) -> tuple[float, Block]:
    """Return the seconds of a judgement from one boot with a snapshot, and its block."""
    for name in ("kept", "restored"):
        began = time.monotonic()
        words = ["judge", _QUESTION, "--kernel", kernel, "--root", str(root / name)]
        done = subprocess.run([*ARGV, *words], check=False, capture_output=True, text=True)
        took = time.monotonic() - began
        # What could not be measured is soon done.
        if done.returncode not in (EXIT_CODES["good"], EXIT_CODES["bad"]):
            last = (done.stdout or done.stderr).strip().rpartition("\n")[2]
            raise IolabError(f"judge gives no verdict: {last}")
    (plan,) = (root / "restored" / "plans").glob("*.json")
    return took, read_block(plan)


def _line(name: str, cells: int, took: float, runs: float) -> str:
    return f"{name:22} {cells:3} cells {took:7.1f} s, {1 - runs / took:4.0%} outside of runs"


def main(kernel: str = "6.1") -> None:
    """Print the shares."""
    whole = inside = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for pathology in PATHOLOGIES.values():
            quick = pathology.profiles["quick"]
            block, *_ = blocks_of(pathology, quick, kernel=kernel, clock="virtual")
            took, runs = _runs(block, Path(folder) / pathology.name)
            whole, inside = whole + took, inside + runs
            print(_line(pathology.name, len(block.cells), took, runs), flush=True)
        print(f"{'together':22} {'':9} {whole:7.1f} s, {1 - inside / whole:4.0%} outside of runs")
        took, block = _judged(kernel, Path(folder))
        _, runs = _runs(block, Path(folder) / "judged")
        print(_line("judge, one boot", len(block.cells), took, runs))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except IolabError as error:
        sys.exit(f"bench: {error}")
