# SPDX-License-Identifier: MIT
"""Folders that another user can or cannot change, made for real (as root)."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iolab_agent import devices
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Device
from iolab_agent.trusted import resolved, trusted_folder
from iolab_base.errors import UserError
from tests.support.needs import needs, wants

pytestmark = needs("root")

_NOBODY = 65534


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A folder in a folder in a folder, all of them root's."""
    folder = tmp_path / "above" / "between" / "folder"
    folder.mkdir(parents=True)
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    return folder


def test_a_folder_of_roots_own_is_trusted_also_below_tmp(chain: Path, tmp_path: Path) -> None:
    assert trusted_folder(chain) == chain
    chain.parent.chmod(0o1777)
    assert trusted_folder(chain) == chain
    assert trusted_folder(chain.parent) == chain.parent
    link = tmp_path / "link"
    link.symlink_to(chain)
    assert trusted_folder(link) == chain


def _given_away(path: Path) -> None:
    os.chown(path, _NOBODY, -1)


def _for_a_group(path: Path) -> None:
    os.chown(path, -1, _NOBODY)
    path.chmod(0o775)


def _for_all(path: Path) -> None:
    path.chmod(0o777)


def _sticky_and_given_away(path: Path) -> None:
    path.chmod(0o1777)
    os.chown(path, _NOBODY, -1)


@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("change", [_given_away, _for_a_group, _for_all, _sticky_and_given_away])
def test_what_another_user_can_change_is_refused_wherever_it_is(
    chain: Path, tmp_path: Path, above: int, change: Callable[[Path], None]
) -> None:
    part = (chain, *chain.parents)[above]
    change(part)
    link = tmp_path / "link"
    link.symlink_to(chain)
    for path in (chain, link):
        with pytest.raises(UserError) as refused:
            trusted_folder(path)
        assert str(refused.value).startswith(f"{path} is refused, because another user could make")
        assert f"{part} belongs to user" in str(refused.value) or (
            f"{part} can be written by other users" in str(refused.value)
        )


def _link_of(user: int, path: Path, target: object) -> Path:
    path.symlink_to(str(target))
    os.chown(path, user, user, follow_symlinks=False)
    return path


def test_a_link_of_another_user_is_not_followed_wherever_it_is(chain: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    theirs = _link_of(_NOBODY, shared / "theirs", chain.parent)
    relative = _link_of(_NOBODY, shared / "relative", "../above/between")
    ours = _link_of(0, shared / "ours", theirs)
    for path in (
        theirs / "folder",
        relative / "folder",
        ours / "folder",
        shared / "ours/../between/folder",
        shared / "theirs/folder/../folder",
        theirs,
    ):
        with pytest.raises(UserError, match=f"is a link of user {_NOBODY}"):
            trusted_folder(path)
        with pytest.raises(UserError, match=f"is a link of user {_NOBODY}"):
            resolved(path)
    _link_of(0, shared / "root's", "../above/./between")
    assert trusted_folder(shared / "root's/folder") == chain
    assert trusted_folder(shared / "root's/../between/folder") == chain


def test_what_leads_to_a_disk_is_no_other_users_but_the_disk_may_be(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    os.mknod(disk, 0o600 | stat.S_IFBLK, os.makedev(7, 0))
    os.chown(disk, _NOBODY, -1)
    assert resolved(_link_of(0, tmp_path / "ours", "disk")) == disk
    with pytest.raises(UserError, match="is a link of user"):
        resolved(_link_of(_NOBODY, tmp_path / "theirs", "disk"))


def test_an_access_list_counts(chain: Path) -> None:
    # As setfacl -m u:65534:rwx: owner, the user, group, mask and others (posix_acl_xattr.h).
    none = 0xFFFFFFFF
    entries = [(1, 7, none), (2, 7, _NOBODY), (4, 5, none), (0x10, 7, none), (0x20, 5, none)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    with wants("a file system with access lists", OSError):
        os.setxattr(chain, "system.posix_acl_access", value)
    with pytest.raises(UserError, match="can be written by other users"):
        trusted_folder(chain)


def test_what_is_no_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="file is not a directory on the measured machine"):
        trusted_folder(tmp_path / "file")
    for name, words in (("absent", "No such file or directory"), ("loop", "symbolic links")):
        with pytest.raises(UserError, match=f"{name} cannot be used: .*{words}"):
            trusted_folder(tmp_path / name)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = Journal(tmp_path / "run" / "journal")
    try:
        yield found
    finally:
        found.close()
        restore(found.path)


def test_a_planted_link_is_not_followed(
    chain: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = chain / "victim"
    victim.write_text("root's own")

    def attacked(parent: Path) -> Path:
        """Make the folder, and win the race for the name in it."""
        folder = parent / "iolab-folder"
        folder.mkdir()
        (folder / "data.img").symlink_to(victim)
        return folder

    monkeypatch.setattr(devices, "make_folder", attacked)
    device = Device(name="data", kind="loop", size_mib=16, path=str(chain))
    with pytest.raises(FileExistsError):
        devices.make_device(journal, device, {})
    assert victim.read_text() == "root's own"
