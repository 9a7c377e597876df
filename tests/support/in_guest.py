# SPDX-License-Identifier: MIT
"""Runs in the guest in the agent's place: the agent itself, watched, and killed.

What was seen goes home as ``seen.json`` with the results; the tests on the host judge it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab_agent import block, copies, observer
from iolab_agent.__main__ import main as agent
from iolab_agent.claim import PlaceClaim
from iolab_agent.facts import build_id
from iolab_agent.journal import restore
from iolab_agent.observe import sample
from iolab_agent.plan import Cell, Plan
from iolab_agent.plan_reader import load_plan
from iolab_agent.workplace import RUN

_CGROUPS = Path("/sys/fs/cgroup")
_MOMENTS_S = (0.2, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 2.0, 3.0)
# Sums and helpers that the kernel loads for itself, whatever asked for them first.
_LIBRARIES = ("crc", "libcrc", "scsi_common")
_ODD_NAME = b"a) R 1 (\xff\xfe"


def _programs() -> list[str]:
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        # A kernel thread may end between the listing and this.
        with suppress(FileNotFoundError, ProcessLookupError):
            lines.append((folder / "cmdline").read_bytes().replace(b"\0", b" "))
    return sorted(line.decode(errors="replace").strip() for line in lines if line)


def _modules() -> list[str]:
    return [line.split()[0] for line in Path("/proc/modules").read_text().splitlines()]


def state() -> dict[str, Any]:
    """Return everything of the machine that a cell could leave behind."""
    return {
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "block devices": sorted(p.name for p in Path("/sys/block").iterdir()),
        "modules": sorted(m for m in _modules() if not m.startswith(_LIBRARIES)),
        "cgroups": sorted(p.name for p in _CGROUPS.iterdir() if p.is_dir()),
        "controllers": (_CGROUPS / "cgroup.subtree_control").read_text().split(),
        "files": sorted(p.name for p in Path("/run/iolab").glob("*") if "journal" not in p.name),
        "programs": _programs(),
    }


def watched_block(plan: Plan, out: Path) -> dict[str, Any]:
    """Run the block and write down what held while and after each cell ran."""
    seen: dict[str, Any] = {"running": {}, "left": {}, "copies": []}
    run_cell, look, start = block._run_cell, sample, vars(copies)["start"]
    current = ""

    def watched_cell(plan: Plan, cell: Cell, trace: Path, claim: PlaceClaim) -> dict[str, Any]:
        nonlocal current
        current = cell.id
        before = state()
        result = run_cell(plan, cell, trace, claim)
        after = state()
        seen["left"][cell.id] = {k: [v, after[k]] for k, v in before.items() if after[k] != v}
        return result

    def watched_start(*arguments: Any, **options: Any) -> Any:
        process = start(*arguments, **options)
        place = {"cgroup": _group(process.pid), "cores": _cores(str(process.pid))}
        seen["copies"].append({"cell": current, **place})
        return process

    def watched_sample(*, cpu: int, device: str, job: int | None, **more: Any) -> dict[str, Any]:
        found = look(cpu=cpu, device=device, job=job, **more)
        if job is None:
            return found
        group = _group(job)
        weight = _CGROUPS / group.lstrip("/") / "cpu.weight"
        lines = [x.split() for x in Path("/proc/self/mounts").read_text().splitlines()]
        seen["running"].setdefault(current, []).append(
            {
                "cgroup": group,
                "weight": int(weight.read_text()) if weight.exists() else None,
                "device": device,
                "scheduler": (Path("/sys/block") / device / "queue/scheduler").read_text().strip(),
                "file system": next(x[2] for x in lines if x[1] == "/run/iolab/mnt"),
                "cores": [_cores(child) for child in _children(job)],
            }
        )
        return found

    block._run_cell, vars(observer)["sample"] = watched_cell, watched_sample
    vars(copies)["start"] = watched_start
    try:
        block.run_block(plan, out)
    finally:
        block._run_cell, vars(observer)["sample"] = run_cell, look
        vars(copies)["start"] = start
    return seen


def _group(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text().strip().rpartition(":")[2]


def _cores(pid: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(x.split()[1] for x in lines if x.startswith("Cpus_allowed_list"))


def _children(parent: int) -> list[str]:
    return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()


def killed_blocks(program: str, folder: Path) -> list[dict[str, Any]]:
    """Kill the agent at several moments, restore, and return what was then not as before."""
    raw = json.loads(Path("/iolab/plan.json").read_text())
    cells = [c for c in raw["cells"] if c["id"].startswith("kill")]
    for cell in cells:
        cell["job"]["runtime_ms"] = 5000
    long = folder / "long.json"
    long.write_text(json.dumps({**raw, "cells": cells, "modules": ["null_blk", "crc32c", "xfs"]}))
    found = []
    before = state()
    for moment in _MOMENTS_S:
        child = subprocess.Popen(
            [sys.executable, "-S", program, "plain", str(long), str(folder / "out")],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(moment)
        child.kill()
        child.wait()
        # A killed modprobe still ends the loading that it has begun.
        while any("modprobe" in program for program in _programs()):
            time.sleep(0.05)
        midway = state()
        failures = [line for name in ("cell", "block") for line in restore(RUN / f"{name}.journal")]
        after = state()
        found.append(
            {
                "at": moment,
                "failures": failures,
                "changed by the kill": sorted(k for k, v in before.items() if midway[k] != v),
                "left": {k: [v, after[k]] for k, v in before.items() if after[k] != v},
            }
        )
    return found


def observed() -> dict[str, Any]:
    """Sample around programs whose work is known."""
    # It was loaded without a device before the plan came.
    subprocess.run(["modprobe", "-r", "null_blk"], check=True)
    subprocess.run(["modprobe", "null_blk", "nr_devices=1"], check=True)
    odd = os.fork()
    if odd == 0:
        ctypes.CDLL(None).prctl(15, _ODD_NAME, 0, 0, 0)
        time.sleep(1000)
    job = subprocess.Popen(
        ["/bin/busybox", "sh", "-c", "read go; dd if=/dev/zero of=/dev/null bs=1k & wait; true"],
        stdin=subprocess.PIPE,
    )
    assert job.stdin is not None
    time.sleep(0.05)
    first = sample(cpu=0, device="nullb0", job=job.pid)
    job.stdin.write(b"go\n")
    job.stdin.flush()
    time.sleep(0.2)
    subprocess.run(
        ["dd", "if=/dev/zero", "of=/dev/nullb0", "bs=4096", "count=10", "oflag=direct"],
        check=True,
        capture_output=True,
    )
    last = sample(cpu=0, device="nullb0", job=job.pid)
    os.kill(int(_children(job.pid)[0]), 9)
    job.wait()
    os.kill(odd, 9)
    os.waitpid(odd, 0)
    subprocess.run(["modprobe", "-r", "null_blk"], check=True)
    return {"first": first, "last": last, "job": job.pid, "odd": odd}


def main(argv: list[str]) -> int:
    """Run the agent as it is ("plain"), or everything that is to be seen."""
    if argv[1] == "plain":
        return agent(["run", *argv[2:]])
    plan, out = load_plan(Path(argv[2])), Path(argv[3])
    Path("/run/iolab").mkdir(exist_ok=True)
    seen = watched_block(plan, out)
    print("iolab: watched", flush=True)
    folder = Path("/run/killed")
    folder.mkdir()
    seen["killed"] = killed_blocks(argv[0], folder)
    print("iolab: killed", flush=True)
    seen["observed"] = observed()
    seen["build id"] = build_id(Path("/sys/kernel/notes").read_bytes())
    (out / "seen.json").write_text(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
