# SPDX-License-Identifier: MIT
"""Checks of the devices and the file system of a plan's cell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from iolab_agent.plan import Device, FileSystem, stored_by
from iolab_agent.plan_values import (
    as_list,
    check,
    check_flags,
    check_numbers,
    check_values,
    is_name,
    is_one_of,
    is_path,
    is_text,
)
from iolab_base.errors import UserError

_NODE = re.compile(r"/dev/[A-Za-z0-9._:+@=/-]{1,200}")
_KINDS = {"null_blk", "scsi_debug", "loop", "zram", "brd", "nvme", "dm", "md"}
_KINDS |= {"named", "directory"}
# Fields of devices that are made.
_OF_MADE = ("memory_backed", "irqmode", "completion_ns", "queue_depth", "rotational", "integrity")
# CFQ needs a single queue, which null_blk had as long as the kernel had CFQ.
_SCHEDULERS = {"none", "mq-deadline", "bfq", "kyber", "cfq"}
_FILE_SYSTEMS = {"xfs", "ext4", "btrfs", "f2fs", "tmpfs"}
# Those that read their metadata from the device, not from the device's page cache.
_STORED = {"xfs", "btrfs", "f2fs"}
# What mkfs refuses, in MiB.
_LEAST_MIB = {"xfs": 300, "btrfs": 110, "f2fs": 52}
_NOT_ABSOLUTE = "is not an absolute path"


def check_devices(devices: list[Device], filesystem: FileSystem | None, where: str) -> None:
    """Check the devices of a cell, each and together, and its file system."""
    for device in devices:
        _check_device(device, where)
    names = [d.name for d in devices]
    check(len(set(names)) == len(names), f"{where}: two devices have one name")
    for number, device in enumerate(devices):
        under = {d.name: d for d in devices[:number]}
        for name in device.beneath:
            check(name in under, f"{where}: no device {name!r} before {device.name!r}, over it")
            # Others use what exists already: only what is made may be taken apart again.
            made = not under[name].real
            check(made, f"{where}: {device.name!r} must be over devices that are made")
        for pool in _POOL.findall(device.table):
            check(" thin-pool " in under[pool].table, f"{where}: {pool!r} is no thin-pool")
        _check_size(device, [under[name].size_mib for name in device.beneath], where)
    if any(d.kind == "directory" for d in devices):
        single = len(devices) == 1 and filesystem is None
        check(single, f"{where}: a directory has its file system and no device beside it")
    if filesystem is not None:
        _check_filesystem(filesystem, devices, where)


def _check_device(device: Device, where: str) -> None:
    check(is_name(device.name), f"{where}: {device.name!r} is not a valid device name")
    check(is_one_of(device.kind, _KINDS), f"{where}: unknown device kind {device.kind!r}")
    check(
        is_one_of(device.scheduler, _SCHEDULERS),
        f"{where}: unknown scheduler {device.scheduler!r}",
    )
    single = device.kind == "null_blk" or device.scheduler != "cfq"
    check(single, f"{where}: a {device.kind} device is not for cfq")
    check_flags(device, where, "memory_backed", "rotational", "integrity")
    check_values(device.tunables, f"{where}: tunables")
    check_numbers(
        device,
        where,
        {
            "size_mib": (16, 1 << 20),
            "irqmode": (0, 2),
            "completion_ns": (0, 10**9),
            "queue_depth": (1, 4096),
        },
    )
    _check_real(device, where)
    _check_stacked(device, where)
    if device.kind == "nvme":
        stores = not device.memory_backed
        check(stores, f"{where}: QEMU's nvme stores nothing: memory_backed must be false")
        _check_given(device, ("irqmode", "completion_ns", "queue_depth", "integrity"), where)
        # Twenty characters are the serial number of a controller.
        check(len(device.drive) <= 20, f"{where}: the name {device.name!r} is too long for nvme")


def _check_real(device: Device, where: str) -> None:
    if not device.real:
        if device.kind == "loop" and device.path != "":
            check(is_path(device.path), f"{where}: {device.path!r} {_NOT_ABSOLUTE}")
        else:
            check(device.path == "", f"{where}: a {device.kind} device has no path")
        check(device.serial is None, f"{where}: a {device.kind} device has no serial")
        return
    _check_given(device, _OF_MADE, where)
    check(is_path(device.path), f"{where}: {device.path!r} {_NOT_ABSOLUTE}")
    if device.kind == "directory":
        check(device.serial is None, f"{where}: a directory has no serial")
        return
    check(bool(_NODE.fullmatch(device.path)), f"{where}: {device.path!r} is not a device node")
    valid = device.serial is None or is_text(device.serial, 128)
    check(valid, f"{where}: {device.serial!r} is not a serial number")


def _check_given(device: Device, names: Sequence[str], where: str) -> None:
    """Check that a device is not given fields that its kind does not have."""
    plain = Device(device.name, device.kind, device.size_mib)
    changed = [name for name in names if getattr(device, name) != getattr(plain, name)]
    check(not changed, f"{where}: a {device.kind} device cannot be given {', '.join(changed)}")


# What a table's target may have. A device is one of the cell, never a path or a number: on a real
# machine that would be another's.
_D = r"\{[A-Za-z0-9][\w.-]*\}"
_N = r"[0-9]{1,19}"
_TARGETS = {
    "linear": rf"{_D} {_N}",
    "striped": rf"{_N} {_N}( {_D} {_N})+",
    "delay": rf"{_D} {_N} {_N}( {_D} {_N} {_N}){{0,2}}",
    "crypt": (
        rf"[a-z0-9-]+(:[a-z0-9]+)? ([0-9a-f]{{2}})+ {_N} {_D} {_N}( {_N}( [a-z_]+(:{_N})?)+)?"
    ),
    "thin": rf"{_D} {_N}",
    "thin-pool": rf"{_D} {_D} {_N} {_N}( {_N}( [a-z_]+)+)?",
    "verity": (
        rf"1 {_D} {_D} 4096 4096 {_N} {_N} sha256 \{{root\}} (-|([0-9a-f]{{2}})+)"
        rf"( {_N}( [a-z_]+)+)?"
    ),
}
_LINE = re.compile(rf"(?P<start>{_N}) (?P<length>{_N}) (?P<target>[a-z-]+) (?P<rest>.+)")
_POOL = re.compile(r" thin \{(.*?)\}")
_LEVELS = {"raid0", "raid1"}
_SECTORS_MIB = 2048


def _check_stacked(device: Device, where: str) -> None:
    made_by_another = {"dm": ("level", "members", "chunk_kib"), "md": ("table",)}
    others = made_by_another.get(device.kind, ("table", "level", "members", "chunk_kib"))
    _check_given(device, others, where)
    if device.kind not in made_by_another:
        return
    # It is what is beneath that completes and that rotates, and a bio has no I/O scheduler.
    _check_given(device, (*_OF_MADE, "scheduler", "tunables"), where)
    if device.kind == "dm":
        _check_table(device, where)
        return
    check(is_one_of(device.level, _LEVELS), f"{where}: unknown level {device.level!r:.80}")
    members = as_list(device.members, f"{where}: members")
    named = all(map(is_name, members)) and len(set(members)) == len(members) > 1
    check(named, f"{where}: an array needs two or more members, by their names")
    check_numbers(device, where, {"chunk_kib": (4, 1 << 16)})
    even = device.chunk_kib & (device.chunk_kib - 1) == 0
    check(even, f"{where}: chunk_kib must be a power of two, not {device.chunk_kib}")
    # DISK_NAME_LEN of include/linux/blkdev.h, with what iolab puts before it.
    check(len(device.name) <= 20, f"{where}: the name {device.name!r} is too long for md")


def _check_table(device: Device, where: str) -> None:
    check(isinstance(device.table, str), f"{where}: table must be a text")
    end = 0
    for line in device.table.splitlines():
        fault = f"{where}: the table of {device.name!r}: {line!r:.200}"
        start, length, target, rest = _line(line, fault)
        known = _TARGETS.get(target)
        check(known is not None, f"{fault}: known targets are {', '.join(_TARGETS)}")
        valid = re.fullmatch(known or "", rest)
        check(bool(valid), f"{fault}: not what a {target} target takes, with {{NAME}} for a device")
        check(start == end, f"{fault} does not begin at {end}")
        end += length
    sectors = device.size_mib * _SECTORS_MIB
    check(end == sectors, f"{where}: the table of {device.name!r} ends at {end}, not {sectors}")
    check(bool(device.beneath), f"{where}: the table of {device.name!r} names no device")


def _line(line: str, fault: str) -> tuple[int, int, str, str]:
    """Return start, length, target and arguments of a line of a table."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise UserError(f"plan: {fault} is not START LENGTH TARGET and its arguments")
    return int(found["start"]), int(found["length"]), found["target"], found["rest"]


def _check_size(device: Device, sizes_mib: list[int], where: str) -> None:
    """Check an array's size against its members'."""
    if device.kind != "md":
        return
    check(len(set(sizes_mib)) == 1, f"{where}: the members of {device.name!r} differ in size")
    size_mib = sum(sizes_mib) if device.level == "raid0" else sizes_mib[0]
    right = device.size_mib == size_mib
    check(right, f"{where}: {device.name!r} has {size_mib} MiB, not {device.size_mib}")


def _check_filesystem(filesystem: FileSystem, devices: list[Device], where: str) -> None:
    kind, realtime = filesystem.kind, filesystem.realtime_device
    names = [d.name for d in devices]
    check(is_one_of(kind, _FILE_SYSTEMS), f"{where}: unknown file system {kind!r}")
    for name in ("mkfs", "mount"):
        words = as_list(getattr(filesystem, name), f"{where}: {name} of the file system")
        right = all(is_text(word, 200) for word in words)
        check(right, f"{where}: {name} of the file system must be texts without blanks at the ends")
    if kind == "tmpfs":
        check(not devices, f"{where}: tmpfs is in memory: the cell has no device")
        check((filesystem.device, realtime) == ("", None), f"{where}: tmpfs has no device")
        return
    check(filesystem.device in names, f"{where}: no device {filesystem.device!r}")
    if realtime is not None:
        check(realtime in names, f"{where}: no device {realtime!r}")
        check(kind == "xfs", f"{where}: only xfs has a realtime_device")
        check(realtime != filesystem.device, f"{where}: realtime_device must be a second device")
    device = next(d for d in devices if d.name == filesystem.device)
    check(" verity " not in device.table, f"{where}: a verity device is read-only")
    lost = kind in _STORED and not stored_by(filesystem.device, devices)
    check(not lost, f"{where}: {kind} needs a device that stores its metadata")
    least_mib, size_mib = _LEAST_MIB.get(kind, 0), device.size_mib
    # Of what exists already, the plan has the space that it needs, not the size.
    fits = device.real or size_mib >= least_mib
    check(fits, f"{where}: {kind} needs {least_mib} MiB, {device.name!r} has {size_mib}")
