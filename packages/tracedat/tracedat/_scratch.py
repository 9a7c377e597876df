# SPDX-License-Identifier: MIT
"""Folders for unfinished files. A killed process leaves one; the next process removes it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

_PREFIX = ".tracedat."
# Locked while the folder is in use. A folder lacks it where the file system has no locks.
_LOCK = "lock"


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Make a folder for the duration of a ``with`` block; `parent` must exist."""
    for left in parent.glob(f"{_PREFIX}*"):
        _remove_abandoned(left)
    work = Path(mkdtemp(dir=parent, prefix=_PREFIX))
    try:
        with (work / f"{_LOCK}.new").open("wb") as lock:
            # It gets its name when it is locked: nobody takes a new folder for an abandoned one.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
                Path(lock.name).rename(work / _LOCK)
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _remove_abandoned(left: Path) -> None:
    with suppress(OSError):
        if left.is_symlink() or left.stat().st_uid != os.geteuid():
            return
        handle = os.open(left / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(handle)
