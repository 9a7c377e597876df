# SPDX-License-Identifier: MIT
"""Which disks may be overwritten, asked of real ones: loop devices, and the one we run from."""

from __future__ import annotations

import os
import re
import stat
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iolab_agent import named
from iolab_agent.journal import Journal, restore
from iolab_agent.named import (
    DeviceInUseError,
    beneath,
    check_size,
    disk_of,
    identity_of,
    node_of,
    open_free,
)
from iolab_base.errors import CannotRunError
from tests.base.test_files import small_disk
from tests.support.loops import digest, loop_device
from tests.support.needs import lack, need, needs, wants

_MIB = 16


def check_free(node: Path, serial: str | None) -> None:
    os.close(open_free(node, serial))


def _make_ext4(node: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", node], check=True)


def test_an_empty_disk_is_free(disk: Path) -> None:
    check_free(disk, None)
    check_size(disk, _MIB)
    assert disk_of(disk) == disk
    with pytest.raises(CannotRunError, match="smaller than the 17 MiB"):
        check_size(disk, _MIB + 1)


def test_a_disk_with_something_on_it_is_refused(disk: Path) -> None:
    _make_ext4(disk)
    with pytest.raises(DeviceInUseError, match=r"holds a signature \(ext4\); wipe it yourself"):
        check_free(disk, None)
    with pytest.raises(DeviceInUseError, match="is not the serial number"):
        check_free(disk, "")
    subprocess.run(["mkswap", disk], check=True, capture_output=True)
    with pytest.raises(DeviceInUseError, match=r"holds a signature \(swap\)"):
        check_free(disk, None)
    subprocess.run(["wipefs", "-q", "-a", disk], check=True)
    with pytest.raises(DeviceInUseError, match="holds data without a signature"):
        check_free(disk, None)


def test_a_typed_serial_number_allows_to_lose_what_is_there(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A loop device has no serial number, and this machine no spare disk that has one.
    monkeypatch.setattr(named, "serials", lambda node: {"S3RIAL"})
    _make_ext4(disk)
    with pytest.raises(DeviceInUseError, match="type its serial number"):
        check_free(disk, None)
    with pytest.raises(DeviceInUseError, match="'S3RIA' is not the serial number"):
        check_free(disk, "S3RIA")
    check_free(disk, "S3RIAL")


def test_a_disk_in_use_is_refused_whatever_is_typed(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "serials", lambda node: {"S3RIAL"})
    _make_ext4(disk)
    folder = tmp_path / "mounted"
    folder.mkdir()
    subprocess.run(["mount", disk, folder], check=True)
    try:
        assert beneath(folder) == disk
        with pytest.raises(DeviceInUseError, match="is in use"):
            check_free(disk, "S3RIAL")
    finally:
        subprocess.run(["umount", folder], check=True)
    handle = os.open(disk, os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(DeviceInUseError, match="is in use"):
            check_free(disk, "S3RIAL")
    finally:
        os.close(handle)
    check_free(disk, "S3RIAL")


def test_the_disk_that_we_run_from_is_refused() -> None:
    with wants("a disk beneath /"):
        root = beneath(Path("/"))
    with pytest.raises(DeviceInUseError, match="is in use"):
        check_free(root, None)


def test_what_is_no_disk_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeviceInUseError, match="is not a block device"):
        check_free(tmp_path / "file", None)
    with pytest.raises(DeviceInUseError, match="No such file"):
        check_free(tmp_path / "absent", None)
    none = pytest.raises(CannotRunError, match="has no block device of its own")
    with small_disk(tmp_path / "memory", "64k") as memory, none:
        beneath(memory)


def test_what_was_made_on_a_disk_is_wiped_but_not_on_another(disk: Path, tmp_path: Path) -> None:
    _make_ext4(disk)
    for identity in ("0 1", identity_of(disk)):
        journal = Journal(tmp_path / "journal")
        journal.note("wipe", str(disk), identity)
        journal.close()
        with pytest.raises(DeviceInUseError, match="ext4"):
            check_free(disk, None)
        assert restore(tmp_path / "journal") == []
    check_free(disk, None)


@pytest.mark.parametrize("offset", [0, (1 << 20) - 1, (_MIB - 1) << 20, (_MIB << 20) - 1])
def test_data_without_a_signature_is_not_overwritten(
    disk: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    with disk.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"x")
    before = digest(disk)
    with pytest.raises(DeviceInUseError, match="holds data without a signature"):
        check_free(disk, None)
    monkeypatch.setattr(named, "serials", lambda node: {"S3RIAL"})
    check_free(disk, "S3RIAL")
    assert digest(disk) == before


@needs("addpart")
def test_an_empty_partition_is_free_and_its_disk_is_not(
    disk: Path, request: pytest.FixtureRequest
) -> None:
    # An MBR with a partition of 8 MiB behind the first one.
    entry = struct.pack("<8xII", 2048, 16384)
    with disk.open("r+b") as stream:
        stream.write(bytes(446) + entry[:4] + b"\x83" + entry[5:] + bytes(48) + b"\x55\xaa")
    # Not every kernel reads such tables itself; one that does may have made it already.
    subprocess.run(["addpart", disk, "1", "2048", "16384"], check=False)
    part = Path(f"{disk}p1")
    number = (Path("/sys/class/block") / part.name / "dev").read_text().split(":")
    if not part.exists():
        # A container's /dev is filled by nobody.
        request.addfinalizer(part.unlink)
        os.mknod(part, 0o600 | stat.S_IFBLK, os.makedev(*map(int, number)))
    before = digest(disk)
    assert node_of(part) == part
    check_free(part, None)
    with pytest.raises(DeviceInUseError, match=rf"holds partitions \({part.name}\)"):
        check_free(disk, None)
    # Held as a whole by one, a part of it is in use.
    handle = open_free(part, None)
    try:
        with pytest.raises(DeviceInUseError, match="is in use"):
            check_free(disk, None)
    finally:
        os.close(handle)
    assert digest(disk) == before
    _make_ext4(part)
    with pytest.raises(DeviceInUseError, match=r"holds a signature \(ext4\)"):
        check_free(part, None)


@contextmanager
def _attached(backing: Path) -> Iterator[Path]:
    """Attach a loop device to a file or a device that is there."""
    argv = ["losetup", "--find", "--show", str(backing)]
    node = subprocess.run(argv, capture_output=True, check=True).stdout.decode().strip()
    try:
        yield Path(node)
    finally:
        subprocess.run(["losetup", "-d", node], check=True)


@contextmanager
def _formatted(image: Path, mib: int, *argv: str) -> Iterator[Path]:
    """Make a disk with a file system whose first MiB is overwritten by zeros."""
    need(argv[0])
    with loop_device(image, mib) as node:
        subprocess.run([*argv, node], check=True, capture_output=True)
        with node.open("r+b") as stream:
            stream.write(bytes(1 << 20))
        yield node


@pytest.mark.parametrize(
    ("mib", "argv"),
    [
        (64, ["mkfs.ext4", "-q", "-F", "-b", "1024"]),
        (96, ["mkfs.ext4", "-q", "-F", "-b", "2048"]),
        (300, ["mkfs.ext4", "-q", "-F", "-b", "4096"]),
        (300, ["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "sparse_super2"]),
        (64, ["mkfs.ext2", "-q", "-F", "-b", "1024"]),
        (300, ["mkfs.xfs", "-q", "-f", "-d", "agcount=4"]),
    ],
)
def test_a_file_system_whose_begin_is_lost_is_not_overwritten_but_wiped_after_ours(
    tmp_path: Path, mib: int, argv: list[str]
) -> None:
    with _formatted(tmp_path / "image", mib, *argv) as node:
        before = digest(node)
        with pytest.raises(DeviceInUseError, match="holds a copy of a signature"):
            check_free(node, None)
        assert digest(node) == before
        named.wipe(node)
        check_free(node, None)


@pytest.mark.parametrize(
    ("offset", "magic", "kind"),
    [
        ((64 << 20) + 0x40, b"_BHRfS_M", "copy of a signature (btrfs)"),
        # As mkfs.xfs divides 70 MiB.
        (2 * 4480 * 4096, b"XFSB", "copy of a signature (xfs)"),
        # What blkid finds itself.
        (2 << 20, b"SKUL\xba\xbe", "signature (crypto_LUKS)"),
    ],
)
def test_a_copy_of_what_was_at_the_begin_is_found(
    tmp_path: Path, offset: int, magic: bytes, kind: str
) -> None:
    with loop_device(tmp_path / "image", 70) as node:
        with node.open("r+b") as stream:
            stream.seek(offset)
            stream.write(magic)
        with pytest.raises(DeviceInUseError, match=re.escape(kind)):
            check_free(node, None)
        named.wipe(node)
        check_free(node, None)


def test_a_disk_whose_contents_are_anothers_too_is_in_use_whatever_is_typed(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "serials", lambda node: {"S3RIAL"})

    for backing in (disk, tmp_path / "image"):
        with _attached(backing) as other:
            before = digest(disk)
            for node in (disk, other):
                for serial in (None, "S3RIAL"):
                    with pytest.raises(DeviceInUseError, match="is in use"):
                        check_free(node, serial)
            assert digest(disk) == before
    check_free(disk, None)


@needs("addpart")
def test_a_partition_is_in_use_by_what_is_on_it_or_on_its_disk_alone(
    disk: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []
    for number, first in ((1, 2048), (2, 16384)):
        made = ["addpart", str(disk), str(number), str(first), "8192"]
        if subprocess.run(made, capture_output=True, check=False).returncode:
            lack("partitions of a loop device")
        parts.append(Path(f"{disk}p{number}"))
        if not parts[-1].exists():
            text = (Path("/sys/class/block") / parts[-1].name / "dev").read_text()
            request.addfinalizer(parts[-1].unlink)
            os.mknod(parts[-1], 0o600 | stat.S_IFBLK, os.makedev(*map(int, text.split(":"))))
    monkeypatch.setattr(named, "serials", lambda node: {"S3RIAL"})
    with _attached(parts[0]):
        for node in (parts[0], disk):
            with pytest.raises(DeviceInUseError, match="is the backing file of"):
                check_free(node, "S3RIAL")
        check_free(parts[1], "S3RIAL")
    check_free(parts[0], "S3RIAL")


def _luks(version: int) -> bytes:
    return b"LUKS\xba\xbe" + struct.pack(">H", version) + bytes(4088)


def _lvm() -> bytes:
    """Return the label of an LVM physical volume, in the disk's second sector."""
    behind = struct.pack("<I8s", 32, b"LVM2 001").ljust(512 - 20, b"\0")
    # LVM's CRC begins with a number of its own, and is not inverted.
    crc = zlib.crc32(behind, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    return bytes(512) + b"LABELONE" + struct.pack("<QI", 1, crc) + behind


def _md() -> bytes:
    """Return the superblock of a member of a RAID, version 1.2: 4 KiB behind the disk's begin."""
    block = bytearray(256)
    struct.pack_into("<II", block, 0, 0xA92B4EFC, 1)
    struct.pack_into("<Q", block, 144, 8)
    total = sum(struct.unpack("<64I", block))
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32))
    return bytes(4096) + block


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (_luks(1), "crypto_LUKS"),
        (_luks(2), "crypto_LUKS"),
        (_lvm(), "LVM2_member"),
        (_md(), "linux_raid_member"),
    ],
    ids=["LUKS 1", "LUKS 2", "LVM", "md"],
)
def test_a_part_of_something_that_is_not_at_work_is_refused(
    disk: Path, tmp_path: Path, written: bytes, kind: str
) -> None:
    with disk.open("r+b") as stream:
        stream.write(written)
    before = digest(disk)
    link = tmp_path / "odd 'name'\n-"
    link.symlink_to(disk)
    for path in (disk, link):
        with pytest.raises(DeviceInUseError, match=rf"holds a signature \({kind}\)"):
            check_free(path, None)
    assert digest(disk) == before


def _swapped(disk: Path) -> list[str]:
    subprocess.run(["mkswap", disk], check=True, capture_output=True)
    need("swapoff")
    _or_skip("swapon", str(disk))
    return ["swapoff", str(disk)]


def _mapped(disk: Path) -> list[str]:
    name = f"iolab-test-{os.getpid()}"
    table = f"0 2048 linear {disk} 0"
    _or_skip("dmsetup", "create", "--noudevrules", "--noudevsync", name, "--table", table)
    return ["dmsetup", "remove", "--noudevrules", "--noudevsync", name]


def _or_skip(*argv: str) -> None:
    need(argv[0])
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    if made.returncode:
        lack(f"a kernel that allows {argv[0]}", made.stderr.strip())


@pytest.mark.parametrize("use", [_swapped, _mapped])
def test_a_disk_that_the_kernel_holds_is_refused(
    disk: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], list[str]]
) -> None:
    monkeypatch.setattr(named, "serials", lambda node: {"S3RIAL"})
    undo = use(disk)
    try:
        before = digest(disk)
        with pytest.raises(DeviceInUseError, match="is in use"):
            check_free(disk, "S3RIAL")
        assert digest(disk) == before
    finally:
        subprocess.run(undo, check=True, capture_output=True)
    check_free(disk, "S3RIAL")


def test_the_kernel_names_the_node(disk: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(disk)
    other = tmp_path / "other"
    os.mknod(other, 0o600 | stat.S_IFBLK, disk.stat().st_rdev)
    assert node_of(link) == node_of(other) == disk
