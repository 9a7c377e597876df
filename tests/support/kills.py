# SPDX-License-Identifier: MIT
"""Runs on a measured machine: kills the agent at random moments, restores, and looks around.

``python3 kills.py FOLDER RUNS SEED [DISK...]`` beside ``agent.pyz``, ``plan.json``,
``machine_state.py`` and ``bystanders.py``. Each line that it prints is one killed run. Meanwhile
another user's processes pretend to be ours, and root has a loop device that is not ours.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bystanders import Bystanders  # type: ignore[import-not-found]
from machine_state import state  # type: ignore[import-not-found]

_LOCK = Path("/run/iolab/journal.lock")
_SETTLE_S = 10.0
_BEGINNING_S = 3.0
_CELLS_S = 12.0


def _agent(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-S", str(here / "agent.pyz"), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _done(folder: Path) -> dict[str, str]:
    """Return the cells that are done, each with the digest of its result."""
    cells = (folder / "results/cells").glob("[!.]*.json")
    return {p.stem: hashlib.sha256(p.read_bytes()).hexdigest() for p in cells}


def _changed(before: dict[str, object], disks: list[str]) -> dict[str, list[object]]:
    """Return what is not as it was; what udev and systemd are still about, they may end."""
    until = time.monotonic() + _SETTLE_S
    while True:
        now = state(disks)
        differs = {
            k: [before.get(k), now.get(k)]
            for k in sorted({*before, *now})
            if before.get(k) != now.get(k)
        }
        if not differs or time.monotonic() > until:
            return differs
        time.sleep(0.2)


def _run_of(folder: Path, delay_s: float) -> bool:
    """Begin the run, kill it after a while; return whether it had ended before."""
    said = _agent(folder, "begin", str(folder))
    if said.returncode:
        raise SystemExit(f"the run did not begin: {said.stderr}")
    time.sleep(delay_s)
    pid = _LOCK.read_text().strip()
    if (folder / "agent.json").exists() or not pid:
        return True
    os.kill(int(pid), signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    return False


def main(folder: Path, runs: int, seed: int, disks: list[str]) -> None:
    """Kill, restore and compare, until as many runs were killed as asked for."""
    plan = json.loads((folder / "plan.json").read_text())
    cells = [cell["id"] for cell in plan["cells"]]
    paths = {device.get("path", "") for cell in plan["cells"] for device in cell["devices"]}
    others = Bystanders(folder, cells, [Path(path) for path in paths if Path(path).is_dir()])
    try:
        _kill(folder, runs, random.Random(seed), disks, plan, others)
    finally:
        others.end()


def _kill(
    folder: Path,
    runs: int,
    draw: random.Random,
    disks: list[str],
    plan: dict[str, Any],
    others: Bystanders,
) -> None:
    before = state(disks)
    killed = 0
    kept: dict[str, str] = {}
    while killed < runs:
        # Half of them while it begins or puts an earlier run back, half anywhere in its cells.
        delay_s = draw.uniform(0, draw.choice((_BEGINNING_S, _CELLS_S)))
        if _run_of(folder, delay_s):
            while not (folder / "agent.json").exists():
                time.sleep(0.05)
            ending = json.loads((folder / "agent.json").read_text())
            status = json.loads((folder / "results/status.json").read_text())
            cells = sorted(n for n in status["sha256"] if n.startswith("cells/"))
            whole = cells == sorted(f"cells/{c['id']}.json" for c in plan["cells"])
            ends = {}
            for name in cells:
                cell = json.loads((folder / "results" / name).read_text())
                ends[cell["id"]] = cell.get("reason", cell["state"])
            print(json.dumps({"ended": ending["exit"], "whole": whole, "cells": ends}), flush=True)
            shutil.rmtree(folder / "results")
            (folder / "agent.json").unlink()
            (folder / "console.txt").unlink()
            kept = {}
            continue
        killed += 1
        done = _done(folder)
        lost = [name for name in kept if done.get(name) != kept[name]]
        kept = done
        journals = _agent(folder, "restore", "--show").stdout.splitlines()
        said = _agent(folder, "restore")
        found = {
            "killed": killed,
            "after_s": round(delay_s, 3),
            "done": len(done),
            "lost": lost,
            "undone": len(journals),
            "kinds": sorted({line.split()[0] for line in journals}),
            "restore": said.stderr.strip(),
            "changed": _changed(before, disks),
            "others": others.wrongs(),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
