# SPDX-License-Identifier: MIT
"""The command line in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.processes import PATIENCE_S, child_environment

ARGV = (sys.executable, "-m", "iolab")
# From a small process: what the kernel counts for a program includes the one that started it.
_NOTE_PEAK = """
import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as note:
    note.write(str(usage.ru_maxrss << 10))
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""


class Told:
    """What the command line said and returned."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.error = done.stderr

    def one_line(self) -> str:
        """Return the only line on standard error."""
        lines = self.error.splitlines()
        assert len(lines) == 1, self.error
        return self.sentence()

    def sentence(self) -> str:
        """Return the last line on standard error, behind the lines of progress: the error."""
        line = self.error.splitlines()[-1]
        assert line.startswith("iolab: "), self.error
        return line.removeprefix("iolab: ")


# What runs the command line: `iolab` here, or the fixture of tests/cli in the test's own process.
Iolab = Callable[..., Told]


def noting_peak(note: Path, argv: Iterable[str]) -> list[str]:
    """Return a command that runs another and notes the most bytes that a process of it had."""
    return [sys.executable, "-S", "-c", _NOTE_PEAK, str(note), *argv]


def iolab(*arguments: object, **environment: str) -> Told:
    """Run a command to its end."""
    return Told(
        subprocess.run(
            [*ARGV, *map(str, arguments)],
            env=child_environment(**environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    )
