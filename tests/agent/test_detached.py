# SPDX-License-Identifier: MIT
"""A run on this machine's own kernel that outlives whoever began it (as root)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iolab.targets.shipped import agent_archive
from iolab_agent.detached import state_of
from iolab_agent.journal import JOURNALS
from tests.support.needs import lack, needs
from tests.support.plans import copies, job
from tests.support.plans import plan_document as plan_of
from tests.support.processes import PATIENCE_S, child_environment, wait_until

pytestmark = needs("root", "fio")


# Ends itself when it begins to restore its first cell.
_ENDED_AS_IT_RESTORES = """
import os, signal, sys
from pathlib import Path
from iolab_agent import block
from iolab_agent.plan_reader import load_plan

def ended(path):
    block.restore = restore
    os.kill(os.getpid(), signal.SIGTERM)
    return restore(path)

restore, block.restore = block.restore, ended
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
block.run_block(load_plan(Path(sys.argv[1])), Path(sys.argv[2]))
"""


def cells(folder: Path, **different: Any) -> list[dict[str, Any]]:
    """Return a cell of each kind of work, on files in `folder`."""
    devices = [{"name": "data", "kind": "directory", "path": str(folder), "size_mib": 32}]
    plain = {"devices": devices, "filesystem": None, **different}
    return [{"id": "job", "job": job(), **plain}, {"id": "copies", "copies": copies(), **plain}]


def ship(folder: Path, *what: dict[str, Any], **different: Any) -> Path:
    """Make the folder of a run."""
    folder.mkdir()
    (folder / "agent.pyz").write_bytes(agent_archive())
    (folder / "plan.json").write_text(json.dumps(plan_of(*what, modules=[], **different)))
    return folder


def agent(run: Path, *words: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-S", str(run / "agent.pyz"), *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def ended(run: Path) -> dict[str, Any]:
    wait_until(lambda: state_of(run) != "alive")
    found: dict[str, Any] = json.loads((run / "agent.json").read_text())
    return found


def test_a_run_tells_how_it_is_and_leaves_whole_results(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run = ship(tmp_path / "run", *cells(work))
    assert state_of(run) == "gone"
    for _ in range(2):
        told = agent(run, "begin", run)
        assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    assert ended(run) == {"exit": 0, "stderr": ""}
    assert state_of(run) == "ended"
    status = json.loads((run / "results/status.json").read_text())
    assert set(status["sha256"]) == {"facts.json", "cells/job.json", "cells/copies.json"}
    said = (run / "console.txt").read_text().splitlines()
    assert said[0] == "iolab: block test-block begins"
    assert said[-1].startswith("iolab: cell 2/2 copies ")
    for name in ("job", "copies"):
        cell = json.loads((run / f"results/cells/{name}.json").read_text())
        assert (cell["state"], cell.get("reason")) == ("done", None)
    assert list(work.iterdir()) == []


def test_a_device_that_this_kernel_cannot_make_is_said_of_its_cells(tmp_path: Path) -> None:
    if Path("/sys/module/null_blk").exists() or Path("/lib/modules", os.uname().release).exists():
        lack("a kernel without null_blk")
    device = {"name": "data", "kind": "null_blk", "size_mib": 64}
    what = {"id": "cell", "devices": [device], "filesystem": None, "copies": copies()}
    hres = next(
        x for x in Path("/proc/timer_list").read_text().splitlines() if ".hres_active" in x
    ).endswith("1")
    run = ship(tmp_path / "run", what, coalesced_timers=not hres)
    agent(run, "begin", run)
    assert ended(run) == {"exit": 0, "stderr": ""}
    cell = json.loads((run / "results/cells/cell.json").read_text())
    assert cell["state"] == "cannot run here"
    assert cell["reason"] in (
        "this kernel has no module null_blk",
        "the module null_blk cannot be loaded: there is no modprobe (kmod)",
    )


def test_a_run_that_gives_up_says_why(tmp_path: Path) -> None:
    run = ship(tmp_path / "run", *cells(tmp_path / "absent"), cpu=-1)
    agent(run, "begin", run)
    assert ended(run) == {"exit": 2, "stderr": "plan: cpu must be 0-4095"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_terminated_run_puts_all_back_and_a_killed_one_is_put_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    # It works for longer than anything here takes on a busy machine: until it is ended.
    lasting = job(size_mib=512, runtime_ms=300_000)
    run = ship(tmp_path / "run", {**cells(work)[0], "job": lasting})
    agent(run, "begin", run)
    wait_until(lambda: any(work.iterdir()) or state_of(run) != "alive")
    pid = int(Path("/run/iolab/journal.lock").read_text())
    assert f"{run}/agent.pyz" in Path(f"/proc/{pid}/cmdline").read_text()
    # What it starts without a folder of its own finds none of this machine's files by a bare name.
    assert Path(f"/proc/{pid}/cwd").readlink() == run
    try:
        busy = agent(run, "restore")
        assert busy.returncode == 5
        assert f"at work on this machine already (process {pid}, for " in busy.stderr
        # The rest of a long command line is cut.
        assert f": {sys.executable} -S {run}" in busy.stderr
        assert f"; wait for its end, or stop it with: kill {pid}" in busy.stderr
    finally:
        os.kill(pid, number)
    wait_until(lambda: state_of(run) != "alive")
    if number == signal.SIGKILL:
        assert state_of(run) == "gone"
        (folder,) = work.iterdir()
        shown = agent(run, "restore", "--show").stdout.splitlines()
        assert f"tree {folder}" in shown
        assert agent(run, "restore").returncode == 0
        assert agent(run, "restore", "--show").stdout == ""
    else:
        assert ended(run) == {"exit": 143, "stderr": "it was asked to end (SIGTERM)"}
    assert list(work.iterdir()) == []


def test_a_run_that_is_ended_while_it_restores_a_cell_puts_all_back(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run = ship(tmp_path / "run", cells(work)[0])
    argv = [sys.executable, "-c", _ENDED_AS_IT_RESTORES, f"{run}/plan.json", f"{run}/results"]
    done = subprocess.run(
        argv, cwd=run, env=child_environment(), capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (143, b"")
    assert list(work.iterdir()) == []
    assert [path for path in JOURNALS if path.exists()] == []
