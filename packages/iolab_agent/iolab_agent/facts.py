# SPDX-License-Identifier: MIT
"""Survey the measured machine: kernel, scheduler, processor, tools; pin a real one's settings."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import struct
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from iolab_agent.journal import Journal
from iolab_agent.named import beneath, disks_beneath
from iolab_agent.observe import core_time_file
from iolab_agent.plan import Device, Plan
from iolab_agent.preflight import Preflight
from iolab_agent.proc import text_of
from iolab_agent.settings import current_settings, features_file, pin_governor_and_irqs
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import CommandError, run

_MADE = ("null_blk", "scsi_debug", "loop", "zram", "brd", "dm", "md")
_MODULE_OF = {"dm": "dm_mod", "md": "md_mod"}
# Exists where zram is loaded or built in.
_ZRAM = Path("/sys/class/zram-control")
_NT_GNU_BUILD_ID = 3
# What of a kernel's configuration a scheduler's delays depend on, and no file of /proc shows.
_OPTION = re.compile(r"^CONFIG_(HZ|PREEMPT\w*)=(.*)$", re.MULTILINE)
# EEVDF's tunable since Linux commit e4ec3318a17f; CFS's, which commit 8a99b6833c88 moved from
# sysctl to debugfs.
_EEVDF = Path("/sys/kernel/debug/sched/base_slice_ns")
_CFS = (
    Path("/sys/kernel/debug/sched/min_granularity_ns"),
    Path("/proc/sys/kernel/sched_min_granularity_ns"),
)


def build_id(notes: bytes) -> str | None:
    """Return the GNU build id (hex) in ELF notes such as /sys/kernel/notes, or None."""
    offset = 0
    while offset + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, offset)
        name = notes[offset + 12 : offset + 12 + name_size]
        start = offset + 12 + (name_size + 3) // 4 * 4
        if kind == _NT_GNU_BUILD_ID and name == b"GNU\0":
            return notes[start : start + size].hex()
        offset = start + (size + 3) // 4 * 4
    return None


def scheduler_of() -> str | None:
    """Return "EEVDF" or "CFS", judging by the kernel's tunables; None if it shows none."""
    if _EEVDF.exists():
        return "EEVDF"
    return "CFS" if any(p.exists() for p in _CFS) else None


def kernel_options() -> dict[str, str]:
    """Return HZ and the preemption options of the running kernel's configuration; {} if unknown."""
    text = text_of(Path(f"/boot/config-{os.uname().release}"))
    if text is None:
        with suppress(OSError, EOFError):
            # CONFIG_IKCONFIG_PROC
            text = gzip.decompress(Path("/proc/config.gz").read_bytes()).decode(errors="replace")
    return dict(_OPTION.findall(text or ""))


def high_resolution_timers() -> bool | None:
    """Return whether timers run at high resolution; None if /proc/timer_list does not show it."""
    for line in (text_of(Path("/proc/timer_list")) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == ".hres_active":
            return value.strip() == "1"
    return None


def _fio_version() -> str:
    try:
        return run(["fio", "--version"], timeout_s=60).stdout.strip()
    except CommandError as error:
        raise CannotRunError(f"fio cannot be run on the measured machine: {error}") from error


def _cpu_model() -> str | None:
    for line in (text_of(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _has_module(name: str) -> bool:
    if (Path("/sys/module") / name).is_dir():
        return True
    with suppress(CommandError):
        return run(["modprobe", "-n", "-q", name], timeout_s=60, check=False).returncode == 0
    return False


def _can_make(kind: str) -> bool:
    if kind == "zram" and _ZRAM.is_dir():
        return True
    if kind == "dm" and shutil.which("dmsetup") is None:
        return False
    # brd makes its disks only when it is loaded.
    loaded = kind == "brd" and Path("/sys/module/brd").is_dir()
    return not loaded and _has_module(_MODULE_OF.get(kind, kind))


def _why_unmeasurable() -> str:
    """Return why nothing can be measured on this machine, or ""."""
    if (text_of(Path("/proc/self/schedstat")) or "0 0 0") == "0 0 0":
        return "this kernel does not count how long a task runs (CONFIG_SCHED_INFO)"
    try:
        _fio_version()
    except CannotRunError:
        return "there is no fio: install the package fio"
    return ""


def survey() -> dict[str, Any]:
    """Describe a real machine before a sweep is planned for it.

    The kernel, the processor, fio, ``high_resolution_timers`` and ``machine`` (a digest of the
    machine-id) are what a result depends on, the same from run to run. ``uid`` is the agent's;
    ``kinds`` lists the devices that the machine can make; ``lacks`` is why it can measure nothing,
    or "".
    """
    system = os.uname()
    machine_id = text_of(Path("/etc/machine-id"))
    lacks = _why_unmeasurable()
    return {
        "kernel_release": system.release,
        "kernel_version": system.version,
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "fio_version": None if lacks else _fio_version(),
        "high_resolution_timers": high_resolution_timers(),
        "machine": _digest(machine_id) if machine_id else None,
        "uid": os.geteuid(),
        "kinds": [kind for kind in _MADE if _can_make(kind)],
        "lacks": lacks,
    }


def _digest(machine_id: str) -> str:
    # machine-id(5) must not be exposed as it is.
    return hashlib.sha256(f"iolab {machine_id}".encode()).hexdigest()[:16]


def _tunables() -> dict[str, str]:
    values = {}
    folder = Path("/sys/kernel/debug/sched")
    candidates = [*sorted(folder.glob("*_ns")), folder / "preempt"]
    candidates += sorted(Path("/proc/sys/kernel").glob("sched_*_ns"))
    for path in candidates:
        value = text_of(path)
        if value is not None:
            values[path.name] = value
    features = features_file()
    text = None if features is None else text_of(features)
    return values if text is None else {**values, "features": text}


def collect() -> dict[str, Any]:
    """Return the facts of a block's machine: kernel, scheduler and tunables, processor, tools.

    Cached: a virtual machine collects them before its snapshot. A value is None where the kernel
    does not show it; if ``core_time`` is None, nothing shows how idle a core was. Raises
    CannotRunError if fio is missing or does not run.
    """
    return dict(_facts())


@cache
def _facts() -> dict[str, Any]:
    fio_version = _fio_version()
    system = os.uname()
    core_time = core_time_file()
    notes = b""
    with suppress(OSError):
        notes = Path("/sys/kernel/notes").read_bytes()
    return {
        "kernel_release": system.release,
        "kernel_version": system.version,
        "kernel_build_id": build_id(notes),
        "kernel_options": kernel_options(),
        "command_line": text_of(Path("/proc/cmdline")),
        "scheduler": scheduler_of(),
        "scheduler_tunables": _tunables(),
        "settings": current_settings(),
        "high_resolution_timers": high_resolution_timers(),
        "clocksource": text_of(
            Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        ),
        "core_time": None if core_time is None else str(core_time),
        "cpus": os.cpu_count(),
        "cpu_model": _cpu_model(),
        "fio_version": fio_version,
    }


def _disks(devices: Iterable[Device]) -> set[Path]:
    """Return the sysfs folders of the disks that devices are, or have their files on.

    Devices in memory have no disk. The cells that use a missing disk report it.
    """
    disks: set[Path] = set()
    for kind, path in {(device.kind, device.path) for device in devices if device.path}:
        with suppress(IolabError, OSError):
            node = Path(path) if kind == "named" else beneath(Path(path))
            disks |= disks_beneath(node)
    return disks


class Hardware:
    """The real machine of a block, as part of the block's facts; `plan` has canonical paths."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        devices = [device for cell in plan.cells for device in cell.devices]
        existing = _disks(device for device in devices if device.real)
        self._pinned = pin_governor_and_irqs(journal, cpu=plan.cpu, disks=existing)
        needed_mib: dict[Path, int] = {}
        for device in devices:
            if device.path and device.kind != "named":
                folder = Path(device.path)
                needed_mib[folder] = max(device.size_mib, needed_mib.get(folder, 0))
        disks = {disk.name for disk in _disks(devices)}
        self._preflight = Preflight(cpu=plan.cpu, disks=disks, needed_mib=needed_mib)

    def before(self) -> dict[str, Any]:
        """Return the state before the block: ``steady`` (pinned settings) and ``preflight``."""
        return {"steady": self._pinned, "preflight": self._preflight.findings}

    def after(self) -> dict[str, Any]:
        """Return the same with the findings that are known only after the block."""
        return {"steady": self._pinned, "preflight": self._preflight.finish()}
