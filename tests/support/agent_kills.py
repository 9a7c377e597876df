# SPDX-License-Identifier: MIT
"""Runs of the agent that are killed at random moments, of a plan that changes all that it can."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iolab.targets.shipped import agent_archive
from tests.support.fault_runs import Hear, Run
from tests.support.plans import copies_cell, job, null_blk_cell, open_job, plan_document
from tests.support.server import SERIAL, SPARE_DISK, Server

_HERE = Path(__file__).parent
_EVENTS = ["sched:sched_switch", "sched:sched_wakeup"]
_FOLDER = "/srv/data"
_SCRIPTS = ("kills.py", "machine_state.py", "bystanders.py")
_WRONGS = ("restore", "lost", "changed", "others")


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
    scripts = {name: (_HERE / name).read_bytes() for name in _SCRIPTS}
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
        said = [f"{name}: {run[name]}" for name in _WRONGS if run[name]]
        return [f"killed after {run['after_s']} s, {words}" for words in said]
    failed = {k: v for k, v in run["cells"].items() if v != "done"}
    said = [f"it ended with {run['ended']}"] if run["ended"] else []
    said += [] if run["whole"] else ["a cell is missing or counted twice"]
    return said + [f"cell {name}: {reason}" for name, reason in failed.items()]


def kill_agents(folder: Path, runs: int, draw: random.Random, hear: Hear) -> None:
    """Kill as many runs on a server in a virtual machine; `hear` hears of each."""

    def told(run: dict[str, Any]) -> None:
        if "killed" in run:
            undone = ", ".join(run["kinds"]) or "nothing"
            what = f"killed after {run['after_s']} s, {run['done']} cells done, undone: {undone}"
            hear(Run(what, "killed", tuple(wrongs(run))))
        else:
            hear(Run("left alone", "result", tuple(wrongs(run))))

    server = Server(folder)
    try:
        kill_runs(server, runs, draw.randrange(1 << 30), told)
    finally:
        server.stop()
