# SPDX-License-Identifier: MIT
"""Settings of the kernel: read, journalled, written, read back."""

from __future__ import annotations

import re
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.errors import IolabError

__all__ = ["SettingError", "change", "read"]


class SettingError(IolabError):
    """The kernel refused a value, or reads back another one."""


def read(path: Path) -> str:
    """Return a setting's value: stripped, and of a choice like ``a [b] c`` the chosen one.

    Errors: SettingError naming the file.
    """
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from error
    chosen = re.search(r"\[([^\]]*)\]", text)
    return chosen.group(1) if chosen else text


def change(journal: Journal, path: Path, value: str, *, undone_by: Path | None = None) -> None:
    """Set `path` to `value` unless it has it already, so that `journal` can put the old one back.

    `undone_by` is another setting that the kernel changes along with this one: writing its old
    value puts both back.

    Errors: SettingError if the file is missing, the kernel refuses the value or does not keep it.
    """
    if read(path) == value:
        return
    undo = undone_by or path
    journal.note("write", str(undo), read(undo))
    try:
        path.write_text(value)
    except OSError as error:
        raise SettingError(f"cannot write {value} to {path}: {error.strerror}") from error
    found = read(path)
    if found != value:
        raise SettingError(f"{path} reads {found} after {value} was written")
