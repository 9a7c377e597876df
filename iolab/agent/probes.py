# SPDX-License-Identifier: MIT
"""Count the calls of kernel functions with kprobes, without recording them.

The kernel counts a probe's hits (kprobe_profile, Documentation/trace/kprobetrace.rst), but only
while the probe is enabled in some trace instance. Here it is enabled in an instance whose tracing
is off, so that no event is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.recording import tracefs
from iolab_base.errors import CannotRunError, IolabError

__all__ = ["Probes"]

_GROUP = "iolab_count"


class Probes:
    """Kprobes that count the calls of kernel functions from now on; restoring removes them.

    Raises CannotRunError, naming the function, if this kernel lacks it or cannot probe it;
    IolabError if there are such probes already.
    """

    def __init__(self, journal: Journal, functions: Sequence[str]) -> None:
        root = tracefs(journal)
        self._profile = root / "kprobe_profile"
        self.functions = list(functions)
        definitions = root / "kprobe_events"
        if not definitions.exists():
            raise CannotRunError("this kernel cannot count function calls (no kprobe_events)")
        if f":{_GROUP}/" in definitions.read_text():
            raise IolabError(f"{definitions} has probes of {_GROUP} that iolab has not made")
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
        journal.note_new("tracing", instance)
        instance.mkdir()
        (instance / "tracing_on").write_text("0")
        enable = instance / "events" / _GROUP / "enable"
        journal.note("write", str(enable), "0")
        enable.write_text("1")

    def hits(self) -> dict[str, int]:
        """Return the number of calls so far by function, including those that the kernel missed."""
        calls = {}
        for line in self._profile.read_text().splitlines():
            probe, *numbers = line.split()
            if probe.startswith("c") and probe[1:].isdigit() and len(numbers) >= 2:
                number = int(probe[1:])
                if number < len(self.functions):
                    calls[self.functions[number]] = int(numbers[0]) + int(numbers[1])
        return calls


def _append(path: Path, line: str) -> None:
    # Unbuffered: the kernel takes each write as a command and answers it with an error code.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)
