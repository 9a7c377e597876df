# SPDX-License-Identifier: MIT
"""Runs in the guest in the agent's place: the block, with a look at each running job's cgroup.

What the kernel said of it, and what a cell left of cgroups, goes home in ``seen.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from iolab_agent import block, observer
from iolab_agent.claim import PlaceClaim
from iolab_agent.observe import sample
from iolab_agent.plan import Cell, Plan
from iolab_agent.plan_reader import load_plan

_CGROUPS = Path("/sys/fs/cgroup")
_FILES = ("cpu.weight", "cpu.max", "cpuset.cpus", "cpuset.cpus.effective", "cgroup.controllers")


def _left() -> dict[str, Any]:
    folders = sorted(p.name for p in _CGROUPS.iterdir() if p.is_dir())
    return {"folders": folders, "enabled": (_CGROUPS / "cgroup.subtree_control").read_text()}


def _process(pid: str) -> dict[str, str]:
    process = Path("/proc") / pid
    lines = (process / "status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    where = (process / "cgroup").read_text().strip().rpartition(":")[2]
    return {"cores": fields["Cpus_allowed_list"].strip(), "cgroup": where}


def main(argv: list[str]) -> int:
    """Run the agent on a plan, as ``run PLAN OUT``."""
    seen: dict[str, Any] = {"running": {}, "left": {}}
    run_cell, current = block._run_cell, ""

    def watched_cell(plan: Plan, cell: Cell, trace: Path, claim: PlaceClaim) -> dict[str, Any]:
        nonlocal current
        current, before = cell.id, _left()
        result = run_cell(plan, cell, trace, claim)
        seen["left"][cell.id] = [before, _left()]
        return result

    def watched_sample(**asked: Any) -> dict[str, Any]:
        found = sample(**asked)
        pids = [pid for pid, task in found["tasks"].items() if task["job"]]
        folder = _CGROUPS / _process(pids[0])["cgroup"].lstrip("/")
        files = {name: folder / name for name in _FILES}
        seen["running"].setdefault(current, []).append(
            {
                "files": {n: p.read_text().strip() for n, p in files.items() if p.exists()},
                "processes": {pid: _process(pid) for pid in pids},
                "parent": str(asked["job"]),
            }
        )
        return found

    block._run_cell, vars(observer)["sample"] = watched_cell, watched_sample
    out = Path(argv[3])
    block.run_block(load_plan(Path(argv[2])), out)
    (out / "seen.json").write_text(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
