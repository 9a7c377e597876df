# SPDX-License-Identifier: MIT
"""The lock that allows one run or restore at a time on a machine."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iolab.agent.trusted import open_private
from iolab_base.errors import BusyError, IolabError

__all__ = ["machine_lock"]

_LOCK = Path("/run/iolab/journal.lock")
# Longer command lines are truncated.
_COMMAND_CHARACTERS = 200


@contextmanager
def machine_lock() -> Iterator[None]:
    """Hold the machine's lock, as every run and restore must, for the duration of a ``with`` block.

    The lock file contains the holder's process id. Raises BusyError if another process holds the
    lock; the message names it, since when, and its command.
    """
    try:
        handle = open_private(_LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise IolabError(f"cannot lock {_LOCK}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(_busy(handle)) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _busy(handle: int) -> str:
    """Describe the process that holds the lock, and how to stop it."""
    pid = os.pread(handle, 20, 0).decode(errors="replace").strip()
    # A holder that has just begun, or is about to end, leaves the file empty.
    if not pid.isdigit():
        return "iolab is at work on this machine already; wait for its end"
    # The holder wrote its process id when it took the lock.
    held_s = max(0.0, time.time() - os.fstat(handle).st_mtime)
    holder = f"process {pid}, for {_duration(held_s)}"
    command = _command(pid)
    if command:
        holder += f": {command}"
    return (
        f"iolab is at work on this machine already ({holder}); wait for its end, or stop it "
        f"with: kill {pid}"
    )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _command(pid: str) -> str:
    """Return a process's command line, or "" if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    text = shlex.join(words[:-1])
    return "".join(c if c.isprintable() else "?" for c in text)[:_COMMAND_CHARACTERS]
