# SPDX-License-Identifier: MIT
"""What the measured machine says of itself."""

from __future__ import annotations

import hashlib
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab.agent.core_time import core_time_file
from iolab.agent.proc import text_of
from iolab.errors import CannotRunError
from iolab.process import CommandError, run

__all__ = ["build_id", "collect", "high_resolution_timers", "scheduler_of", "survey"]

_MADE = ("null_blk", "scsi_debug", "loop", "zram", "brd")
# It is there where zram is loaded or built in.
_ZRAM = Path("/sys/class/zram-control")
_NT_GNU_BUILD_ID = 3
# EEVDF's only tunable, and CFS's where each kernel keeps it.
_EEVDF = Path("/sys/kernel/debug/sched/base_slice_ns")
_CFS = (
    Path("/sys/kernel/debug/sched/min_granularity_ns"),
    Path("/proc/sys/kernel/sched_min_granularity_ns"),
)


def build_id(notes: bytes) -> str | None:
    """Return the GNU build id (hex) in ELF notes as /sys/kernel/notes has them, or None."""
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
    """Return "EEVDF" or "CFS" by the tunables the kernel shows, or None where it shows none."""
    if _EEVDF.exists():
        return "EEVDF"
    return "CFS" if any(p.exists() for p in _CFS) else None


def high_resolution_timers() -> bool | None:
    """Return whether the kernel runs timers at high resolution, or None if it does not say."""
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
    # brd makes its disks when it is loaded, never again.
    return not (kind == "brd" and Path("/sys/module/brd").is_dir()) and _has_module(kind)


def _lacks() -> str:
    """Return why nothing at all can be measured here, or ""."""
    if (text_of(Path("/proc/self/schedstat")) or "0 0 0") == "0 0 0":
        return "this kernel does not count how long a task runs (CONFIG_SCHED_INFO)"
    try:
        _fio_version()
    except CannotRunError:
        return "there is no fio"
    return ""


def survey() -> dict[str, Any]:
    """Return what a real machine is, before anything is planned for it.

    ``machine`` is a digest of its machine-id, ``kinds`` the kinds of devices that it can make,
    ``lacks`` why nothing can be measured on it, or "". All but ``uid`` and the last two say what a
    result depends on, and are the same from run to run.
    """
    release = os.uname()
    own = text_of(Path("/etc/machine-id"))
    lacks = _lacks()
    return {
        "kernel_release": release.release,
        "kernel_version": release.version,
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "fio_version": None if lacks else _fio_version(),
        "high_resolution_timers": high_resolution_timers(),
        "machine": hashlib.sha256(f"iolab {own}".encode()).hexdigest()[:16] if own else None,
        "uid": os.geteuid(),
        "kinds": [kind for kind in _MADE if _can_make(kind)],
        "lacks": lacks,
    }


def _tunables() -> dict[str, str]:
    found = {}
    folder = Path("/sys/kernel/debug/sched")
    candidates = [*sorted(folder.glob("*_ns")), folder / "features", folder / "preempt"]
    candidates += sorted(Path("/proc/sys/kernel").glob("sched_*_ns"))
    for path in candidates:
        value = text_of(path)
        if value is not None:
            found[path.name] = value
    return found


def collect() -> dict[str, Any]:
    """Return the kernel, its scheduler with tunables, the processor and the tools' versions.

    ``core_time`` is the file that tells how long tasks ran on a core, None where the kernel has
    none: then nothing says how idle the core was.

    Errors: CannotRunError if there is no fio that runs.
    """
    fio_version = _fio_version()
    name = os.uname()
    core_time = core_time_file()
    notes = b""
    with suppress(OSError):
        notes = Path("/sys/kernel/notes").read_bytes()
    return {
        "kernel_release": name.release,
        "kernel_version": name.version,
        "kernel_build_id": build_id(notes),
        "command_line": text_of(Path("/proc/cmdline")),
        "scheduler": scheduler_of(),
        "scheduler_tunables": _tunables(),
        "high_resolution_timers": high_resolution_timers(),
        "clocksource": text_of(
            Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        ),
        "core_time": None if core_time is None else str(core_time),
        "cpus": os.cpu_count(),
        "cpu_model": _cpu_model(),
        "fio_version": fio_version,
    }
