# SPDX-License-Identifier: MIT
"""Runs in the guest in the agent's place: ext4 on a device that stores nothing, and a kill.

What was seen goes home as ``seen.json`` with the results; the tests on the host judge it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from iolab_agent import block, observer
from iolab_agent.__main__ import main as agent
from iolab_agent.journal import restore
from iolab_agent.observe import sample
from iolab_agent.plan_reader import load_plan
from iolab_agent.workplace import RUN

_VM = Path("/proc/sys/vm")
_WAIT_S = 30.0


def dirty_limits() -> dict[str, str]:
    return {p.name: p.read_text().strip() for p in sorted(_VM.glob("dirty*"))}


def mounts() -> list[str]:
    return sorted(Path("/proc/self/mounts").read_text().splitlines())


def state() -> dict[str, Any]:
    """Return what a cell of this kind could leave behind."""
    return {
        "mounts": [m for m in mounts() if "config" not in m],
        "disks": sorted(p.name for p in Path("/sys/block").iterdir()),
        "dirty limits": dirty_limits(),
    }


def kernel_log(*words: str) -> list[str]:
    said = subprocess.run(
        ["/bin/busybox", "dmesg"], check=True, capture_output=True, text=True
    ).stdout
    return [line for line in said.splitlines() if any(word in line for word in words)]


def killed(program: str, plan: Path, folder: Path) -> dict[str, Any]:
    """Kill the agent once its file system is there and its limits are changed; then restore."""
    before = state()
    child = subprocess.Popen(
        [sys.executable, "-S", program, "plain", str(plan), str(folder)], stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until and dirty_limits() == before["dirty limits"]:
        time.sleep(0.02)
    child.kill()
    child.wait()
    midway = state()
    failures = [line for name in ("cell", "block") for line in restore(RUN / f"{name}.journal")]
    after = state()
    return {
        "changed by the kill": sorted(k for k, v in before.items() if midway[k] != v),
        "failures": failures,
        "left": {k: [v, after[k]] for k, v in before.items() if after[k] != v},
    }


def main(argv: list[str]) -> int:
    """Run the agent as it is ("plain"), or everything that is to be seen."""
    if argv[1] == "plain":
        return agent(["run", *argv[2:]])
    plan, out = Path(argv[2]), Path(argv[3])
    Path("/run/iolab").mkdir(exist_ok=True)
    running: dict[str, Any] = {}

    def watched(**known: Any) -> dict[str, Any]:
        running.update(dirty_limits(), mounts=[m for m in mounts() if " /run/iolab/mnt " in m])
        return sample(**known)

    vars(observer)["sample"] = watched
    before = state()
    block.run_block(load_plan(plan), out)
    after = state()
    vars(observer)["sample"] = sample
    seen = {
        "running": running,
        "left": {k: [v, after[k]] for k, v in before.items() if after[k] != v},
        "killed": killed(argv[0], plan, Path("/run/killed")),
        "complaints": kernel_log("EXT4-fs error", "EXT4-fs warning", "I/O error", "JBD2:"),
    }
    (out / "seen.json").write_text(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
