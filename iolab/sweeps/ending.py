# SPDX-License-Identifier: MIT
"""End processes with everything that they started, in whatever session that is.

A notebook's kernel has a session of its own (``launch_kernel`` in jupyter_client), and so has a
virtual machine: the signal to a page's process group reaches neither.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

__all__ = ["Program", "die_with", "end_all", "kill", "signals_held"]

_POLL_S = 0.02
# A virtual machine gives its memory back before it is gone.
_GONE_S = 10.0
_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None)
_HELD: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# A process id, and when the process began: ids are used again.
_Process = tuple[int, int]


class Program(Protocol):
    """A running program that leads its process group: a `subprocess.Popen`, or a fork."""

    @property
    def pid(self) -> int:
        """Its process and process group."""

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raise `subprocess.TimeoutExpired`."""


def die_with(parent: int) -> None:
    """Let the kernel kill this process, which `parent` forked, when its parent ends (prctl(2))."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # A parent that ended before sends no signal.
    if os.getppid() != parent:
        os._exit(1)


def kill(program: Program) -> None:
    """Kill the process group of a program and wait for the program's end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


@contextmanager
def signals_held() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP wait for the end of a ``with`` block.

    Between the start of a process and the note of it, an exception would leave it running. Children
    that are started in the block do not inherit this.
    """
    if threading.current_thread() is not threading.main_thread():
        # Python's handlers run in the main thread alone.
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.getsignal(number) for number in _HELD}
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def end_all(processes: Sequence[Program], *, grace_s: float) -> None:
    """End programs, and wait for the end of their descendants.

    Parameters
    ----------
    processes : sequence of Program
        The programs, each in a session of its own.
    grace_s : float
        Seconds that they have together between SIGTERM and SIGKILL.
    """
    known = _stopped_trees(processes)
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            os.kill(process.pid, signal.SIGCONT)
    until = time.monotonic() + grace_s
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
    known |= _stopped_trees(processes)
    for process in processes:
        kill(process)
    _kill(known)


def _stopped_trees(processes: Iterable[Program]) -> set[_Process]:
    """Stop processes, so that they start nothing more, and return their descendants."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
    parents = _parents()
    found: set[_Process] = set()
    wanted = {process.pid for process in running}
    while wanted:
        below = {one for one, parent in parents.items() if parent in wanted} - found
        found |= below
        wanted = {pid for pid, _ in below}
    return found


def _parents() -> dict[_Process, int]:
    """Return the id of the parent of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = path.read_text(errors="replace").rpartition(")")[2].split()
            # Zombies have ended; state, parent and start are fields 3, 4 and 22 of proc(5).
            if words[0] not in "ZX":
                found[int(path.parent.name), int(words[19])] = int(words[1])
    return found


def _kill(known: set[_Process]) -> None:
    """Kill processes, and wait until they are gone."""
    until = time.monotonic() + _GONE_S
    while left := known & _parents().keys():
        for pid, _ in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return
        time.sleep(_POLL_S)
