# SPDX-License-Identifier: MIT
"""Counting the calls of kernel functions with kprobes, without recording any of them.

The kernel counts a probe's hits itself (kprobe_profile). It does so only while the probe is enabled
somewhere: here in an instance whose tracing is off, so that nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.recording import tracefs
from iolab.errors import CannotRunError

__all__ = ["Probes"]

_GROUP = "iolab_count"


class Probes:
    """Probes on functions, counting from the moment they are made; restoring removes them."""

    def __init__(self, journal: Journal, functions: Sequence[str]) -> None:
        """Probe `functions`.

        Errors: CannotRunError naming a function that this kernel does not have or cannot probe.
        """
        root = tracefs(journal)
        self._profile = root / "kprobe_profile"
        self.functions = list(functions)
        definitions = root / "kprobe_events"
        if not definitions.exists():
            raise CannotRunError("this kernel cannot count function calls (no kprobe_events)")
        for number, function in enumerate(functions):
            probe = f"{_GROUP}/c{number}"
            journal.note("kprobe", str(definitions), probe)
            try:
                _append(definitions, f"p:{probe} {function}")
            except OSError as error:
                raise CannotRunError(
                    f"this kernel cannot count calls of {function}: {error.strerror}"
                ) from error
        instance = root / "instances" / _GROUP
        journal.note("tracing", str(instance))
        instance.mkdir()
        (instance / "tracing_on").write_text("0")
        enable = instance / "events" / _GROUP / "enable"
        journal.note("write", str(enable), "0")
        enable.write_text("1")

    def hits(self) -> dict[str, int]:
        """Return how often each function has been called since; a call that was missed counts."""
        found = {}
        for line in self._profile.read_text().splitlines():
            probe, *numbers = line.split()
            if probe.startswith("c") and probe[1:].isdigit() and len(numbers) >= 2:
                number = int(probe[1:])
                if number < len(self.functions):
                    found[self.functions[number]] = int(numbers[0]) + int(numbers[1])
        return found


def _append(path: Path, line: str) -> None:
    # One write of its own: the kernel takes each as a command, and buffering would hide its answer.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)
