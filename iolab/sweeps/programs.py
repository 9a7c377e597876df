# SPDX-License-Identifier: MIT
"""Programs that a sweep starts: how one reports its error, and how all of them are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO, Final

import psutil

from icountvm.qemu import GuestError, with_console
from iolab.interrupts import forget_interrupt
from iolab_base.errors import IolabError
from iolab_base.process import kill_group

# Bytes of a program's output that are read.
_MOST: Final = 1 << 20
_POLL_S: Final = 0.02
# A virtual machine returns its memory before it ends.
_GONE_S: Final = 10.0
_HELD: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Failure:
    """Why a program failed, and the last lines of its machine's console if it has one."""

    reason: str
    console: tuple[str, ...] = ()

    def __str__(self) -> str:
        return with_console(self.reason, self.console)

    @property
    def line(self) -> str:
        """The reason in one line, and the kernel's BUG or panic if any."""
        died = [line.strip() for line in self.console if "BUG" in line or "Kernel panic" in line]
        return ": ".join((" ".join(self.reason.split()), *died[:1]))


def program_environment() -> dict[str, str]:
    """Return the environment of a program that measures or makes a page."""
    # One BLAS thread each: the cores are busy with virtual machines.
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def open_log() -> IO[bytes]:
    """Return a file in memory for a program's output: the disk of its results may be full."""
    return os.fdopen(os.memfd_create("log"), "w+b", buffering=0)


def run_saying(work: Callable[[], None]) -> int:
    """Run a program's work, which SIGTERM ends, and return its exit code; print errors as JSON."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
    except KeyboardInterrupt:
        forget_interrupt()
        return 128 + signal.SIGTERM
    except GuestError as error:
        print(json.dumps({"error": error.reason, "console": error.console}))
        return error.exit_code
    except IolabError as error:
        print(json.dumps({"error": str(error)}))
        return error.exit_code
    except OSError as error:
        where = "" if error.filename is None else f": {error.filename}"
        print(json.dumps({"error": f"{error.strerror or error}{where}"}))
        return IolabError.exit_code
    finally:
        # Before Python prints a traceback, which would then be the last output.
        sys.stdout.flush()
    return 0


def error_said(log: IO[bytes], code: int) -> Failure:
    """Return a program's error: from the JSON in its last line, else its signal or exit code."""
    # The program shares this file offset: do not move it.
    size = os.fstat(log.fileno()).st_size
    said = os.pread(log.fileno(), _MOST, max(0, size - _MOST)).decode(errors="replace").strip()
    with suppress(ValueError, KeyError, IndexError, TypeError):
        last = json.loads(said.splitlines()[-1])
        return Failure(str(last["error"]), tuple(map(str, last.get("console", ()))))
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        return Failure(f"was ended by {signal.Signals(number).name}")
    return Failure(f"ended with {code}: {said[-500:] or 'no message'}")


@contextmanager
def signals_held() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP to the end of a ``with`` block."""
    # An exception between a process's start and its registration would leave it running. Children
    # started in the block do not inherit the mask.
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


def end_all(programs: Sequence[subprocess.Popen[bytes]], *, grace_s: float) -> None:
    """End programs, each in a session of its own, and wait for the end of their descendants."""
    # A virtual machine has its own session, so a signal to the program's group does not reach it.
    # The programs share ``grace_s`` between SIGTERM and SIGKILL.
    below = _stopped(programs)
    for program in programs:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGTERM)
            os.kill(program.pid, signal.SIGCONT)
    until = time.monotonic() + grace_s
    for program in programs:
        with suppress(subprocess.TimeoutExpired):
            program.wait(max(0.0, until - time.monotonic()))
    below |= _stopped(programs)
    for program in programs:
        kill_group(program)
    end_processes(below)


def _stopped(programs: Iterable[subprocess.Popen[bytes]]) -> set[psutil.Process]:
    """Stop programs so that they start nothing more, and return their descendants."""
    found: set[psutil.Process] = set()
    for program in programs:
        if program.poll() is None:
            with suppress(ProcessLookupError, psutil.Error):
                os.kill(program.pid, signal.SIGSTOP)
                found.update(psutil.Process(program.pid).children(recursive=True))
    return found


def end_processes(processes: Iterable[psutil.Process]) -> None:
    """Kill processes, and wait until they are gone."""
    left, until = set(processes), time.monotonic() + _GONE_S
    while (left := {process for process in left if _runs(process)}) and time.monotonic() < until:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL_S)


def _runs(process: psutil.Process) -> bool:
    # A zombie has ended.
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
