# SPDX-License-Identifier: MIT
"""Runs that are killed at random moments, of a plan that changes all that a cell can change.

``nox -s faults [-- RUNS [SEED]]`` does as many as wanted and says what each kind of undo met.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iolab.targets.shipping import agent_archive
from tests.support.plans import copies_cell, job, null_blk_cell, open_job, plan_document
from tests.support.server import SERIAL, SPARE_DISK, Server

__all__ = ["OPEN_GROUP", "every_change", "kill_runs", "wrongs"]

_HERE = Path(__file__).parent
_EVENTS = ["sched:sched_switch", "sched:sched_wakeup"]
_FOLDER = "/srv/data"


# All that systemd sets, and a quota that its percents do not reach.
OPEN_GROUP = {"cpu.weight": 300, "cpuset.cpus": "0", "cpuset.mems": "0", "cpu.max": "70001 100000"}


def every_change(directory: str, disk: str, serial: str | None = None) -> dict[str, Any]:
    """Return a plan with made devices, a folder, a disk to overwrite, groups and recordings."""
    in_folder = {"name": "data", "kind": "directory", "path": directory, "size_mib": 64}
    on_disk = {"name": "data", "kind": "named", "path": disk, "size_mib": 64, "serial": serial}
    scsi = {"name": "data", "kind": "scsi_debug", "size_mib": 64, "completion_ns": 100_000}
    cells = [
        null_blk_cell(
            "changed",
            1000,
            settings={"dirty_bytes": 64 << 20, "min_granularity_ns": 5_000_000},
            worker_nice=-10,
            count=["__x64_sys_getppid"],
        ),
        null_blk_cell(
            "recorded",
            300,
            recording={"events": _EVENTS, "window_ms": 100, "buffer_kib": 16384},
        ),
        copies_cell("copies"),
        {
            "id": "folder",
            "devices": [{**in_folder, "scheduler": "mq-deadline"}],
            "filesystem": None,
            "job": job(),
            "group": {"settings": {"cpu.weight": 9999}},
        },
        {
            "id": "open",
            "devices": [in_folder],
            "filesystem": None,
            "job": open_job(cpus=[0]),
            "group": {"settings": OPEN_GROUP},
        },
        {
            "id": "disk",
            "devices": [on_disk],
            "filesystem": {"kind": "ext4", "device": "data"},
            "job": job(),
        },
        {"id": "scsi", "devices": [scsi], "filesystem": None, "job": job(rw="randread")},
    ]
    return plan_document(*cells, modules=["null_blk", "bfq"], coalesced_timers=False)


def kill_runs(
    server: Server,
    runs: int,
    seed: int,
    each: Callable[[dict[str, Any]], None] = lambda run: None,
) -> list[dict[str, Any]]:
    """Kill as many runs there, and return what was found after each; `each` hears it at once."""
    home = f"/root/kills-{seed}"
    server.ssh(f"mkdir -p {home} {_FOLDER}")
    made = json.dumps(every_change(_FOLDER, SPARE_DISK, SERIAL)).encode()
    scripts = {name: (_HERE / name).read_bytes() for name in ("kills.py", "machine_state.py")}
    for name, data in {"agent.pyz": agent_archive(), "plan.json": made, **scripts}.items():
        server.send(f"{home}/{name}", data)
    found = []
    for line in server.lines(f"python3 {home}/kills.py {home} {runs} {seed}"):
        found.append(json.loads(line))
        each(found[-1])
    return found


def wrongs(run: dict[str, Any]) -> list[str]:
    """Return what is wrong after a run: one that was killed, or the last one of a plan."""
    if "killed" in run:
        said = [f"{name}: {run[name]}" for name in ("restore", "lost", "changed") if run[name]]
        return [f"killed after {run['after_s']} s, {words}" for words in said]
    failed = {k: v for k, v in run["cells"].items() if v != "done"}
    said = [f"it ended with {run['ended']}"] if run["ended"] else []
    said += [] if run["whole"] else ["a cell is missing or counted twice"]
    return said + [f"cell {name}: {reason}" for name, reason in failed.items()]


def main(runs: int = 200, seed: int = 1) -> None:
    """Kill runs, and say what was found; exit with 1 if anything was not as before."""
    undone: Counter[str] = Counter()
    wrong: list[str] = []

    def hear(run: dict[str, Any]) -> None:
        undone.update(run.get("kinds", ()))
        wrong.extend(wrongs(run))
        word = f"{run['killed']}/{runs}, {run['done']} cells done" if "killed" in run else "whole"
        print(f"{word}{''.join(f'; {words}' for words in wrongs(run))}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            found = kill_runs(server, runs, seed, hear)
        finally:
            server.stop()
    killed = sum("killed" in run for run in found)
    print(f"{killed} runs killed, {len(found) - killed} plans finished, {len(wrong)} wrongs")
    for kind, times in sorted(undone.items()):
        print(f"  {kind:14} undone after {times} kills")
    sys.exit(1 if wrong or killed < runs else 0)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
