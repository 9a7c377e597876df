# SPDX-License-Identifier: MIT
"""File systems and folders that are made for a cell, on disks of this machine.

XFS as a virtual machine makes it is tested there (tests/targets/test_fresh_xfs.py).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from iolab_agent import filesystem
from iolab_agent.filesystem import (
    make_filesystem,
    make_folder,
    make_tmpfs,
    mount_kernels,
)
from iolab_agent.journal import Journal, pending, restore
from iolab_agent.plan import FileSystem
from iolab_agent.proc import mounts
from iolab_base.errors import CannotRunError
from iolab_base.process import CommandError
from tests.support.needs import lack, needs

_MOUNT = needs("root", "mount", "umount")
_EXT4 = needs("root", "mkfs.ext4", "mount", "umount")


def _told(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def ext4_disk(disk: Path) -> Path:
    """A disk that an ext4 can be made on, for a kernel that has it."""
    if "ext4" not in Path("/proc/filesystems").read_text().split():
        lack("ext4 in the kernel")
    return disk


def test_a_folder_is_private_and_goes_with_all_that_is_in_it(tmp_path: Path, files: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    made = [make_folder(parent), make_folder(parent)]
    assert sorted(parent.iterdir()) == sorted(made)
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}
    (made[0] / "deep").mkdir()
    (made[0] / "deep" / "file").touch()
    (parent / "mine").touch()
    assert restore(files) == []
    assert [path.name for path in parent.iterdir()] == ["mine"]


def test_no_folder_is_made_behind_a_link(tmp_path: Path, files: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    link = tmp_path / "link"
    link.symlink_to(parent)
    for wrong in (link, tmp_path / "absent"):
        with pytest.raises(OSError, match=wrong.name):
            make_folder(wrong)
    assert list(parent.iterdir()) == []
    assert restore(files) == []


@_MOUNT
def test_a_tmpfs_holds_half_of_the_memory_and_goes_with_its_folder(
    tmp_path: Path, journal: Journal
) -> None:
    folder = tmp_path / "a" / "mnt"
    make_tmpfs(journal, folder)
    assert folder in dict(mounts("tmpfs"))
    told = os.statvfs(folder)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert told.f_blocks * told.f_frsize == pytest.approx(memory / 2, rel=0.05)
    (folder / "file").touch()
    assert restore(journal.path) == []
    assert not folder.exists()


@_MOUNT
def test_what_the_kernel_does_not_know_is_not_mounted(tmp_path: Path, journal: Journal) -> None:
    folder = tmp_path / "mnt"
    folder.mkdir()
    with pytest.raises(CommandError, match="no_such_kind"):
        mount_kernels(journal, "no_such_kind", folder)
    assert not folder.is_mount()


@_EXT4
@pytest.mark.parametrize("stored", [True, False])
def test_an_ext4_is_mounted_and_gone_after(
    tmp_path: Path, journal: Journal, ext4_disk: Path, stored: bool
) -> None:
    folder = tmp_path / "mnt"
    asked = FileSystem("ext4", "data", mount=["noatime"])
    make_filesystem(journal, asked, {"data": ext4_disk}, folder, stored=stored)
    assert _told("stat", "-f", "-c", "%T", folder) == "ext2/ext3"
    options = dict(mounts("ext4"))[folder]
    assert {"rw", "noatime"} <= set(options)
    told = os.statvfs(folder)
    # Metadata that stay in the page cache have few inodes, and blocks of a page.
    assert ((told.f_bsize, told.f_files) == (4096, 64)) is not stored
    assert restore(journal.path) == []
    assert not folder.exists()
    assert folder not in dict(mounts("ext4"))


@_EXT4
def test_arguments_of_mkfs_are_passed_on(tmp_path: Path, journal: Journal, ext4_disk: Path) -> None:
    asked = FileSystem("ext4", "data", mkfs=["-N", "160"])
    make_filesystem(journal, asked, {"data": ext4_disk}, tmp_path / "mnt")
    assert os.statvfs(tmp_path / "mnt").f_files == 160


@_EXT4
def test_what_is_not_mounted_after_all_is_a_reason(
    tmp_path: Path, journal: Journal, ext4_disk: Path
) -> None:
    asked = FileSystem("ext4", "data", mount=["no_such_option"])
    with pytest.raises(CannotRunError, match="ext4"):
        make_filesystem(journal, asked, {"data": ext4_disk}, tmp_path / "mnt")
    assert restore(journal.path) == []
    assert not (tmp_path / "mnt").exists()


def test_a_machine_without_mkfs_is_left_as_it_is(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRunError, match="f2fs"):
        make_filesystem(journal, FileSystem("f2fs", "data"), {}, tmp_path / "mnt")
    assert pending(journal.path) == []
    assert not (tmp_path / "mnt").exists()


@needs("root")
def test_the_shape_of_a_disk_is_that_of_blockdev(disk: Path) -> None:
    told = _told("blockdev", "--getsize64", "--getpbsz", disk).split()
    assert [*map(str, filesystem._shape(disk))] == told
    assert told[0] == str(16 << 20)


def test_of_a_file_with_holes_the_pages_with_data_are_copied() -> None:
    size = 5 << 20
    handle = filesystem._empty_file(size)
    try:
        assert list(filesystem._written(handle, size)) == []
        # Zeros that are written are data to lseek, and not to a disk of zeros.
        for offset, data in ((0, b"a"), (2 << 20, bytes(1 << 20)), (size - 4097, b"bc")):
            os.pwrite(handle, data, offset)
        found = dict(filesystem._written(handle, size))
    finally:
        os.close(handle)
    assert sorted(found) == [0, size - 8192, size - 4096]
    assert found[0] == b"a".ljust(4096, b"\0")
    assert found[size - 8192] == b"b".rjust(4096, b"\0")
    assert found[size - 4096] == b"c".ljust(4096, b"\0")
