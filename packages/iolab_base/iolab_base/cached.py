# SPDX-License-Identifier: MIT
"""Make a folder of the cache once and completely, even if a process is killed meanwhile."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iolab_base.errors import IolabError
from iolab_base.files import locked, scratch_dir

# What reading a document of the cache raises if it is missing, cut or of another shape.
DAMAGED: Final = (OSError, ValueError, KeyError, TypeError)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def lock_of(final: Path) -> Path:
    """Return the file whose lock a folder's maker holds; it lies beside the folder."""
    return final.with_name(f".{final.name}.lock")


def make_folder(
    final: Path, make: Callable[[Path], None], *, good: Callable[[Path], bool] = Path.is_dir
) -> Path:
    """Return a folder of the cache; fill a new one if it is missing or not ``good``.

    One process makes it, the others wait.
    """
    if good(final):
        return final
    with locked(lock_of(final)):
        if good(final):
            return final
        making = final.parent / f".{final.name}.making"
        # The lock makes this folder ours: its contents are those of a killed process.
        shutil.rmtree(making, ignore_errors=True)
        try:
            with scratch_dir(making) as work:
                new = work / "new"
                new.mkdir(mode=0o755)
                make(new)
                _close(new)
                if final.exists():
                    final.rename(work / "old")
                new.rename(final)
        except OSError as error:
            raise IolabError(f"cannot make {final}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return final


def _close(folder: Path) -> None:
    """Make a folder and its contents writable by the owner only, whatever the umask."""
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        if not stat.S_ISLNK(status.st_mode) and status.st_mode & _OTHERS_WRITE:
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
