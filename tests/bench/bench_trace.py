# SPDX-License-Identifier: MIT
"""How fast a trace is read, beside one read() of the file and ``trace-cmd report``.

Run as ``python -m tests.bench.bench_trace [trace.dat]``; without a file it looks for the largest
trace in the folder that IOLAB_TRACES names or beside the repository, else takes the one in
data/reference. Runs are interleaved, so that other load on the machine touches all alike; medians.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from iolab import measure
from tracedat import Trace, read

ROUNDS = 7
TWO = ["sched_switch", "sched_waking"]
ROOT = Path(__file__).parents[2]

# A process of its own: the peak is that of one read, with everything imported and compiled.
PEAK = """
import re, sys
from pathlib import Path
from tracedat import read
def peak():
    return re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
before = peak()
read(sys.argv[1])
print(before, peak())
"""


def find_trace() -> Path:
    """Return the trace to measure."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    folder = Path(os.environ.get("IOLAB_TRACES", ROOT.parent / "shared" / "traces"))
    found = sorted(folder.glob("*.dat"), key=lambda p: p.stat().st_size)
    return found[-1] if found else ROOT / "data" / "reference" / "traces" / "small_v7_mono.dat"


def timed(function: Callable[[], object]) -> float:
    """Return the seconds a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def measures(trace: Trace) -> None:
    """Run every measure the trace has the events for."""
    for one in (
        measure.occupancy,
        measure.time_in_state,
        measure.waits_by_pair,
        measure.preemptions,
        measure.migrations,
        measure.work_items,
        measure.io_path,
    ):
        one(trace)


def unpacked(path: Path) -> int:
    """Return the bytes of the trace's pages, unpacked."""
    from tracedat._chunks import chunks_of
    from tracedat._decode import plan
    from tracedat._file import TraceFile
    from tracedat._memory import MemoryRoom

    with TraceFile(path) as file:
        sources, room = plan(file, None, None).sources, MemoryRoom(path)
        return sum(chunk.plain for source in sources for chunk in chunks_of(file, source, room))


def report(path: Path) -> None:
    """Let trace-cmd write its report to nowhere."""
    argv = ["trace-cmd", "report", "-R", "-t", str(path)]
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def main() -> int:
    """Print the comparison."""
    path = find_trace()
    trace = read(path)
    events = sum(trace.events.values())
    size = unpacked(path)
    print(f"{path.name}: {events / 1e6:.2f} M events, {size / 1e6:.0f} MB unpacked")
    todo: dict[str, Callable[[], object]] = {
        "one read() of the file": path.read_bytes,
        "every field of every event": lambda: read(path),
        "two event types": lambda: read(path, TWO),
    }
    if {"block_rq_issue", "workqueue_execute_start", "sched_waking"} <= set(trace.events):
        todo["all measures"] = lambda: measures(trace)
    if shutil.which("trace-cmd"):
        todo["trace-cmd report -R -t"] = lambda: report(path)
    for function in todo.values():
        function()
    taken: dict[str, list[float]] = {name: [] for name in todo}
    for _ in range(ROUNDS):
        for name, function in todo.items():
            taken[name].append(timed(function))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    whole = medians["every field of every event"]
    print(f"{'':28}{'median':>10}{'least':>10}{'M events/s':>12}{'x of decoding':>15}")
    for name, seconds in medians.items():
        best = min(taken[name])
        rate = events / seconds / 1e6
        print(
            f"{name:28}{seconds * 1e3:8.0f}ms{best * 1e3:8.0f}ms{rate:12.2f}{seconds / whole:15.2f}"
        )
    before, peak = map(int, subprocess.check_output([sys.executable, "-c", PEAK, path]).split())
    print(
        f"peak memory {peak / 1024:.0f} MiB, {before / 1024:.0f} of it imports: "
        f"{peak * 1024 / size:.2f} x unpacked"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
