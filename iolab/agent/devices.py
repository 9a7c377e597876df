# SPDX-License-Identifier: MIT
"""Block devices that the agent makes for one cell, or finds."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.named import beneath, check_unused, disk_of
from iolab.agent.plan import Device
from iolab.agent.settings import change
from iolab.errors import CannotRunError
from iolab.process import run

__all__ = ["load_module", "load_null_blk", "make_device", "schedule"]

_CONFIGFS = Path("/sys/kernel/config")
_SYS_BLOCK = Path("/sys/block")
_MODULES = Path("/sys/module")
# What udev loads for a SCSI disk, and the crypto API for its checksums: modprobe knows nothing of
# either.
_BROUGHT_ALONG = {"sd_mod": ("sg", "crct10dif_generic", "crc64_rocksoft_generic")}


def load_module(journal: Journal, name: str, *parameters: str) -> None:
    """Load a kernel module unless it is there or built in; restoring unloads what was loaded.

    Errors: CannotRunError if this kernel has no such module; CommandError with modprobe's words.
    """
    if _loaded(name):
        return
    needed = run(["modprobe", "--show-depends", name], timeout_s=60, check=False)
    if needed.returncode:
        raise CannotRunError(f"this kernel has no module {name}")
    # Each by itself: modprobe -r would also take what was there, unused, before.
    files = [Path(x.split()[1]) for x in needed.stdout.splitlines() if x.startswith("insmod ")]
    names = [file.name.partition(".ko")[0].replace("-", "_") for file in files]
    others = dict.fromkeys([*names[:-1], *_BROUGHT_ALONG.get(name, ())])
    new = [other for other in others if not _loaded(other)]
    if new:
        journal.note("dependencies", str(_MODULES), " ".join(new))
    journal.note("module", str(_MODULES / name.replace("-", "_")), name)
    run(["modprobe", name, *parameters], timeout_s=120)


def _loaded(name: str) -> bool:
    return (_MODULES / name.replace("-", "_")).is_dir()


def load_null_blk(journal: Journal) -> None:
    """Load null_blk with the file system that its devices are made in, unless they are there.

    Restoring unloads null_blk while configfs is still mounted, and configfs last: kernel 5.10 on
    one core frees configfs's inodes by a function of that module when it is gone already, if one
    modprobe unloads both.

    Errors: as `load_module`, and CommandError with mount's words.
    """
    load_module(journal, "configfs")
    if not _CONFIGFS.is_mount():
        journal.note("umount", str(_CONFIGFS))
        run(["mount", "-t", "configfs", "configfs", _CONFIGFS], timeout_s=30)
    load_module(journal, "null_blk", "nr_devices=0")


def _null_blk(journal: Journal, device: Device) -> Path:
    # Through configfs, not module parameters: memory_backed is no parameter on older kernels.
    load_null_blk(journal)
    folder = _CONFIGFS / "nullb" / f"iolab-{device.name}"
    journal.note("null_blk", str(folder))
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
    (folder / "power").write_text("1")
    # Newer kernels name the disk after the folder, older ones count: ask by looking what is new.
    new = {p.name for p in _SYS_BLOCK.iterdir()} - before
    names = [n for n in new if n.startswith(("nullb", "iolab-"))]
    if len(names) != 1:
        raise CannotRunError("null_blk made no disk that can be found")
    return Path("/dev") / names[0]


def _scsi_debug(journal: Journal, device: Device) -> Path:
    # The driver of SCSI disks: nothing loads it where no udev runs.
    load_module(journal, "sd_mod")
    before = {p.name for p in _SYS_BLOCK.glob("sd*")}
    parameters = [f"dev_size_mb={device.size_mib}", f"ndelay={device.completion_ns}"]
    if device.integrity:
        # T10 protection information of type 1: dix and dif as the published case has them.
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
    backing = Path("/run/iolab") / f"{device.name}.img"
    journal.note("unlink", str(backing))
    with backing.open("wb") as stream:
        stream.truncate(device.size_mib << 20)
    found = run(["losetup", "-f"], timeout_s=30).stdout.strip()
    journal.note("loop", found)
    run(["losetup", found, backing], timeout_s=30)
    return Path(found)


def _named(journal: Journal, device: Device) -> Path:
    node = Path(device.path).resolve()
    check_unused(node, device.size_mib)
    return node


def _directory(journal: Journal, device: Device) -> Path:
    folder = Path(device.path)
    if not folder.is_dir():
        raise CannotRunError(f"{folder} is no directory on the measured machine")
    free = shutil.disk_usage(folder).free
    if free < device.size_mib << 20:
        raise CannotRunError(
            f"{folder} has room for {free >> 20} MiB, a cell needs {device.size_mib}"
        )
    return beneath(folder)


_MAKERS = {
    "directory": _directory,
    "loop": _loop,
    "named": _named,
    "null_blk": _null_blk,
    "scsi_debug": _scsi_debug,
}


def make_device(journal: Journal, device: Device) -> Path:
    """Make a block device, or find it, and return its node; restoring removes what was made.

    Its I/O scheduler is `schedule`'s. Errors: CannotRunError if this kernel cannot make it;
    NotYoursError if it is there and in use.
    """
    node = _MAKERS[device.kind](journal, device)
    queue = _SYS_BLOCK / disk_of(node).name / "queue"
    # What is on the device is made without a scheduler, whatever schedules the measured I/O.
    change(journal, queue / "scheduler", "none")
    if not device.real:
        change(journal, queue / "rotational", str(int(device.rotational)))
    return node


def schedule(journal: Journal, device: Device, node: Path) -> None:
    """Give a device its I/O scheduler and that one's tunables.

    Errors: CannotRunError if this kernel has not the scheduler or the tunable; SettingError if it
    does not take the value.
    """
    queue = _SYS_BLOCK / disk_of(node).name / "queue"
    offered = (queue / "scheduler").read_text().replace("[", " ").replace("]", " ").split()
    if device.scheduler not in offered:
        raise CannotRunError(f"this kernel has no I/O scheduler {device.scheduler}")
    change(journal, queue / "scheduler", device.scheduler)
    for name, value in device.tunables.items():
        path = queue / "iosched" / name
        if not path.exists():
            raise CannotRunError(f"the I/O scheduler {device.scheduler} has no tunable {name}")
        change(journal, path, str(value))
