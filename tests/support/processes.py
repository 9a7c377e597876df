# SPDX-License-Identifier: MIT
"""Other processes in tests: are they alive, and waiting for what must come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Only a test that fails waits as long: other work may leave this one little of the machine.
PATIENCE_S = 600


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def wait_until(true: Callable[[], object]) -> None:
    """Wait for something that must come; how long it takes does not matter."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s in vain"
        time.sleep(0.01)


def processes_naming(*words: str) -> list[str]:
    """Return the command lines of the processes that have all of these words in theirs."""
    return [line for _, line in _command_lines() if all(word in line for word in words)]


def _command_lines() -> Iterator[tuple[int, str]]:
    """Yield the process id and the command line of each process."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield int(path.parent.name), line


def _takes_alarms(pid: int) -> bool:
    """Tell whether a process blocks SIGALRM, as one must that reads it from a signalfd."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigBlk:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGALRM - 1) & 1)
    return False


@contextmanager
def machines_disturbed(folder: Path) -> Iterator[set[int]]:
    """Wake the main loop of every QEMU that uses this folder, about 3,000 times a second.

    QEMU reads SIGALRM from a signalfd and does nothing with it (util/main-loop.c); one that has not
    come so far would be killed by it. What is yielded gets the process id of each that was
    disturbed.
    """
    disturbed: set[int] = set()
    ended = threading.Event()

    def disturb() -> None:
        while not ended.is_set():
            lines = _command_lines()
            named = {pid for pid, line in lines if " -icount " in line and str(folder) in line}
            running = {pid for pid in named if _takes_alarms(pid)}
            disturbed.update(running)
            for _ in range(1000):
                for pid in running:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGALRM)
                ended.wait(0.0003)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield disturbed
    finally:
        ended.set()
        thread.join()


def child_environment(**different: str) -> dict[str, str]:
    """Return the environment for a Python of this test's own, which finds iolab and tests."""
    root = Path(__file__).parents[2]
    path = ":".join(map(str, [root, *sorted(root.glob("packages/*"))]))
    return {**os.environ, "PYTHONPATH": path, **different}


def run_python(
    code: str, *arguments: str, check: bool = True, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python of its own, with the environment of `child_environment`."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=check,
        cwd=cwd,
    )
