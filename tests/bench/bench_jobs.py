# SPDX-License-Identifier: MIT
"""How many of a folder's fio jobs are measured as they are: fio's own examples, your own.

``IOLAB_JOBS=FOLDER nox -s bench -- jobs`` measures one untreated cell of each phase of every
``*.fio`` below FOLDER in virtual time on kernel 6.12, and says what became of each job.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from iolab.store.counters import measures
from iolab.sweeps.request import check_job
from iolab.targets.vm import VmTarget, prepare
from iolab_agent.plan import Cell, Plan
from iolab_base.errors import CannotRunError, IolabError, UserError
from tests.support.job_cells import control_cells

# A job that brings the kernel down takes the rest of its boot with it.
_CELLS_A_BOOT = 8


def main() -> None:
    """Measure all jobs; print what became of each that gave no valid cell, and the counts."""
    folder = os.environ.get("IOLAB_JOBS")
    if folder is None:
        print("no jobs are measured: name a folder of job files, IOLAB_JOBS=FOLDER")
        return
    paths = sorted(Path(folder).rglob("*.fio"))
    target = prepare("6.12", "virtual", cpus=2, memory_mib=1024)
    counts: Counter[str] = Counter()
    cells: list[Cell] = []
    modules: set[str] = set()
    for number, path in enumerate(paths):
        try:
            of_job, machine = control_cells(f"j{number}", path, cpus=2)
            for cell in of_job:
                if cell.job is not None:
                    check_job(cell.job)
        except CannotRunError as error:
            counts["need what the machine lacks"] += 1
            print(f"{path.name}: {error}")
        except UserError as error:
            counts["are refused, most by fio itself"] += 1
            print(f"{path.name}: {error}")
        else:
            cells += of_job
            modules |= set(machine.modules)
    gates = _measured(target, cells, sorted(modules))
    for number, path in enumerate(paths):
        found = [gate for name, gate in gates.items() if name.startswith(f"j{number}-")]
        if found:
            bad = [gate for gate in found if gate]
            counts["are measured, and a cell is invalid" if bad else "are measured"] += 1
            print(*(f"{path.name}: {gate[:200]}" for gate in bad), sep="\n", end="\n" * bool(bad))
    print(f"{len(paths)} jobs: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()))


def _measured(target: VmTarget, cells: list[Cell], modules: list[str]) -> dict[str, str]:
    """Return why each cell is invalid, "" for a valid one, by its name."""
    gates: dict[str, str] = {}
    for first in range(0, len(cells), _CELLS_A_BOOT):
        some = cells[first : first + _CELLS_A_BOOT]
        with tempfile.TemporaryDirectory(prefix="iolab-bench-") as folder:
            results = Path(folder) / "results"
            try:
                target.run(Plan(f"jobs-{first}", 0, some, modules=modules), results)
            except IolabError as error:
                gates |= {cell.id: str(error) for cell in some}
            for cell in some:
                path = results / "cells" / f"{cell.id}.json"
                if path.exists():
                    gates[cell.id] = str(measures(json.loads(path.read_text()), cpu=0)["gate"])
        print(f"{len(gates)} of {len(cells)} cells", file=sys.stderr, flush=True)
    return gates


if __name__ == "__main__":
    main()
