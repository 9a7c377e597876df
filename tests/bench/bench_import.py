# SPDX-License-Identifier: MIT
"""How long ``import iolab`` and ``iolab --help`` take, beside an interpreter that does nothing.

Run as ``python -m tests.bench.bench_import``. Runs are interleaved, so that other load on the
machine touches all alike. Of each: the median and the least wall time, and the median CPU time,
which other load changes less. Then the largest imports.
"""

from __future__ import annotations

import re
import resource
import statistics
import subprocess
import sys
import time

from tests.support.processes import child_environment

ROUNDS = 15
COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "import iolab": ("-c", "import iolab"),
    "import click": ("-c", "import click"),
    "iolab --help": ("-m", "iolab", "--help"),
    "iolab sweep --help": ("-m", "iolab", "sweep", "--help"),
}
_IMPORT = re.compile(r"import time: +\d+ \| +(\d+) \| ( *)(\S+)")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments."""
    argv = [sys.executable, *arguments]
    return subprocess.run(argv, env=child_environment(), capture_output=True, text=True, check=True)


def children_s() -> float:
    """Return the CPU seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the seconds of each command, and what ``iolab --help`` imports for more than 5 ms."""
    wall: dict[str, list[float]] = {name: [] for name in COMMANDS}
    cpu: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            began, used = time.perf_counter(), children_s()
            run(*arguments)
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(children_s() - used)
    for name, taken in wall.items():
        median = statistics.median(taken)
        used = statistics.median(cpu[name])
        print(f"{name:20} {median:6.3f} s, at least {min(taken):.3f} s, CPU {used:.3f} s")
    report = run("-X", "importtime", "-m", "iolab", "--help").stderr
    for line in report.splitlines():
        found = _IMPORT.fullmatch(line)
        if found and int(found[1]) > 5000:
            print(f"{int(found[1]) / 1e3:8.1f} ms {found[2]}{found[3]}")


if __name__ == "__main__":
    main()
