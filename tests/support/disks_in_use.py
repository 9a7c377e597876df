# SPDX-License-Identifier: MIT
"""Runs on a server: disks that something holds or that hold something, and what the agent says.

``python3 disks_in_use.py FOLDER`` beside ``agent.pyz`` prints a JSON object: for each case what
`open_free` refuses the disk for, without and with its serial number ("" if it does not), and
whether each byte of it is as before. The disks are loop devices on files in the folder.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import struct
import subprocess
import sys
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("agent.pyz")))

from iolab_agent import named
from iolab_agent.named import open_free
from iolab_base.errors import IolabError

_MIB = 24
_SERIAL = "S3RIAL"
# struct dm_ioctl and dm_target_spec of include/uapi/linux/dm-ioctl.h.
_DM = struct.Struct("=3I 2I I i I I I Q 128s 129s 7s")
_DM_TARGET = struct.Struct("=QQiI16s")
_DM_CREATE, _DM_REMOVE, _DM_RESUME, _DM_LOAD = 3, 4, 6, 9
_SECTOR = 512
# First sector and number of sectors of each partition.
_PARTS = ((2048, 8192), (16384, 8192))
_LINUX = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")


def _run(*argv: object) -> None:
    words = [str(word) for word in argv]
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def _loop(folder: Path, name: str) -> Iterator[Path]:
    image = folder / name
    with image.open("wb") as stream:
        stream.truncate(_MIB << 20)
    argv = ["losetup", "--find", "--show", "--partscan", str(image)]
    node = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield Path(node)
    finally:
        _run("losetup", "-d", node)
        image.unlink()


@contextmanager
def _mounted(node: Path, folder: Path) -> Iterator[None]:
    """Mount a disk, read-only: ext4 writes to one that it may write to when it likes."""
    place = folder / "mounted"
    place.mkdir(exist_ok=True)
    _run("mount", "-o", "ro", node, place)
    try:
        yield
    finally:
        _run("umount", place)


@contextmanager
def _swap(node: Path) -> Iterator[None]:
    _run("mkswap", node)
    _run("swapon", node)
    try:
        yield
    finally:
        _run("swapoff", node)


def _dm(command: int, name: str, table: bytes = b"") -> None:
    """Tell the device mapper one thing (ioctl(2) on /dev/mapper/control)."""
    size = _DM.size + len(table)
    version = (4, 0, 0)
    head = _DM.pack(*version, size, _DM.size, bool(table), 0, 0, 0, 0, 0, name.encode(), b"", b"")
    told = ctypes.create_string_buffer(head + table, size)
    with Path("/dev/mapper/control").open("rb") as control:
        fcntl.ioctl(control, 0xC0000000 | _DM.size << 16 | 0xFD << 8 | command, told, True)


@contextmanager
def _mapped(node: Path) -> Iterator[None]:
    """Make a logical volume on a disk, as lvm does: a linear target of the device mapper."""
    _run("modprobe", "dm_mod")
    words = f"{node} 0\0".encode()
    words += bytes(-len(words) % 8)
    name = "iolab-held"
    _dm(_DM_CREATE, name)
    try:
        spec = _DM_TARGET.pack(0, 2048, 0, _DM_TARGET.size + len(words), b"linear")
        _dm(_DM_LOAD, name, spec + words)
        _dm(_DM_RESUME, name)
        yield
    finally:
        _dm(_DM_REMOVE, name)


@contextmanager
def _array(node: Path, other: Path) -> Iterator[None]:
    """Assemble an array of two disks, as mdadm does without a superblock (Documentation/md.rst)."""
    _run("modprobe", "raid1")
    Path("/sys/module/md_mod/parameters/new_array").write_text("md127")
    md = Path("/sys/block/md127/md")
    try:
        for name, value in (("metadata_version", "none"), ("level", "raid1"), ("raid_disks", "2")):
            (md / name).write_text(value)
        for slot, disk in enumerate((node, other)):
            number = disk.stat().st_rdev
            (md / "new_dev").write_text(f"{os.major(number)}:{os.minor(number)}")
            (md / f"dev-{disk.name}" / "size").write_text(str((_MIB - 1) << 10))
            (md / f"dev-{disk.name}" / "slot").write_text(str(slot))
        (md / "array_state").write_text("readonly")
        yield
    finally:
        (md / "array_state").write_text("clear")


def _look(node: Path, path: Path | None = None) -> dict[str, object]:
    """Ask for a disk, without and with its serial number, and compare its bytes."""
    os.sync()
    before = hashlib.sha256(node.read_bytes()).hexdigest()
    found: dict[str, object] = {}
    for word, serial in (("plain", None), ("serial", _SERIAL)):
        try:
            os.close(open_free(path or node, serial))
            found[word] = ""
        except IolabError as error:
            found[word] = str(error)
    os.sync()
    return {**found, "same": hashlib.sha256(node.read_bytes()).hexdigest() == before}


def _mbr(kind: int, parts: Sequence[tuple[int, int]]) -> bytes:
    entries = b"".join(struct.pack("<4xB3xII", kind, *part) for part in parts)
    return bytes(446) + entries.ljust(64, b"\0") + b"\x55\xaa"


def _gpt() -> bytes:
    """Return a GUID partition table (UEFI 2.10, 5.3) in front of a disk; it lacks the copy."""
    last = (_MIB << 20) // _SECTOR - 1
    entries = b"".join(
        _LINUX.bytes_le
        + uuid.uuid4().bytes_le
        + struct.pack("<QQQ72s", first, first + sectors - 1, 0, b"")
        for first, sectors in _PARTS
    ).ljust(128 * 128, b"\0")

    def header(checksum: int) -> bytes:
        head = struct.pack(
            "<8sIIIIQQQQ", b"EFI PART", 1 << 16, 92, checksum, 0, 1, last, 34, last - 33
        )
        return (
            head
            + uuid.uuid5(_LINUX, "").bytes_le
            + struct.pack("<QIII", 2, 128, 128, zlib.crc32(entries))
        )

    whole = header(zlib.crc32(header(0)))
    return _mbr(0xEE, [(1, last)]) + whole.ljust(_SECTOR, b"\0") + entries


def _parted(node: Path, label: str) -> Path:
    with node.open("r+b") as disk:
        disk.write(_gpt() if label == "gpt" else _mbr(0x83, _PARTS))
    _run("blockdev", "--rereadpt", node)
    _run("udevadm", "settle")
    return Path(f"{node}p1")


def main(folder: Path) -> dict[str, object]:
    """Return what was said in each case."""
    vars(named)["serials"] = lambda node: {_SERIAL}
    found: dict[str, object] = {}
    for label in ("gpt", "dos"):
        with _loop(folder, label) as disk:
            part = _parted(disk, label)
            found[f"{label} table"] = _look(disk)
            found[f"{label} partition"] = _look(part)
            _run("mkfs.ext4", "-q", "-F", part)
            with _mounted(part, folder):
                found[f"{label} parent of a mounted partition"] = _look(disk)
                found[f"{label} mounted partition"] = _look(part)
                found[f"{label} beside a mounted partition"] = _look(Path(f"{disk}p2"))
            _run("partx", "-d", disk)
    with _loop(folder, "whole") as disk:
        _run("mkfs.ext4", "-q", "-F", disk)
        with _mounted(disk, folder):
            _run("addpart", disk, 1, 2048, 8192)
            _run("udevadm", "settle")
            found["partition of a mounted parent"] = _look(Path(f"{disk}p1"))
            _run("delpart", disk, 1)
    with _loop(folder, "swap") as disk, _swap(disk):
        found["swap"] = _look(disk)
    with _loop(folder, "held") as disk, _mapped(disk):
        found["held by the device mapper"] = _look(disk)
        link = folder / "odd 'name'\n-"
        link.symlink_to(disk)
        found["held, by an odd path"] = _look(disk, link)
    with _loop(folder, "one") as disk, _loop(folder, "two") as other, _array(disk, other):
        found["in an array"] = _look(disk)
    with _loop(folder, "free") as disk:
        found["free"] = _look(disk)
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
