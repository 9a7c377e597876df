# SPDX-License-Identifier: MIT
"""Refuse folders and files through which another user could redirect root's reads and writes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iolab_base.errors import UserError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# The kernel's limit (MAXSYMLINKS of include/linux/namei.h).
_MOST_LINKS = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def trusted_folder(path: Path) -> Path:
    """Return the canonical path of a folder that no other user can redirect, else UserError.

    In a folder with the sticky bit, such as /tmp, others cannot rename root's files. `path` is
    absolute, and may be a link.
    """
    folder = resolved(path)
    if not folder.is_dir():
        raise UserError(f"{path} is not a directory on the measured machine")
    _check_part(path, folder)
    return folder


def resolved(path: Path) -> Path:
    """Return an absolute path without links, if no other user can redirect them, else UserError.

    The file or device at its end may belong to anybody.
    """
    at, ahead, links = Path("/"), list(reversed(path.parts[1:])), 0
    try:
        while ahead:
            # From the root on: below a trusted folder, nobody else can replace what was checked.
            _check_part(path, at)
            part = ahead.pop()
            if part == "..":
                at = at.parent
                continue
            status = (at / part).lstat()
            if not stat.S_ISLNK(status.st_mode):
                at /= part
                continue
            if status.st_uid not in (0, os.geteuid()):
                raise _redirected(path, at / part, f"is a link of user {status.st_uid}")
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = (at / part).readlink()
            at = Path("/") if target.is_absolute() else at
            ahead += reversed([name for name in target.parts if name != "/"])
    except OSError as error:
        raise UserError(f"{path} cannot be used: {error.strerror}") from error
    return at


def _check_part(path: Path, folder: Path) -> None:
    """Check that no other user can change the names in a folder on a path."""
    status = folder.lstat()
    if status.st_uid not in (0, os.geteuid()):
        raise _redirected(path, folder, f"belongs to user {status.st_uid}")
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise _redirected(path, folder, "can be written by other users")


def _redirected(path: Path, part: Path, fault: str) -> UserError:
    return UserError(
        f"{path} is refused, because another user could make root write elsewhere: {part} "
        f"{fault}; name one that belongs to root, with only such folders and links above it"
    )


def _fault(status: os.stat_result) -> str:
    """Return why a file or folder is not private to this user, or ""."""
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    return "can be written by other users" if status.st_mode & _OTHERS_WRITE else ""


def _refused(path: Path, fault: str) -> UserError:
    return UserError(f"{path} {fault}, so nothing in it is used: find out why, then remove it")


def _make(path: Path, mode: int) -> None:
    if not path.is_dir():
        _make(path.parent, 0o755)
        path.mkdir(mode=mode, exist_ok=True)


@contextmanager
def private_folder(path: Path, *, make: bool = False) -> Iterator[int]:
    """Open a folder that only this user can enter, for the duration of a ``with`` block.

    Its mode becomes 0700, whatever the umask. `make` also makes the folders above it. Raises
    UserError if it is a link, belongs to another user, or can be written by others; OSError if it
    is missing.
    """
    if make:
        _make(path, 0o700)
    if path.is_symlink():
        raise _refused(path, "is a link")
    handle = os.open(path, _FOLDER)
    try:
        fault = _fault(os.fstat(handle))
        if fault:
            raise _refused(path, fault)
        os.fchmod(handle, 0o700)
        yield handle
    finally:
        os.close(handle)


def check_private(path: Path) -> None:
    """Check that a folder, if it exists, is private; errors as `private_folder`."""
    with suppress(FileNotFoundError), private_folder(path):
        pass


def open_private(path: Path, flags: int) -> int:
    """Open a file in a private folder; O_CREAT in `flags` makes both if missing.

    Raises UserError if either is a link, belongs to another user, or can be written by others.
    """
    with private_folder(path.parent, make=bool(flags & os.O_CREAT)) as folder:
        with suppress(FileNotFoundError):
            status = os.lstat(path.name, dir_fd=folder)
            if not stat.S_ISREG(status.st_mode):
                link = stat.S_ISLNK(status.st_mode)
                raise _refused(path, "is a link" if link else "is not a regular file")
        handle = os.open(path.name, flags | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    fault = _fault(os.fstat(handle))
    if fault:
        os.close(handle)
        raise _refused(path, fault)
    return handle


def new_file(path: Path) -> int:
    """Make a file with mode 0600 and open it for writing; OSError if the name is taken."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
