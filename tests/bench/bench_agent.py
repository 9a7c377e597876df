# SPDX-License-Identifier: MIT
"""What the agent costs the measured machine: its own share of CPU time while a cell is measured.

``nox -s bench -- agent``, as root, measures a few real cells on this machine and leaves it as it
was.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from iolab.targets.local import LocalTarget
from iolab.targets.place import Place
from iolab_base.errors import IolabError
from tests.support.plans import job, null_blk_cell, plan

_RAMP_MS = 500
_RUNTIME_MS = 4500
_CELLS = 3
# What the project allows itself between the two looks.
_MOST = 0.001


def main() -> None:
    """Measure a block of cells and print the agent's share of a core."""
    if os.geteuid() != 0:
        print("the agent's cost is not measured: it needs root")
        return
    target = LocalTarget()
    with tempfile.TemporaryDirectory(prefix="iolab-bench-") as folder:
        work = Path(folder)
        in_memory = "zram" in target.facts["kinds"]
        place = Place(make="zram") if in_memory else Place(directory=folder)
        work_of_one = job(ramp_ms=_RAMP_MS, runtime_ms=_RUNTIME_MS)
        cells = [
            null_blk_cell(
                f"c{number}", job=work_of_one, filesystem={"kind": "ext4", "device": "data"}
            )
            for number in range(_CELLS)
        ]
        made = place.put(plan(*cells))
        if reason := target.lacks(made):
            print(f"the agent's cost is not measured: {reason}")
            return
        target.run(made, work / "results")
        done = [json.loads(p.read_text()) for p in sorted(work.glob("results/cells/*.json"))]
    print(f"{_CELLS} cells of fio for {_RUNTIME_MS / 1e3} s on {place.label}")
    for number, cell in enumerate(done):
        if cell["state"] != "done":
            raise IolabError(f"cell {number}: {cell['reason']}")
        spent, tasks = cell["agent"], len(cell["last"]["tasks"])
        between = spent["cpu_ns"] / spent["window_ns"]
        whole = spent["with_looks_cpu_ns"] / spent["with_looks_ns"]
        print(f"  cell {number}, {tasks} tasks looked at")
        print(
            f"    between the looks   {between:8.4%} of a core "
            f"({spent['cpu_ns'] / 1e3:.0f} us of {spent['window_ns'] / 1e9:.2f} s"
            f"{', allowed' if between <= _MOST else ', MORE than'} {_MOST:.1%})"
        )
        print(
            f"    with both looks     {whole:8.4%} of a core "
            f"({spent['with_looks_cpu_ns'] / 1e6:.1f} ms of {spent['with_looks_ns'] / 1e9:.2f} s)"
        )


if __name__ == "__main__":
    try:
        main()
    except IolabError as error:
        sys.exit(f"bench: {error}")
