# SPDX-License-Identifier: MIT
"""Journal every change of the machine before it is made, and restore it, one process at a time.

Each line of the journal is one undo. It is flushed to the disk before its change is made, so the
journal alone restores a run that was killed at any moment. Restoring goes backwards; undoing a
change that was never made is harmless (`iolab_agent.undo`).

A reboot clears settings, mounts, modules and cgroups, and writing an old value into another boot
would be a new change. So a journal begins with the id of its boot; from another boot's journal,
only lasting changes are undone. Lasting changes belong in a journal on a disk, the others in one in
memory, where fsync costs nothing and disturbs no measured disk.

The first line also has the run's mark, which every process that it starts inherits. Restoring first
ends those that still run.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iolab_agent.trusted import open_private
from iolab_agent.undo import BELOW_A_MOUNT, IDENTIFIED, LASTING, MARK, UNDO
from iolab_base.errors import BusyError, IolabError

# In the order in which they are undone: a cell's settings, its files on a disk, the block's.
FILES = Path("/var/lib/iolab/files.journal")
JOURNALS = (Path("/run/iolab/cell.journal"), FILES, Path("/run/iolab/block.journal"))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Journal:
    """An append-only file of undos, all of one boot, in a private folder.

    Raises IolabError if it cannot be opened, UserError if another user can write it or its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._handle = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise IolabError(f"cannot open the journal {path}: {error.strerror}") from error

    def note(self, undo: str, path: str, value: str = "") -> None:
        """Write down how to undo the next change, and flush it to the disk.

        `undo` is a key of `iolab_agent.undo.UNDO`, `value` what it needs, such as a setting's old
        value. Raises IolabError if the line cannot be written: the change must then not be made.
        """
        if not os.fstat(self._handle).st_size:
            self._append({"boot": _boot(), "mark": os.environ.get(MARK, "")})
        self._append({"undo": undo, "path": path, "value": value})

    def note_new(self, undo: str, path: Path, value: str = "") -> None:
        """Write down how to undo what is about to be made under a name.

        Raises IolabError if the name is taken: undoing would remove what is not ours.
        """
        if path.exists():
            raise IolabError(f"{path} is there already, and iolab has not made it")
        self.note(undo, str(path), value)

    def _append(self, entry: dict[str, str]) -> None:
        line = (json.dumps(entry) + "\n").encode()
        try:
            # A nearly full disk takes part of the line without an error.
            while line:
                line = line[os.write(self._handle, line) :]
            os.fsync(self._handle)
        except OSError as error:
            raise IolabError(f"cannot write the journal {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; its undos remain until `restore`."""
        os.close(self._handle)


def _entries(path: Path) -> list[tuple[str, Path, str]] | None:
    """Return the undos of a journal as (kind, path, value), or None if there is no journal."""
    try:
        with os.fdopen(open_private(path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IolabError(f"cannot read the journal {path}: {error.strerror}") from error
    entries = []
    this_boot, mark = True, ""
    for number, line in enumerate(lines, 1):
        try:
            entry: dict[str, Any] = json.loads(line)
            if number == 1:
                this_boot, mark = entry["boot"] == _boot(), str(entry.get("mark", ""))
                continue
            undo, where, value = entry["undo"], entry["path"], entry["value"]
            UNDO[undo]
            if this_boot or undo in LASTING:
                entries.append((undo, Path(where), str(value)))
        except (ValueError, KeyError, TypeError) as error:
            # A crash may cut the last line; its change was never made.
            if number == len(lines):
                break
            raise IolabError(f"{path}: line {number} is damaged; nothing was undone") from error
    last = {entry[:2]: number for number, entry in enumerate(entries) if entry[0] in IDENTIFIED}
    kept = [entry for number, entry in enumerate(entries) if last.get(entry[:2], number) == number]
    return [*kept, ("processes", Path("/proc"), mark)] if this_boot and mark else kept


def pending(path: Path) -> list[str]:
    """List what `restore` would undo, in that order: kind, path and value of each undo."""
    return [
        " ".join(word for word in (undo, str(where), repr(value) if value else "") if word)
        for undo, where, value in reversed(_entries(path) or [])
    ]


def restore_all() -> list[str]:
    """Undo the changes in all of this machine's journals; return the failures as `restore` does."""
    return [failure for path in JOURNALS for failure in restore(path)]


def restore(path: Path) -> list[str]:
    """Undo the changes in a journal, if there is one, the last first, then remove the journal.

    Return a sentence for each undo that failed; the journal then remains. Raises IolabError if a
    line before the last is damaged, UserError if another user may have written the journal.
    """
    entries = _entries(path)
    if entries is None:
        return []
    failures = []
    still_mounted = False
    for undo, where, value in reversed(entries):
        if still_mounted and undo in BELOW_A_MOUNT:
            continue
        try:
            UNDO[undo](where, value)
        except (OSError, IolabError) as error:
            failures.append(f"cannot undo {undo} {where}: {error}")
            still_mounted |= undo == "umount"
    if not failures:
        path.unlink()
        if path == FILES:
            with suppress(OSError):
                path.parent.rmdir()
    return failures


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
