# SPDX-License-Identifier: MIT
"""Other processes in tests: are they alive, and waiting for what must come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["PATIENCE_S", "alive", "child_environment", "processes_naming", "wait_until"]

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
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(word in line for word in words):
            found.append(line)
    return found


def child_environment(**different: str) -> dict[str, str]:
    """Return the environment for a Python of this test's own, which finds iolab and tests."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **different}
