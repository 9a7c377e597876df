# SPDX-License-Identifier: MIT
"""A command on a terminal of its own, and what the terminal was told."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iolab_base.process import kill_group, start
from tests.support.payloads import controls

# What iolab itself says to a terminal: colours, its progress bar, and blanks over that.
_OWN: Final = re.compile(r"\x1b\[[0-9;]*m|\r\d+/\d+ blocks, [^\r\n]*|\r +(?=\r)|\r")


@dataclass
class Said:
    """How a command ended and what it said to its terminal."""

    code: int
    text: str

    @property
    def words(self) -> str:
        """What is left without the colours and the progress bar of iolab itself."""
        return _OWN.sub("", self.text)

    @property
    def last(self) -> str:
        """The last line."""
        lines = self.words.strip().splitlines()
        return lines[-1] if lines else ""

    def harmless(self) -> bool:
        """Tell whether the terminal was told nothing but words, and all in one piece."""
        assert not controls(self.words)
        assert "Traceback" not in self.text
        return True


class OnTerminal:
    """A command that runs on a terminal of its own."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        self._master, terminal = pty.openpty()
        self._seen: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.process = start(argv, stdout=terminal, stderr=terminal, env=env, cwd=cwd)
        finally:
            os.close(terminal)

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 1 << 16):
                self._seen.append(data)
        except OSError:
            # The terminal was hung up.
            pass

    def end(self, timeout_s: float) -> Said:
        """Wait for the command's end. Errors: subprocess.TimeoutExpired, and it is killed."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            kill_group(self.process)
            raise
        finally:
            # Whatever it left running may hold the terminal open.
            self._reader.join(5)
            os.close(self._master)
            self._reader.join()
        return Said(code, b"".join(self._seen).decode(errors="surrogateescape"))
