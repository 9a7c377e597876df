# SPDX-License-Identifier: MIT
"""Read and change kernel settings; every change is journalled and read back."""

from __future__ import annotations

import re
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.named import identity_at
from iolab.errors import IolabError

__all__ = ["SettingError", "change", "read"]


class SettingError(IolabError):
    """A setting is missing, or the kernel refuses a value or does not keep it."""


def read(path: Path) -> str:
    """Return a setting's value.

    Parameters
    ----------
    path : Path
        The setting's file.

    Returns
    -------
    str
        The file's text, stripped; of a choice such as ``a [b] c`` only ``b``.

    Raises
    ------
    SettingError
        If the file cannot be read.
    """
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from error
    chosen = re.search(r"\[([^\]]*)\]", text)
    return chosen.group(1) if chosen else text


def change(
    journal: Journal,
    path: Path,
    value: str,
    *,
    undone_by: Path | None = None,
    disk: Path | None = None,
) -> None:
    """Change a setting unless it has the value already.

    Parameters
    ----------
    journal : Journal
        Restoring it restores the old value.
    path : Path
        The setting's file.
    value : str
        The new value.
    undone_by : Path, optional
        Another setting that the kernel changes together with this one: its old value is written to
        restore both.
    disk : Path, optional
        The disk whose setting it is, as its folder in sysfs: the old value is written back to this
        disk only, not to another one that has got its name.

    Raises
    ------
    SettingError
        If the file is missing, or the kernel refuses the value or does not keep it.
    """
    if read(path) == value:
        return
    undo = undone_by or path
    if disk is None:
        journal.note("write", str(undo), read(undo))
    else:
        journal.note("queue", str(undo), f"{read(undo)} {identity_at(disk)}")
    try:
        path.write_text(value)
    except OSError as error:
        raise SettingError(f"cannot write {value} to {path}: {error.strerror}") from error
    kept = read(path)
    if kept != value:
        raise SettingError(f"{path} reads {kept} after {value} was written")
