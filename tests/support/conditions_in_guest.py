# SPDX-License-Identifier: MIT
"""Runs in the guest in the agent's place: the block, then each condition by itself.

Known work is done under it, and what the kernel says of it goes home in ``seen.json``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from iolab_agent.__main__ import main as agent
from iolab_agent.counting import Probes
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Watch
from iolab_agent.settings import (
    change_features,
    change_preemption,
    change_settings,
    load_module,
    preemption_models,
)
from iolab_agent.work import watching
from iolab_base.errors import CannotRunError, IolabError

_TRACEFS = Path("/sys/kernel/tracing")
_JOURNAL = Path("/run/iolab/conditions.journal")
_CALLS = 1234
_FUNCTION = "__x64_sys_getppid"


def state() -> dict[str, Any]:
    """Return what these conditions could leave behind."""
    settings = Path("/proc/sys/vm").glob("dirty_*")
    return {
        "probes": (_TRACEFS / "kprobe_events").read_text(),
        "instances": sorted(p.name for p in (_TRACEFS / "instances").iterdir()),
        **{p.name: p.read_text() for p in settings},
        **{
            p.name: p.read_text()
            for p in Path("/sys/kernel/debug/sched").glob("*")
            if p.name.endswith("_ns") or p.name in ("features", "preempt")
        },
    }


def counted() -> dict[str, Any]:
    """Count the calls of a function that this process makes a known number of times."""
    journal = Journal(_JOURNAL)
    probes = Probes(journal, [_FUNCTION, "dget_parent"])
    before = probes.hits()[_FUNCTION]
    for _ in range(_CALLS):
        os.getppid()
    found = {"calls": probes.hits()[_FUNCTION] - before, "made": _CALLS}
    journal.close()
    return {**found, "failures": restore(_JOURNAL)}


def watched() -> dict[str, list[str]]:
    """Return the inotify marks of this process under each watch of a node's."""
    marks = {}
    for place in ("node", "directory", "other"):
        with watching(Watch(place, "close_write"), Path("/dev/null")):
            infos = [p.read_text() for p in Path("/proc/self/fdinfo").iterdir() if p.exists()]
        marks[place] = [
            line.split("ino:")[1].split()[0]
            for info in infos
            for line in info.splitlines()
            if line.startswith("inotify")
        ]
    marks["inodes"] = [f"{Path(p).stat().st_ino:x}" for p in ("/dev/null", "/dev")]
    infos = [p.read_text() for p in Path("/proc/self/fdinfo").iterdir() if p.exists()]
    marks["left"] = [line for info in infos for line in info.splitlines() if "inotify" in line]
    return marks


def changed() -> dict[str, Any]:
    """Change settings, read them back, and put them back."""
    journal = Journal(_JOURNAL)
    asked = {"dirty_bytes": 64 << 20, "min_granularity_ns": 7_000_000, "autogroup": 0}
    used = change_settings(journal, asked)
    found: dict[str, Any] = {name: Path(path).read_text().strip() for name, path in used.items()}
    errors = []
    words = Path("/sys/kernel/debug/sched/features").read_text().split()
    known = {w.removeprefix("NO_"): w == w.removeprefix("NO_") for w in words}
    # Every feature the other way round, at once.
    change_features(journal, {name: not on for name, on in known.items()})
    text = Path("/sys/kernel/debug/sched/features").read_text()
    found["features"] = [words, text.split()]
    found["preempt"] = []
    preempt = Path("/sys/kernel/debug/sched/preempt")
    for model in preemption_models(preempt.read_text())[1]:
        change_preemption(journal, model)
        found["preempt"].append(preemption_models(preempt.read_text())[0])
    try:
        change_features(journal, {"SUCH_THING": True})
    except CannotRunError as error:
        errors.append(str(error))
    try:
        change_preemption(journal, "realtime")
    except CannotRunError as error:
        errors.append(str(error))
    for wrong in ({"no_such": 1}, {"dirty_bytes": 1}):
        try:
            change_settings(journal, wrong)
        except IolabError as error:
            errors.append(str(error))
    try:
        load_module(journal, "no_such_module")
    except CannotRunError as error:
        errors.append(str(error))
    journal.close()
    return {"found": found, "errors": errors, "failures": restore(_JOURNAL)}


def hold_for_ever() -> None:
    """Probe and change until killed."""
    journal = Journal(_JOURNAL)
    Probes(journal, [_FUNCTION])
    change_settings(journal, {"dirty_bytes": 64 << 20})
    change_features(journal, {"WAKEUP_PREEMPTION": False})
    Path("/run/iolab/holding").touch()
    time.sleep(1000)


def killed(program: str) -> dict[str, Any]:
    """Kill a process that holds conditions, restore, and return what it had changed."""
    before = state()
    child = subprocess.Popen([sys.executable, "-S", program, "hold for ever"])
    while not Path("/run/iolab/holding").exists():
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    midway = state()
    return {
        "changed by the kill": sorted(k for k, v in before.items() if midway[k] != v),
        "failures": restore(_JOURNAL),
    }


def main(argv: list[str]) -> int:
    """Run the block, then the conditions."""
    if argv[1] == "hold for ever":
        hold_for_ever()
    out = Path(argv[3])
    before = state()
    code = agent(argv[1:])
    seen: dict[str, Any] = {
        "counted": counted(),
        "watched": watched(),
        "changed": changed(),
        "killed": killed(argv[0]),
    }
    after = state()
    seen["left"] = {k: [v, after[k]] for k, v in before.items() if after[k] != v}
    (out / "seen.json").write_text(json.dumps(seen))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
