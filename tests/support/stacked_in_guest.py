# SPDX-License-Identifier: MIT
"""Runs in the guest in the agent's place: the block, after its devices were made and killed.

A process makes a cell's devices and is killed at each line of its journal in turn. What restoring
leaves behind goes home in ``seen.json``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from iolab_agent import block
from iolab_agent.devices import make_device
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Cell
from iolab_agent.plan_reader import load_plan

_JOURNAL = Path("/run/iolab/killed.journal")


def _there() -> list[str]:
    folders = (Path("/sys/block"), Path("/dev/mapper"))
    return sorted(str(path) for folder in folders for path in folder.glob("*"))


def _make(cell: Cell, lines: int) -> None:
    """Make a cell's devices; be killed when the journal has so many lines."""
    note, left = Journal.note, lines

    def counted(self: Journal, undo: str, path: str, value: str = "") -> None:
        nonlocal left
        note(self, undo, path, value)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    vars_of: Any = Journal
    vars_of.note = counted
    journal = Journal(_JOURNAL)
    nodes: dict[str, Path] = {}
    for device in cell.devices:
        nodes[device.name] = make_device(journal, device, nodes)
    os._exit(0)


def main(argv: list[str]) -> int:
    """Run the agent on a plan, as ``run PLAN OUT``."""
    plan, out = load_plan(Path(argv[2])), Path(argv[3])
    kills = []
    before = _there()
    for cell in plan.cells:
        if cell.id not in ("thin", "raid1"):
            continue
        status, lines = -1, 0
        while status != 0:
            lines += 1
            pid = os.fork()
            if pid == 0:
                try:
                    _make(cell, lines)
                finally:
                    os._exit(1)
            status = os.waitpid(pid, 0)[1]
            failures = restore(_JOURNAL)
            kills.append([cell.id, lines, status, failures, _there() == before])
    block.run_block(plan, out)
    (out / "seen.json").write_text(json.dumps({"kills": kills}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
