# SPDX-License-Identifier: MIT
"""Runs on a measured machine: says as JSON what a run could have left changed there."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

_SETTINGS = (
    "/proc/sys/kernel/sched_*",
    "/proc/sys/vm/dirty_*",
    "/sys/kernel/debug/sched/*",
    "/sys/kernel/tracing/current_tracer",
    "/sys/kernel/tracing/events/enable",
    "/sys/kernel/tracing/events/kprobes/*/enable",
    "/sys/kernel/tracing/kprobe_events",
    "/sys/kernel/tracing/tracing_on",
    "/sys/fs/cgroup/**/cgroup.subtree_control",
    "/sys/fs/cgroup/**/cpu.weight",
    "/sys/fs/cgroup/**/cpu.shares",
    "/sys/block/*/size",
    "/sys/block/*/queue/*",
    "/sys/block/*/queue/iosched/*",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/proc/irq/*/smp_affinity_list",
)
_FOLDERS = (
    "/dev",
    "/sys/kernel/config/nullb",
    "/sys/kernel/tracing/instances",
    "/var/lib/iolab",
)
# A reading is not a setting.
_READINGS = ("debug", "stat")
_DISK_START = 1 << 20


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return "(cannot be read)"


def _cgroups() -> list[str]:
    """Return every cgroup but those of logins, which come and go with ssh."""
    root = Path("/sys/fs/cgroup")
    found = (str(p.relative_to(root)) for p in root.rglob("*") if p.is_dir())
    return sorted(name for name in found if "user.slice" not in name)


def _nice_workers() -> list[str]:
    """Return the kernel's workers with a nice value that is not their pool's own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            comm = (process / "comm").read_text().strip()
            nice = (process / "stat").read_text().rpartition(")")[2].split()[16]
            own = "-20" if "H" in comm.partition("-")[0] else "0"
            if comm.startswith("kworker/") and nice != own:
                found.append(f"{comm} {nice}")
    return found


def state(disks: list[str]) -> dict[str, object]:
    """Return settings, mounts, modules, devices, cgroups, workers and the start of `disks`."""
    found: dict[str, object] = {}
    for pattern in _SETTINGS:
        for path in sorted(Path("/").glob(pattern[1:])):
            if path.is_file() and path.name not in _READINGS and "user.slice" not in str(path):
                found[str(path)] = _text(path)
    for folder in _FOLDERS:
        path = Path(folder)
        found[folder] = sorted(p.name for p in path.iterdir()) if path.is_dir() else None
    mounts = [line.split()[:3] for line in _text(Path("/proc/self/mounts")).splitlines()]
    found["mounts"] = sorted(" ".join(words) for words in mounts if "/run/user" not in words[1])
    modules = _text(Path("/proc/modules")).splitlines()
    found["modules"] = sorted(line.split()[0] for line in modules)
    found["swaps"] = _text(Path("/proc/swaps"))
    found["cgroups"] = _cgroups()
    found["nice workers"] = _nice_workers()
    found["work"] = [
        _text(p)
        for p in Path("/proc").glob("[0-9]*/comm")
        if _text(p) in ("fio", "dd", "trace-cmd")
    ]
    for disk in disks:
        with Path(disk).open("rb") as stream:
            found[f"start of {disk}"] = hashlib.sha256(stream.read(_DISK_START)).hexdigest()
    return found


if __name__ == "__main__":
    import sys

    print(json.dumps(state(sys.argv[1:])))
