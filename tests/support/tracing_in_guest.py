# SPDX-License-Identifier: MIT
"""Runs in the guest in the agent's place: recordings of every kind, each with trace-cmd's report.

The traces and their reports go home with the results; what was seen stands in ``seen.json``.
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
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Recording
from iolab_agent.recording import Recorder, refresh_kallsyms
from iolab_agent.undo import MARK
from iolab_base.errors import IolabError

_TRACEFS = Path("/sys/kernel/tracing")
_KEPT: tuple[str, ...] = (
    "current_tracer",
    "tracing_on",
    "trace_clock",
    "buffer_percent",
    "set_event",
    "trace_options",
    "tracing_cpumask",
    "set_event_pid",
    "saved_cmdlines_size",
)
_LOAD = [
    "sh",
    "-c",
    "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/dev/null bs=64k count=40; done",
]
_CALLS = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=20000"]
_EVENTS = ["sched:sched_switch", "sched:sched_waking"]
RECORDINGS = {
    "v7": ["-e", "sched", "-e", "block", "-e", "irq"],
    "v7-plain": ["--compression", "none", "-e", "sched", "-e", "workqueue"],
    "v6": ["--file-version", "6", "-e", "sched", "-e", "workqueue"],
    "instance": ["-e", "sched_waking", "-B", "iolab_test", "-e", "sched"],
    "instance-v6": ["--file-version", "6", "-e", "sched_waking", "-B", "iolab_test", "-e", "sched"],
    "filtered": ["-e", "sched_switch", "-f", "prev_pid != 0 && next_prio > 100"],
    "lossy": ["-b", "8", "-e", "sched", "-e", "kmem", "-e", "syscalls"],
    "local": ["-C", "local", "-e", "sched"],
}


def state() -> dict[str, Any]:
    """Return everything of tracefs that a recording could leave behind."""
    found: dict[str, Any] = {name: (_TRACEFS / name).read_text() for name in _KEPT}
    found["instances"] = sorted(p.name for p in (_TRACEFS / "instances").iterdir())
    found["enabled"] = (_TRACEFS / "events" / "enable").read_text()
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline")]
    found["recorders"] = sum(b"trace-cmd" in line for line in lines)
    return found


def report(trace: Path) -> None:
    """Write what trace-cmd makes of a trace beside it."""
    with trace.with_suffix(".txt").open("wb") as stream:
        argv = ["trace-cmd", "report", "-R", "-t", str(trace)]
        subprocess.run(argv, stdout=stream, stderr=subprocess.STDOUT, check=True)


def recorder(path: Path, *, starve: bool = False, **different: Any) -> dict[str, Any]:
    """Record a known load with the agent's recorder; return what it says and what it leaves."""
    before = state()
    journal = Journal(Path("/run/iolab/test.journal"))
    found: dict[str, Any] = {}
    try:
        made = Recorder(
            journal, Recording(**{"events": _EVENTS, "window_ms": 1, **different}), path
        )
        made.open()
        if starve:
            os.killpg(made._process.pid, signal.SIGSTOP)
        subprocess.run(_CALLS, stderr=subprocess.DEVNULL, check=True)
        made.close()
        if starve:
            os.killpg(made._process.pid, signal.SIGCONT)
        found["recording"], found["gates"] = made.finish()
    except IolabError as error:
        found["error"] = str(error)
    journal.close()
    found["failures"] = restore(Path("/run/iolab/test.journal"))
    after = state()
    found["left"] = {k: [v, after[k]] for k, v in before.items() if after[k] != v}
    found["files"] = sorted(p.name for p in path.parent.iterdir())
    return found


def killed(program: str, folder: Path) -> dict[str, Any]:
    """Kill a process while it records, restore, and return what was then not as before."""
    before = state()
    child = subprocess.Popen(
        [sys.executable, "-S", program, "record for ever", str(folder / "k.dat")]
    )
    while not (folder / "recording").exists():
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    midway = state()
    failures = restore(Path("/run/iolab/forever.journal"))
    after = state()
    return {
        "failures": failures,
        "changed by the kill": sorted(k for k, v in before.items() if midway[k] != v),
        "left": {k: [v, after[k]] for k, v in before.items() if after[k] != v},
    }


def symbols() -> dict[str, bool]:
    """Load a module, and compare the copy of /proc/kallsyms with the kernel's own."""
    kallsyms = Path("/proc/kallsyms")
    before = kallsyms.read_text()
    refresh_kallsyms()
    untouched = kallsyms.read_text() == before
    subprocess.run(["modprobe", "loop"], check=True)
    stale = kallsyms.read_text() == before
    refresh_kallsyms()
    copy = kallsyms.read_text()
    subprocess.run(["umount", str(kallsyms)], check=True)
    kernels = kallsyms.read_text()
    return {
        "a copy is kept": untouched and stale,
        "it has the new module": "[loop]" in copy,
        "it is the kernel's": copy == kernels,
    }


def record_for_ever(path: Path) -> None:
    """Record until killed."""
    os.environ[MARK] = "for ever"
    made = Recorder(
        Journal(Path("/run/iolab/forever.journal")), Recording(events=_EVENTS, window_ms=1), path
    )
    made.open()
    (path.parent / "recording").touch()
    time.sleep(1000)


def main(argv: list[str]) -> int:
    """Run the block, then every kind of recording."""
    if argv[1] == "record for ever":
        record_for_ever(Path(argv[2]))
    out = Path(argv[3])
    before = state()
    code = agent(argv[1:])
    after = state()
    seen: dict[str, Any] = {"left": {k: [v, after[k]] for k, v in before.items() if after[k] != v}}
    traces = out / "traces"
    for path in sorted(traces.glob("*.dat")):
        report(path)
    folder = Path("/run/tried")
    folder.mkdir()
    seen["lossy"] = recorder(
        folder / "lossy.dat", starve=True, events=["raw_syscalls:sys_enter"], buffer_kib=64
    )
    seen["huge"] = recorder(folder / "huge.dat", buffer_kib=1 << 30)
    seen["missing"] = recorder(folder / "missing.dat", events=["sched:sched_nap"])
    seen["also"] = recorder(folder / "also.dat", also=["sched:sched_nap", "irq:irq_handler_entry"])
    seen["killed"] = killed(argv[0], folder)
    os.chdir("/run")
    for name, how in RECORDINGS.items():
        path = traces / f"how-{name}.dat"
        clock = [] if "-C" in how else ["-C", "mono"]
        head = ["trace-cmd", "record", "-q", "-d", "-k", "-o", str(path), *clock]
        subprocess.run([*head, *how, *_LOAD], stdout=2, check=True)
        report(path)
        subprocess.run(["trace-cmd", "reset", "-a", "-d"], check=False)
        print(f"iolab: recorded {name}", flush=True)
    seen["symbols"] = symbols()
    (out / "seen.json").write_text(json.dumps(seen))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
