# SPDX-License-Identifier: MIT
"""Run a program as a cell's work, in a virtual machine.

On a real machine (local, ssh) no program is run. Every change that the agent makes there is
journalled first and undone; changes that an unknown program makes as root cannot be, and a cell
that leaves a trace on someone's machine is worth less than no cell. The guest is thrown away after
its block, so nothing that a program does there lasts.

Everything that it starts inherits the run's mark (`iolab_agent.undo.MARK`), so another agent can
find it after a kill.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab_agent.journal import Journal
from iolab_agent.plan import Cell, needs_guest
from iolab_agent.plan_work import Program
from iolab_agent.proc import in_guest, pinned_to
from iolab_agent.workplace import Workplace
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import kill_group, start

# How much of the output's end is kept.
_KEPT = 1 << 16
# As large as any user's pipe may be (fs.pipe-max-size).
_PIPE = 1 << 20
# Not in Python 3.9's fcntl (include/uapi/linux/fcntl.h).
_F_SETPIPE_SZ = 1031
# How often a program that never stops printing wakes the agent.
_REST_S = 0.02
_END_S = 5.0


def refuse_outside_a_guest(cell: Cell) -> None:
    """Raise CannotRunError for a cell that only iolab's virtual machine may run, elsewhere."""
    reason = needs_guest(cell)
    if reason and not in_guest():
        raise CannotRunError(reason)


class Output:
    """The end of what a program prints, read from a pipe without waiting.

    The program writes to ``writer``. If the pipe was once ``full``, it may have waited for the
    agent.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        with suppress(OSError):
            fcntl.fcntl(self._reader, _F_SETPIPE_SZ, _PIPE)
        self._size = fcntl.fcntl(self._reader, _F_SETPIPE_SZ + 1)
        self._kept = b""
        self.full = False
        self.ended = False

    def fileno(self) -> int:
        """Return the descriptor that is read."""
        return self._reader

    def started(self) -> None:
        """Close the program's end of the pipe in this process."""
        os.close(self.writer)

    def drain(self) -> None:
        """Read what is available."""
        read = 0
        # At most a pipe full: a program that goes on printing must not keep the agent here.
        while not self.ended and read < self._size:
            try:
                chunk = os.read(self._reader, _KEPT)
            except BlockingIOError:
                break
            self.ended = not chunk
            read += len(chunk)
            self._kept = (self._kept + chunk)[-_KEPT:]
        # A page of the pipe may be filled in part only.
        self.full |= read > self._size // 2

    def text(self) -> str:
        """Return the end of the output; close the pipe."""
        self.drain()
        os.close(self._reader)
        return self._kept.decode(errors="replace")


def pause(until: float, outputs: Sequence[Output] = (), end: int | None = None) -> bool:
    """Sleep until a moment (time.monotonic()) or a process's end, and read outputs meanwhile.

    `end` is a pidfd. Return whether the process has ended.
    """
    ends: list[Any] = [] if end is None else [end]
    while True:
        left = until - time.monotonic()
        if left <= 0:
            return bool(ends) and bool(select.select(ends, [], [], 0)[0])
        if not ends and not outputs:
            time.sleep(left)
            continue
        open_outputs = [output for output in outputs if not output.ended]
        ready, _, _ = select.select([*ends, *open_outputs], [], [], left)
        for output in open_outputs:
            output.drain()
        if end in ready:
            return True
        # An output alone: let it grow before the next look.
        rest = min(_REST_S, max(0.0, until - time.monotonic()))
        if ends:
            select.select(ends, [], [], rest)
        else:
            time.sleep(rest)


class RunningProgram:
    """A program that was started in its own session; restoring kills everything that it started.

    ``end`` is its first process's pidfd, which becomes readable at its end. ``{device}`` in an
    argument stands for the place's node. Raises CannotRunError if the cell has no such device, or
    the cores or pidfd are missing; CommandError if the program cannot be started.
    """

    def __init__(self, journal: Journal, program: Program, *, place: Workplace) -> None:
        self.program = program
        argv, folder = _with_device(program.argv, place.device), place.folder
        if not folder.is_dir():
            journal.note("tree", str(folder))
            folder.mkdir()
        environment = {**os.environ, "LC_ALL": "C", "HOME": str(folder)}
        self.output = Output()
        try:
            with pinned_to(program.cpus or [place.cpu]):
                self._process = start(
                    argv,
                    stdout=self.output.writer,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=folder,
                    cgroup=place.group,
                )
        except BaseException:
            self.output.text()
            raise
        finally:
            self.output.started()
        self.began_ns = time.monotonic_ns()
        self.pid = self._process.pid
        try:
            self.end = os.pidfd_open(self.pid)
        except OSError as error:
            kill_group(self._process)
            raise CannotRunError(f"this kernel has no pidfd_open: {error.strerror}") from error

    def has_ended(self) -> bool:
        """Return whether its first process has ended."""
        return pause(0.0, end=self.end)

    def terminate(self) -> None:
        """End it with SIGTERM; after a while, kill what remains of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        pause(time.monotonic() + _END_S, [self.output], self.end)

    def result(self) -> dict[str, Any]:
        """Wait for its end, and return an `iolab.results.ProgramResult`."""
        ended_ns = time.monotonic_ns()
        with suppress(ProcessLookupError, PermissionError):
            # Still alive only after SIGTERM was ignored; its children in any case.
            os.killpg(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        text = self._close()
        found = {
            "whole": self.program.runtime_ms is None,
            "began_ns": self.began_ns,
            "ended_ns": ended_ns,
            "seconds": (ended_ns - self.began_ns) / 1e9,
            "exit": self._process.returncode,
            "ran_ns": round((usage.ru_utime + usage.ru_stime) * 1e9),
            "voluntary_ctxt_switches": usage.ru_nvcsw,
            "nonvoluntary_ctxt_switches": usage.ru_nivcsw,
            "output": text,
            "output_full": self.output.full,
        }
        if self.program.value is not None:
            found["value"] = printed_value(self.program.value, text)
        return found

    def kill(self) -> None:
        """Kill it, if it still runs; restoring the journal kills the rest."""
        if self._process.returncode is None:
            kill_group(self._process)
            self._close()

    def _close(self) -> str:
        os.close(self.end)
        return self.output.text()


def printed_value(pattern: str, text: str) -> float | None:
    """Return the number in the last match of a pattern with one group; None if it is not finite."""
    matches = [match[1] for match in re.finditer(pattern, text, re.MULTILINE)]
    try:
        value = float(matches[-1])
    except (IndexError, TypeError, ValueError):
        return None
    return value if abs(value) < float("inf") else None


def program_gates(
    result: Mapping[str, Any], program: Program, *, early: bool, stopped: bool
) -> list[str]:
    """Return why a program's run is not a valid measurement; empty if it is.

    `early`: it ended before it was to be stopped. `stopped`: its exit code does not matter.
    """
    gates = []
    last = (result["output"].strip().splitlines() or ["no output"])[-1][-200:]
    code = result["exit"]
    how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    if early:
        gates.append(f"the program {how} before its time: {last}")
    elif code != 0 and not stopped:
        gates.append(f"the program {how}: {last}")
    if result["output_full"]:
        gates.append("the program printed so much that it waited for the agent to read it")
    if program.value is not None and result["value"] is None:
        gates.append(f"the program printed no number that matches {program.value!r}")
    return gates


def _with_device(argv: Sequence[str], device: Path | None) -> list[str]:
    if device is None and any("{device}" in word for word in argv):
        raise IolabError("the program's arguments name {device}, and the cell has none")
    return [word.replace("{device}", str(device)) for word in argv]
