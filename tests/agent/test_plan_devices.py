# SPDX-License-Identifier: MIT
"""Devices over others, file systems and QEMU's NVMe are refused when the plan is made."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from iolab_agent.plan import Device, FileSystem
from iolab_agent.plan_devices import check_devices
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError
from tests.support.plans import FOLDER, NAMED, null_blk_cell, plan_document

_A = Device("a", "null_blk", 64)
_B = Device("b", "null_blk", 64)
_SECTORS = 64 << 11
_KEY = "0f" * 32


def _dm(*lines: str, size_mib: int = 64, **different: Any) -> Device:
    return Device("made", "dm", size_mib, table="\n".join(lines), **different)


def _md(level: str = "raid1", size_mib: int = 64, **different: Any) -> Device:
    return Device("made", "md", size_mib, level=level, **{"members": ["a", "b"], **different})


@pytest.mark.parametrize(
    "device",
    [
        _dm(f"0 {_SECTORS} linear {{a}} 0"),
        _dm("0 100 linear {a} 0", f"100 {_SECTORS - 100} linear {{b}} 100"),
        _dm(f"0 {_SECTORS} striped 2 128 {{a}} 0 {{b}} 0"),
        _dm(f"0 {_SECTORS} delay {{a}} 0 5 {{b}} 0 10"),
        _dm(f"0 {_SECTORS} crypt aes-cbc-essiv:sha256 {_KEY} 0 {{a}} 0 1 no_read_workqueue"),
        _dm(f"0 {_SECTORS} thin-pool {{a}} {{b}} 128 0 1 skip_block_zeroing"),
        _dm(f"0 {_SECTORS} verity 1 {{a}} {{b}} 4096 4096 16384 0 sha256 {{root}} -"),
        _md(),
        _md("raid0", 128, chunk_kib=4),
    ],
)
def test_devices_over_others(device: Device) -> None:
    check_devices([_A, _B, device], None, "cell")
    assert set(device.beneath) <= {"a", "b"}


@pytest.mark.parametrize(
    ("device", "names"),
    [
        # Whatever names a device without being one of the cell.
        (_dm(f"0 {_SECTORS} linear /dev/sda 0"), "/dev/sda"),
        (_dm(f"0 {_SECTORS} linear 8:0 0"), "8:0"),
        (_dm(f"0 {_SECTORS} linear 0800 0"), "0800"),
        (_dm(f"0 {_SECTORS} linear {{../a}} 0"), "linear"),
        (_dm(f"0 {_SECTORS} thin {{a}} 7 8:0"), "thin"),
        (_dm(f"0 {_SECTORS} thin {{a}} 7"), "thin-pool"),
        (_dm(f"0 {_SECTORS} linear {{root}} 0"), "names no device"),
        (_dm(f"0 {_SECTORS} crypt aes-xts-plain64 :32:user:key 0 {{a}} 0"), "crypt"),
        (_dm(f"0 {_SECTORS} error"), "error"),
        (_dm(f"0 {_SECTORS} flakey {{a}} 0 1 1"), "flakey"),
        (_dm("linear {a} 0"), "START LENGTH"),
        (_dm(f"0 {_SECTORS - 1} linear {{a}} 0"), "ends at"),
        (_dm(f"8 {_SECTORS} linear {{a}} 0"), "begin at 0"),
        (_dm(f"0 {_SECTORS} linear {{c}} 0"), "'c'"),
        (_dm(f"0 {_SECTORS} linear {{made}} 0"), "'made'"),
        (Device("made", "dm", 64), "ends at 0"),
        (Device("made", "dm", 64, table=5), "text"),  # type: ignore[arg-type]
        (_dm(f"0 {_SECTORS} linear {{a}} 0", scheduler="bfq"), "scheduler"),
        (_dm(f"0 {_SECTORS} linear {{a}} 0", irqmode=2), "irqmode"),
        (_dm(f"0 {_SECTORS} linear {{a}} 0", members=["a"]), "members"),
        (Device("made", "null_blk", 64, table="x"), "table"),
        (_md("raid5"), "raid5"),
        (_md(members=["a"]), "two or more"),
        (_md(members=["a", "a"]), "two or more"),
        (_md(members=["a", 5]), "two or more"),
        (_md(members=["a", "c"]), "'c'"),
        (_md(size_mib=128), "64 MiB, not 128"),
        (_md("raid0", 128, chunk_kib=48), "chunk_kib"),
        (replace(_md(), name="m" * 21), "too long"),
        (Device("made", "nvme", 64), "memory_backed"),
        (Device("made", "nvme", 64, memory_backed=False, completion_ns=5), "completion_ns"),
        (Device("a-long-name-of-a-disk", "nvme", 64, memory_backed=False), "too long"),
    ],
)
def test_what_is_no_device_over_others(device: Device, names: str) -> None:
    with pytest.raises(UserError, match=names):
        check_devices([_A, _B, device], None, "cell")


def test_what_exists_already_is_not_taken_apart() -> None:
    disk = Device("a", "named", 64, path="/dev/sdz")
    with pytest.raises(UserError, match="devices that are made"):
        check_devices([disk, _dm(f"0 {_SECTORS} linear {{a}} 0")], None, "cell")


@pytest.mark.parametrize(
    ("filesystem", "devices", "names"),
    [
        (FileSystem("ntfs", "a"), [_A], "ntfs"),
        (FileSystem("btrfs", "a"), [_A], "110 MiB"),
        (FileSystem("xfs", "a"), [_A], "300 MiB"),
        (FileSystem("f2fs", "a"), [replace(_A, memory_backed=False)], "stores"),
        (FileSystem("tmpfs"), [_A], "no device"),
        (FileSystem("tmpfs", "a"), [], "no device"),
        (FileSystem("ext4"), [_A], "no device"),
    ],
)
def test_a_file_system_fits_its_device(
    filesystem: FileSystem, devices: list[Device], names: str
) -> None:
    with pytest.raises(UserError, match=names):
        check_devices(devices, filesystem, "cell")


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ({**FOLDER, "path": "srv"}, "'srv' is not an absolute path"),
        ({**FOLDER, "path": ""}, "'' is not an absolute path"),
        ({**FOLDER, "path": "/"}, "'/' is not an absolute path"),
        ({**FOLDER, "path": "/srv/../etc"}, "not an absolute path"),
        ({**FOLDER, "path": "/srv//x"}, "not an absolute path"),
        ({**FOLDER, "path": "/srv/\n"}, "not an absolute path"),
        ({**FOLDER, "path": 5}, "not an absolute path"),
        ({**FOLDER, "serial": "x"}, "a directory has no serial"),
        ({**FOLDER, "irqmode": 2}, "cannot be given irqmode"),
        ({**NAMED, "path": "/dev/../etc/passwd"}, "not an absolute path"),
        ({**NAMED, "path": "/etc/passwd"}, "not a device node"),
        ({**NAMED, "path": "/dev/$(x)"}, "not a device node"),
        ({**NAMED, "serial": ""}, "'' is not a serial number"),
        ({**NAMED, "serial": 5}, "5 is not a serial number"),
        ({**NAMED, "memory_backed": False}, "cannot be given memory_backed"),
        ({**NAMED, "kind": "zram"}, "a zram device has no path"),
        ({**NAMED, "kind": "loop", "path": "srv"}, "'srv' is not an absolute path"),
        ({**NAMED, "kind": "loop", "path": 0}, "0 is not an absolute path"),
        ({**NAMED, "kind": "loop", "path": "", "serial": "x"}, "a loop device has no serial"),
    ],
)
def test_a_real_device_is_checked(device: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        parse_plan(plan_document(null_blk_cell("cell", devices=[device], filesystem=None)))


def test_a_directory_stands_alone() -> None:
    more = {"name": "more", "kind": "loop", "size_mib": 64}
    for different in (
        {"devices": [FOLDER], "filesystem": {"kind": "xfs", "device": "data"}},
        {"devices": [FOLDER, more], "filesystem": None},
    ):
        with pytest.raises(UserError, match="a directory has its file system and no device beside"):
            parse_plan(plan_document(null_blk_cell("cell", **different)))
    watch = {"on": "node", "event": "attrib"}
    cell = null_blk_cell("cell", devices=[FOLDER], filesystem=None, watch=watch)
    with pytest.raises(UserError, match="a watch is for I/O on the device itself"):
        parse_plan(plan_document(cell))
