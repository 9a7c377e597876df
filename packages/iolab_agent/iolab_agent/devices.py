# SPDX-License-Identifier: MIT
"""Make or find the block devices of a cell, also disks in memory, and set their I/O schedulers."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from iolab_agent.filesystem import make_folder, mount_kernels
from iolab_agent.journal import Journal
from iolab_agent.named import attach_loop, beneath, check_size, disk_of
from iolab_agent.plan import Device
from iolab_agent.proc import available_memory, in_guest, text_of
from iolab_agent.settings import change, load_module
from iolab_agent.stacked import make_stacked
from iolab_agent.trusted import new_file
from iolab_base.errors import CannotRunError

_CONFIGFS = Path("/sys/kernel/config")
_SYS_BLOCK = Path("/sys/block")
_NODE_S = 5.0


def load_null_blk(journal: Journal) -> None:
    """Load null_blk without devices, and mount configfs, where its devices are made."""
    load_module(journal, "null_blk", "nr_devices=0")
    if not _CONFIGFS.is_mount():
        mount_kernels(journal, "configfs", _CONFIGFS)


def _null_blk(journal: Journal, device: Device) -> Path:
    # Through configfs: memory_backed is a module parameter only since Linux commit 058efe000b31.
    load_null_blk(journal)
    folder = _CONFIGFS / "nullb" / f"iolab-{device.name}"
    journal.note_new("null_blk", folder)
    before = {p.name for p in _SYS_BLOCK.glob("nullb*")} | {
        p.name for p in _SYS_BLOCK.glob("iolab-*")
    }
    folder.mkdir()
    for attribute, value in (
        ("size", device.size_mib),
        ("blocksize", 4096),
        ("memory_backed", int(device.memory_backed)),
        ("irqmode", device.irqmode),
        ("completion_nsec", device.completion_ns),
        ("submit_queues", 1),
        ("hw_queue_depth", device.queue_depth),
    ):
        path = folder / attribute
        if not path.exists():
            raise CannotRunError(f"this kernel's null_blk has no attribute {attribute}")
        path.write_text(str(value))
    if device.scheduler == "cfq":
        # It schedules single queues only, which ended with it (Linux commit f382fb0bcef4).
        (folder / "queue_mode").write_text("1")
    try:
        (folder / "power").write_text("1")
    except OSError as error:
        if device.scheduler == "cfq":
            raise CannotRunError("this kernel has no I/O scheduler cfq") from error
        raise
    # The disk has the folder's name since Linux commit 49c3b9266a71, and a number before: take the
    # disk that is new.
    new = {p.name for p in _SYS_BLOCK.iterdir()} - before
    names = [n for n in new if n.startswith(("nullb", "iolab-"))]
    if len(names) != 1:
        raise CannotRunError("null_blk made no disk with a known name")
    return Path("/dev") / names[0]


def _scsi_debug(journal: Journal, device: Device) -> Path:
    # The driver of SCSI disks: nothing loads it without udev.
    load_module(journal, "sd_mod")
    before = {p.name for p in _SYS_BLOCK.glob("sd*")}
    parameters = [f"dev_size_mb={device.size_mib}", f"ndelay={device.completion_ns}"]
    if device.integrity:
        # T10 protection information of type 1, with dix and dif as in the published case.
        parameters += ["dix=1", "dif=1"]
    load_module(journal, "scsi_debug", *parameters)
    for _ in range(100):
        new = {p.name for p in _SYS_BLOCK.glob("sd*")} - before
        if new:
            return Path("/dev") / new.pop()
        time.sleep(0.05)
    raise CannotRunError("scsi_debug made no disk within 5 s")


def _loop(journal: Journal, device: Device) -> Path:
    load_module(journal, "loop")
    if device.path:
        return _direct_loop(journal, device)
    backing = Path("/run/iolab") / f"{device.name}.img"
    journal.note("unlink", str(backing))
    with os.fdopen(new_file(backing), "wb") as stream:
        stream.truncate(device.size_mib << 20)
    return _attach(journal, backing)


def _attach(journal: Journal, backing: Path, *, direct: bool = False) -> Path:
    # Another program may take a free device first: the file is ours, whatever the device's number.
    status = backing.stat()
    journal.note("loop", str(backing), f"{status.st_dev}:{status.st_ino}")
    return attach_loop(backing, direct=direct)


def _direct_loop(journal: Journal, device: Device) -> Path:
    """Make a loop device that does direct I/O on a new file."""
    _check_space(Path(device.path), device.size_mib)
    backing = make_folder(Path(device.path)) / f"{device.name}.img"
    with os.fdopen(new_file(backing), "wb") as stream:
        # Blocks are allocated now, not during the measurement.
        os.posix_fallocate(stream.fileno(), 0, device.size_mib << 20)
    refused = f"the file system of {device.path} takes no direct I/O from a loop device"
    try:
        node = _attach(journal, backing, direct=True)
    except CannotRunError as error:
        raise CannotRunError(f"{refused}: {error}") from error
    # No error is no proof: __loop_update_dio() of drivers/block/loop.c silently falls back to
    # buffered I/O.
    if (_SYS_BLOCK / node.name / "loop/dio").read_text().strip() != "1":
        raise CannotRunError(refused)
    return node


def _zram(journal: Journal, device: Device) -> Path:
    return make_zram(journal, device.size_mib)


def _brd(journal: Journal, device: Device) -> Path:
    return make_brd(journal, device.size_mib)


def _named(journal: Journal, device: Device) -> Path:
    # The claim has checked the device and holds it open (`iolab_agent.claim`).
    node = Path(device.path)
    check_size(node, device.size_mib)
    return node


def _nvme(journal: Journal, device: Device) -> Path:
    if not in_guest():
        raise CannotRunError("an nvme device is QEMU's: it exists in a virtual machine only")
    load_module(journal, "nvme")
    until = time.monotonic() + _NODE_S
    while True:
        # The kernel looks for controllers and their disks after the module was loaded.
        for disk in _SYS_BLOCK.glob("nvme*n1"):
            if text_of(disk / "device/serial") == device.drive:
                return Path("/dev") / disk.name
        if time.monotonic() > until:
            raise CannotRunError(f"this machine has no NVMe disk {device.drive}")
        time.sleep(0.05)


def _check_space(folder: Path, size_mib: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size_mib << 20:
        raise CannotRunError(f"{folder} has room for {free >> 20} MiB, a cell needs {size_mib}")


def _directory(journal: Journal, device: Device) -> Path:
    folder = Path(device.path)
    _check_space(folder, device.size_mib)
    return beneath(folder)


_MAKERS = {
    "brd": _brd,
    "directory": _directory,
    "loop": _loop,
    "named": _named,
    "null_blk": _null_blk,
    "nvme": _nvme,
    "scsi_debug": _scsi_debug,
    "zram": _zram,
}


def make_device(journal: Journal, device: Device, nodes: Mapping[str, Path]) -> Path:
    """Make a block device, or find an existing one, and return its node.

    `nodes` has those of the devices beneath it, by name. It has no I/O scheduler until `schedule`.
    Raises CannotRunError if this kernel cannot make it, or it is too small.
    """
    if device.beneath:
        # It has no requests to schedule, and what it is over decides whether it rotates.
        return make_stacked(journal, device, nodes)
    node = _MAKERS[device.kind](journal, device)
    disk = _SYS_BLOCK / disk_of(node).name
    # The file system and files are made without a scheduler; the measured I/O may have one.
    if (disk / "queue/scheduler").exists():
        plain = "noop" if device.scheduler == "cfq" else "none"
        change(journal, disk / "queue/scheduler", plain, disk=disk)
    if not device.real:
        change(journal, disk / "queue/rotational", str(int(device.rotational)), disk=disk)
    return node


def schedule(journal: Journal, device: Device, node: Path) -> None:
    """Set a device's I/O scheduler and its tunables; CannotRunError if the kernel lacks one."""
    if device.beneath:
        return
    disk = _SYS_BLOCK / disk_of(node).name
    queue = disk / "queue"
    if not (queue / "scheduler").exists():
        # A bio-based device, such as zram, has no requests to schedule.
        if device.scheduler != "none":
            raise CannotRunError(f"a {device.kind} device has no I/O scheduler")
        return
    offered = (queue / "scheduler").read_text().replace("[", " ").replace("]", " ").split()
    if device.scheduler not in offered:
        raise CannotRunError(f"this kernel has no I/O scheduler {device.scheduler}")
    change(journal, queue / "scheduler", device.scheduler, disk=disk)
    for name, value in device.tunables.items():
        path = queue / "iosched" / name
        if not path.exists():
            raise CannotRunError(f"the I/O scheduler {device.scheduler} has no tunable {name}")
        change(journal, path, str(value), disk=disk)


_CONTROL = Path("/sys/class/zram-control")
_BRD = Path("/sys/module/brd")


def _check_memory(size_mib: int) -> None:
    """Check that there is memory for a disk full of incompressible data."""
    free_mib = available_memory() >> 20
    if free_mib < size_mib:
        raise CannotRunError(f"a disk in memory needs {size_mib} MiB, {free_mib} MiB are available")


def _node(name: str) -> Path:
    """Return the node of a new disk, once it exists."""
    node = Path("/dev") / name
    until = time.monotonic() + _NODE_S
    while not node.exists():
        if time.monotonic() > until:
            raise CannotRunError(f"{node} did not appear within {_NODE_S:.0f} s")
        time.sleep(0.05)
    return node


def make_zram(journal: Journal, size_mib: int) -> Path:
    """Make a zram device and return its node.

    Raises CannotRunError if the kernel has no zram, or there is too little memory.
    """
    # A built-in zram may have no folder in /sys/module.
    if not _CONTROL.is_dir():
        load_module(journal, "zram")
    _check_memory(size_mib)
    # hot_add takes the lowest free number (zram_add() of drivers/block/zram/zram_drv.c), so it can
    # be noted before the device is made.
    number = next(n for n in range(1 << 20) if not (_SYS_BLOCK / f"zram{n}").exists())
    size = size_mib << 20
    journal.note("zram", f"/dev/zram{number}", str(size))
    added = int((_CONTROL / "hot_add").read_text())
    if added != number:
        # Another program took it meanwhile: no inode is 0.
        journal.note("zram", f"/dev/zram{number}", f"{size} 0")
    folder = _SYS_BLOCK / f"zram{added}"
    journal.note("zram", f"/dev/zram{added}", f"{size} {folder.stat().st_ino}")
    (folder / "disksize").write_text(str(size))
    return _node(folder.name)


def make_brd(journal: Journal, size_mib: int) -> Path:
    """Load brd with one disk and return the disk's node.

    Raises CannotRunError if the kernel has no brd or does not count the disk's I/Os, brd is loaded
    already (another program may use its disks), or there is too little memory.
    """
    if _BRD.is_dir():
        raise CannotRunError("brd is loaded or built in already, so another program may use it")
    _check_memory(size_mib)
    load_module(journal, "brd", "rd_nr=1", f"rd_size={size_mib << 10}")
    node = _node("ram0")
    with node.open("rb") as stream:
        stream.read(4096)
    if not any(map(int, (_SYS_BLOCK / node.name / "stat").read_text().split())):
        raise CannotRunError("this kernel does not count the I/Os of a brd disk")
    return node
