# SPDX-License-Identifier: MIT
"""Read and change kernel settings; every change is journalled and read back."""

from __future__ import annotations

import re
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.named import identity_at
from iolab_base.errors import IolabError

__all__ = ["SettingError", "change", "read"]


class SettingError(IolabError):
    """A setting is missing, or the kernel refuses a value or does not keep it."""


def read(path: Path) -> str:
    """Return a setting's text, stripped; of a choice such as ``a [b] c`` only ``b``."""
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
    """Change a setting unless it has the value already; SettingError if the kernel refuses it.

    The kernel changes `undone_by` together with this setting: restoring writes its old value to
    undo both. `disk` (a folder in sysfs) restores the value on this disk only, not on another one
    that later gets its name.
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
