# SPDX-License-Identifier: MIT
"""How fast virtual time passes, and how much of a block's time is not spent measuring.

    python -m tests.bench.bench_virtual_time [KERNEL]

One block of the quick profile, alone on the machine. Ratios are of the same run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.targets.vm import prepare
from iolab_base.errors import IolabError


def main(kernel: str) -> None:
    """Measure one block and print where its time went, on both clocks."""
    pathology = get_pathology("dio_kworker")
    block = blocks_of(pathology, pathology.profiles["quick"], kernel=kernel, clock="virtual")[0]
    machine = block.machine
    target = prepare(kernel, "virtual", cpus=machine.cpus, memory_mib=machine.memory_mib)
    heard: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        began = time.monotonic()
        target.run(block.plan, results, lambda _: heard.append(time.monotonic()))
        ended = time.monotonic()
        cells = [json.loads(p.read_text()) for p in sorted((results / "cells").glob("*.json"))]
    boot_s = heard[0] - began
    export_s = ended - heard[-1]
    in_cells_s = heard[-1] - heard[0]
    booted_ns = cells[0]["began_ns"]
    in_cells_virtual_s = (cells[-1]["ended_ns"] - booted_ns) / 1e9
    virtual_s = cells[-1]["ended_ns"] / 1e9
    measuring_s = sum(c["measuring_until_ns"] - c["measuring_from_ns"] for c in cells) / 1e9
    # A cell's preparation is not told apart on the host's clock: it gets its virtual share there.
    measuring_wall_s = in_cells_s * measuring_s / in_cells_virtual_s
    print(f"kernel {kernel}, {len(cells)} cells")
    print(f"  wall seconds per virtual second       {(ended - began) / virtual_s:6.2f}")
    print(f"  the same while cells run              {in_cells_s / in_cells_virtual_s:6.2f}")
    print(f"  share not measuring, virtual time     {1 - measuring_s / virtual_s:6.1%}")
    print(f"  share not measuring, wall time        {1 - measuring_wall_s / (ended - began):6.1%}")
    print(f"    of which boot                       {boot_s / (ended - began):6.1%}")
    print(f"    of which export                     {export_s / (ended - began):6.1%}")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "6.1")
    except IolabError as error:
        sys.exit(f"bench: {error}")
