# SPDX-License-Identifier: MIT
"""Folders of the cache: made once, and whole whoever asks or is killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from iolab.errors import IolabError
from iolab.files import locked, scratch_dir

__all__ = ["make_folder"]


def make_folder(
    final: Path, make: Callable[[Path], None], *, good: Callable[[Path], bool] = Path.is_dir
) -> Path:
    """Return the folder `final`; while it is not `good`, replace it by what `make` fills.

    Only one process makes it, the others wait. `make` works in an empty folder beside it, which
    then gets the name.
    Errors: those of `make`; IolabError if the disk is full or the cache may not be written.
    """
    if good(final):
        return final
    with locked(final.parent / f".{final.name}.lock"):
        if good(final):
            return final
        making = final.parent / f".{final.name}.making"
        # Ours alone under the lock: what is there was left by a process that was killed.
        shutil.rmtree(making, ignore_errors=True)
        try:
            with scratch_dir(making) as work:
                new = work / "new"
                new.mkdir()
                make(new)
                if final.exists():
                    final.rename(work / "old")
                new.rename(final)
        except OSError as error:
            raise IolabError(f"cannot make {final}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return final
