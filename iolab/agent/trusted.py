# SPDX-License-Identifier: MIT
"""Folders and files in which no other user can make root read or write something else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iolab.errors import UserError

__all__ = ["check_private", "new_file", "open_private", "private_folder", "trusted_folder"]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def trusted_folder(path: Path) -> Path:
    """Return a folder's path without links, if no other user can change what that path leads to.

    Errors: UserError naming the part that another user owns or may write. In a folder with the
    sticky bit, such as /tmp, others cannot rename what is root's.
    """
    try:
        folder = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UserError(f"{path} cannot be used: {_words(error)}") from error
    if not folder.is_dir():
        raise UserError(f"{path} is no directory on the measured machine")
    # From the root on: below a trusted folder, nobody else can replace what was looked at.
    for part in (*reversed(folder.parents), folder):
        found = part.lstat()
        if found.st_uid not in (0, os.geteuid()):
            wrong = f"belongs to user {found.st_uid}"
        elif not stat.S_ISDIR(found.st_mode):
            wrong = "was replaced just now"
        elif found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
            wrong = "can be written by other users"
        else:
            continue
        raise UserError(
            f"{path} is refused, because another user could make root write elsewhere: {part} "
            f"{wrong}; name a folder of root's own, with only such folders above it"
        )
    return folder


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _wrong(found: os.stat_result) -> str:
    """Return why a file or folder is not this user's own alone, or ""."""
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}"
    return "can be written by other users" if found.st_mode & _OTHERS_WRITE else ""


def _refused(path: Path, wrong: str) -> UserError:
    return UserError(f"{path} {wrong}, so nothing in it is used: find out why, then remove it")


def _make(path: Path, mode: int) -> None:
    if not path.is_dir():
        _make(path.parent, 0o755)
        path.mkdir(mode=mode, exist_ok=True)


@contextmanager
def private_folder(path: Path, *, make: bool = False) -> Iterator[int]:
    """Open a folder that only this user can enter, and yield its descriptor.

    `make` makes it, with the folders above it. Its mode becomes 0700, whatever the umask.

    Errors: UserError if it is a link, another user's, or one that others can write; OSError, also
    where it is not there.
    """
    if make:
        _make(path, 0o700)
    if path.is_symlink():
        raise _refused(path, "is a link")
    handle = os.open(path, _FOLDER)
    try:
        wrong = _wrong(os.fstat(handle))
        if wrong:
            raise _refused(path, wrong)
        os.fchmod(handle, 0o700)
        yield handle
    finally:
        os.close(handle)


def check_private(path: Path) -> None:
    """Check that a folder, if it is there, is private. Errors: as `private_folder`."""
    with suppress(FileNotFoundError), private_folder(path):
        pass


def open_private(path: Path, flags: int) -> int:
    """Open a file in a private folder; with O_CREAT in `flags` both are made.

    Errors: as `private_folder`, for the file too.
    """
    with private_folder(path.parent, make=bool(flags & os.O_CREAT)) as folder:
        with suppress(FileNotFoundError):
            found = os.lstat(path.name, dir_fd=folder)
            if not stat.S_ISREG(found.st_mode):
                raise _refused(path, "is a link" if stat.S_ISLNK(found.st_mode) else "is no file")
        handle = os.open(path.name, flags | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    wrong = _wrong(os.fstat(handle))
    if wrong:
        os.close(handle)
        raise _refused(path, wrong)
    return handle


def new_file(path: Path) -> int:
    """Make a file that is not there, for this user alone, and open it to be written.

    Errors: OSError if the name is taken, also by a link.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
