# SPDX-License-Identifier: MIT
"""How long a block takes whose machine is restored, beside one whose machine is booted for it.

    python -m tests.bench.bench_snapshots [PATHOLOGY:KERNEL...]

Of each pathology and kernel the last block of the smoke profile is measured three times, and the
bytes are compared: booted and never stopped, restored from a snapshot that is made for it, and
restored from the one that is there. With several processors only the restored ones must be alike.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from icountvm import snapshots
from iolab.targets import vm
from iolab.targets.vm import VmTarget, prepare
from iolab_agent.plan import Plan
from iolab_base.errors import IolabError
from iolab_base.files import digest_file
from tests.support.observed import smoke_block


def _run(target: VmTarget, plan: Plan, into: Path) -> tuple[float, float, float, list[str]]:
    """Return the seconds of a block and until its begin, the share of it that measures, digests."""
    heard: list[float] = []

    def hear(line: str) -> None:
        if line.endswith("begins"):
            heard.append(time.monotonic())

    began = time.monotonic()
    target.run(plan, into, hear)
    took = time.monotonic() - began
    cells = [json.loads(path.read_text()) for path in sorted((into / "cells").glob("*.json"))]
    inside_s = sum(c["measuring_until_ns"] - c["measuring_from_ns"] for c in cells) / 1e9
    virtual_s = (cells[-1]["ended_ns"] - cells[0]["began_ns"]) / 1e9
    until_s = heard[0] - began
    measuring = inside_s / virtual_s * (took - until_s) / took
    return took, until_s, measuring, [digest_file(path) for path in sorted(into.rglob("*.json"))]


def main(words: list[str]) -> int:
    """Compare the blocks that the arguments name; return 1 if a byte differs."""
    code = 0
    for word in words or ["dio_kworker:6.1"]:
        pathology, kernel = word.split(":")
        block = smoke_block(pathology, kernel, boot=1)
        shape = block.machine
        target = prepare(kernel, "virtual", cpus=shape.cpus, memory_mib=shape.memory_mib)
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder)
            with mock.patch.object(vm, "can_be_kept", return_value=False):
                booted = _run(target, block.plan, own / "booted")
            with mock.patch.object(snapshots, "cache_dir", (own / "cache").joinpath):
                first = _run(target, block.plan, own / "first")
                restored = _run(target, block.plan, own / "restored")
        kept, begun = first[3] == restored[3], booted[3] == restored[3]
        # Machines with several processors may differ from a booted one (icountvm.snapshots).
        code = code or int(not (kept and (begun or shape.cpus > 1)))
        compared = {"restored twice": kept, "restored and booted": begun}
        told = ", ".join(
            f"{name}: {'the same bytes' if same else 'DIFFERENT'}"
            for name, same in compared.items()
        )
        print(f"{word}, {len(block.cells)} cells, {shape.cpus} CPUs; {told}")
        runs = {"booted": booted, "first restored": first, "restored": restored}
        for name, (took, until, share, _) in runs.items():
            print(
                f"  {name:15} {took:6.1f} s, {until:5.1f} to the first cell, {share:.0%} measures"
            )
        print(f"  restored / booted: {restored[0] / booted[0]:.2f}", flush=True)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except IolabError as error:
        sys.exit(f"bench: {error}")
