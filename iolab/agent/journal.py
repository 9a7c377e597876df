# SPDX-License-Identifier: MIT
"""Journal every change of the measured machine before it is made, and restore the machine.

Each line of the journal is one undo. It is flushed to the disk before its change is made, so that
the journal alone restores a run that was killed at any moment. Restoring goes backwards; an undo
of a change that was never made is harmless (`iolab.agent.undo`).

A setting, a mount, a module or a cgroup is gone after a reboot, and writing its old value into
another boot would be a new change. A journal therefore begins with the id of its boot; of another
boot's journal only lasting changes are undone. Lasting changes belong in a journal on a disk, the
others in one in memory, where fsync costs nothing and disturbs no measured disk.

The first line also has the mark that everything inherits that this run starts. What is left of it
ends before anything else is undone.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab.agent.trusted import open_private
from iolab.agent.undo import BELOW_A_MOUNT, IDENTIFIED, LASTING, MARK, UNDO
from iolab.errors import IolabError

__all__ = ["FILES", "JOURNALS", "Journal", "pending", "restore", "restore_all"]

# In the order in which they are undone: a cell's settings, its files on a disk, the block's.
FILES = Path("/var/lib/iolab/files.journal")
JOURNALS = (Path("/run/iolab/cell.journal"), FILES, Path("/run/iolab/block.journal"))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Journal:
    """An append-only file of undos, all of one boot.

    Parameters
    ----------
    path : Path
        The file, in a private folder; both are made if missing.

    Raises
    ------
    IolabError
        If the file cannot be opened.
    UserError
        If another user can write the file or its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._handle = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise IolabError(f"cannot open the journal {path}: {error.strerror}") from error

    def note(self, undo: str, path: str, value: str = "") -> None:
        """Write down how to undo the next change, and flush it to the disk.

        Parameters
        ----------
        undo : str
            Kind of undo, a key of `iolab.agent.undo.UNDO`.
        path : str
            File or folder that the change is about.
        value : str, optional
            What the undo needs, such as the old value of a setting.

        Raises
        ------
        IolabError
            If the line cannot be written; then the change must not be made.
        """
        if not os.fstat(self._handle).st_size:
            self._append({"boot": _boot(), "mark": os.environ.get(MARK, "")})
        self._append({"undo": undo, "path": path, "value": value})

    def note_new(self, undo: str, path: Path, value: str = "") -> None:
        """Write down how to undo what is about to be made under a name.

        Parameters
        ----------
        undo, path, value
            As `note` has them.

        Raises
        ------
        IolabError
            As `note`, or if the name is taken: undoing would remove what is not ours.
        """
        if path.exists():
            raise IolabError(f"{path} is there already, and iolab has not made it")
        self.note(undo, str(path), value)

    def _append(self, entry: dict[str, str]) -> None:
        line = (json.dumps(entry) + "\n").encode()
        try:
            # A disk that is nearly full takes part of the line without an error.
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
    """List what `restore` would undo.

    Parameters
    ----------
    path : Path
        The journal.

    Returns
    -------
    list of str
        Kind, path and value of each undo, in the order in which they would be done.

    Raises
    ------
    IolabError, UserError
        As `restore`.
    """
    return [
        " ".join(word for word in (undo, str(where), repr(value) if value else "") if word)
        for undo, where, value in reversed(_entries(path) or [])
    ]


def restore_all() -> list[str]:
    """Undo the changes in all of this machine's journals.

    Returns
    -------
    list of str
        As `restore`.

    Raises
    ------
    IolabError, UserError
        As `restore`.
    """
    return [failure for path in JOURNALS for failure in restore(path)]


def restore(path: Path) -> list[str]:
    """Undo the changes in a journal, the last one first, then remove the journal.

    Parameters
    ----------
    path : Path
        The journal; it may be missing.

    Returns
    -------
    list of str
        A sentence for each undo that failed. The journal then remains.

    Raises
    ------
    IolabError
        If a line before the last is damaged.
    UserError
        If another user may have written the journal.
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
