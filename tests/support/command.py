# SPDX-License-Identifier: MIT
"""The command line in a process of its own."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import PATIENCE_S, child_environment

__all__ = ["ARGV", "Told", "iolab"]

ARGV = (sys.executable, "-m", "iolab")


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
