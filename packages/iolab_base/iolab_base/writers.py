# SPDX-License-Identifier: MIT
"""Refuse a folder whose programs another user could replace."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from iolab_base.errors import UserError


def refuse_writers(folder: Path) -> None:
    """Raise UserError if another user owns or can write a folder, or a folder above it.

    Missing folders are not checked. A folder above may have the sticky bit, like /tmp: nobody can
    rename another user's files there. A user's private group counts as that user. Links are
    followed, and must be one's own, too. In a user namespace, the folders above may belong to a
    user that it does not know.
    """
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - links are looked at, not followed
    for path in (absolute, absolute.resolve()):
        # From the root on: below a folder of ours, nobody else can replace what was checked.
        for part in (*reversed(path.parents), path):
            try:
                status = part.lstat()
            except FileNotFoundError:
                break
            except OSError as error:
                raise UserError(f"{folder} cannot be used: {part}: {error.strerror}") from error
            if fault := _fault(status, last=part == path):
                raise UserError(
                    f"{folder} is not used, because another user could change the programs in it: "
                    f"{part} {fault}"
                )


def _fault(status: os.stat_result, *, last: bool) -> str:
    if status.st_uid not in _own_users() and (last or status.st_uid != _outside_user()):
        return (
            f"belongs to user {status.st_uid}; set XDG_CACHE_HOME to a folder of your own, or "
            "remove this one"
        )
    if stat.S_ISLNK(status.st_mode) or (status.st_mode & stat.S_ISVTX and not last):
        return ""
    others = status.st_mode & stat.S_IWOTH
    if others or (status.st_mode & stat.S_IWGRP and not _is_private_group(status)):
        return "can be written by others; check its contents, then `chmod go-w` it"
    return ""


def _own_users() -> set[int]:
    """Return root, this user and, for root under sudo, the user who called it."""
    found = {0, os.geteuid()}
    sudo = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and sudo.isdecimal():
        found.add(int(sudo))
    return found


def _outside_user() -> int | None:
    """Return the id that users outside this user namespace have in it, as in a container.

    The machine's root is one of them: the root folder of a rootless container may be its own.
    """
    try:
        inside, outside, count = Path("/proc/self/uid_map").read_text().split()[:3]
        if (inside, outside) == ("0", "0") and int(count) == (1 << 32) - 1:
            return None
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return None


def _is_private_group(status: os.stat_result) -> bool:
    """Return whether the group has only the owner: root's, or one as Debian makes for each user."""
    if status.st_gid == 0:
        return True
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    alone = group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}
    return alone and owner.pw_gid == status.st_gid
