# SPDX-License-Identifier: MIT
"""What a real machine is like before a block and after it: what makes its results worth less.

A finding is ``what`` was looked at, what was ``found``, whether that is ``good``, and whether it is
``needed``: if that one is not good, the block's cells are not valid.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab.agent.proc import available_memory, mounts, text_of

__all__ = ["Preflight"]

_WINDOW_S = 1.0
# How often it is looked at a machine that is busy: what has just ended, or soon will, may pass.
_MOST_LOOKS = 30
# More than this share of the core or of the disk in use before anything was begun.
_MOST_BUSY = 0.2
_LEAST_MEMORY_MIB = 512
_CPUS = Path("/sys/devices/system/cpu")
_SYS_BLOCK = Path("/sys/block")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
# A look at one of these costs a microsecond or more, and fio looks twice for each I/O.
_SLOW_CLOCKS = {"hpet", "acpi_pm", "refined-jiffies", "jiffies"}
_UNKNOWN = "this machine does not show it"


def _finding(what: str, found: str, *, good: bool, needed: bool = False) -> dict[str, Any]:
    return {"what": what, "found": found, "good": good, "needed": needed}


def _turbo() -> dict[str, Any]:
    # One says what is not, the other what is.
    for path, off in ((_CPUS / "intel_pstate/no_turbo", "1"), (_CPUS / "cpufreq/boost", "0")):
        value = text_of(path)
        if value is not None:
            return _finding("turbo", "off" if value == off else "on", good=value == off)
    return _finding("turbo", _UNKNOWN, good=False)


def _governor(cpu: int) -> dict[str, Any]:
    found = text_of(_CPUS / f"cpu{cpu}" / "cpufreq/scaling_governor")
    return _finding("frequency governor", found or _UNKNOWN, good=found == "performance")


def _clock() -> dict[str, Any]:
    found = text_of(_CLOCK)
    good = found is not None and found not in _SLOW_CLOCKS
    return _finding("clock source", found or _UNKNOWN, good=good)


def _memory() -> dict[str, Any]:
    mib = available_memory() >> 20
    return _finding("free memory", f"{mib} MiB", good=mib >= _LEAST_MEMORY_MIB)


def _tracing_at(folder: Path) -> list[str]:
    found = []
    tracer = text_of(folder / "current_tracer") or "nop"
    if tracer != "nop":
        found.append(f"the tracer {tracer} in {folder}")
    # "0" is none of them, "1" all, "X" some.
    if text_of(folder / "tracing_on") == "1" and (text_of(folder / "events/enable") or "0") != "0":
        found.append(f"events in {folder}")
    return found


def _tracers() -> dict[str, Any]:
    roots = {where.resolve() for where, _ in mounts("tracefs")}
    found = []
    # Mounted twice it is the same one.
    for root in sorted(roots)[:1]:
        for folder in (root, *sorted((root / "instances").glob("*"))):
            found += _tracing_at(folder)
    return _finding("other tracing", "; ".join(found) or "none", good=not found)


def _cpu_ticks() -> dict[str, tuple[int, int]]:
    """Return the ticks of each core, and of all ("cpu"): those in use, and all of them."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *values = line.split()
        if name.startswith("cpu"):
            # user nice system idle iowait irq softirq steal; guest times are in user's already.
            ticks = [int(value) for value in values[:8]]
            found[name] = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
    return found


def _disk_counts(disk: str) -> tuple[int, int]:
    """Return for how long a disk was busy (ms), and its I/Os."""
    counts = (_SYS_BLOCK / disk / "stat").read_text().split()
    return int(counts[9]), int(counts[0]) + int(counts[4])


def _siblings(cpu: int) -> list[int]:
    """Return the other threads of a core."""
    found: set[int] = set()
    for part in (text_of(_CPUS / f"cpu{cpu}" / "topology/thread_siblings_list") or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return sorted(found - {cpu})


def _throttled(cpu: int) -> int | None:
    """Return how often the core or its package was slowed down for heat, or None if uncounted."""
    counts = [text_of(p) for p in (_CPUS / f"cpu{cpu}" / "thermal_throttle").glob("*_count")]
    return sum(int(count) for count in counts if count) if counts else None


def _room(rooms: Mapping[Path, int]) -> list[dict[str, Any]]:
    found = []
    for folder, wanted_mib in sorted(rooms.items()):
        with suppress(OSError):
            mib = shutil.disk_usage(folder).free >> 20
            text = f"{mib} MiB, a cell needs {wanted_mib}"
            found.append(_finding(f"room in {folder}", text, good=mib >= wanted_mib))
    return found


class Preflight:
    """The findings of one block on a core, on disks and in folders."""

    def __init__(self, *, cpu: int, disks: Iterable[str], rooms: Mapping[Path, int]) -> None:
        """Look at the machine, and for a second at what it does while nothing is measured.

        A busy machine is given half a minute to become quiet. `disks` are named as in /sys/block;
        `rooms` are folders with the MiB that a cell wants.
        """
        self._cpu = cpu
        self._throttled = _throttled(cpu)
        names = sorted(disks)
        for _ in range(_MOST_LOOKS):
            load = self._load(names)
            if all(finding["good"] for finding in load if finding["needed"]):
                break
        self.findings = [_governor(cpu), _turbo(), _clock(), *load]
        self.findings += [_memory(), *_room(rooms), _tracers()]

    def _load(self, disks: list[str]) -> list[dict[str, Any]]:
        ticks, counts = _cpu_ticks(), {disk: _disk_counts(disk) for disk in disks}
        began = time.monotonic()
        time.sleep(_WINDOW_S)
        later = _cpu_ticks()
        seconds = time.monotonic() - began
        names = {f"cpu{self._cpu}": "load of the measured CPU", "cpu": "load of all CPUs"}
        names |= {f"cpu{n}": f"load of its sibling CPU {n}" for n in _siblings(self._cpu)}
        found = []
        for name, what in names.items():
            if name not in ticks or name not in later:
                continue
            used, all_ticks = (b - a for a, b in zip(ticks[name], later[name]))
            needed = name == f"cpu{self._cpu}"
            found.append(_busy(what, used / max(1, all_ticks), needed=needed))
        for disk, before in counts.items():
            busy_ms, ios = (b - a for a, b in zip(before, _disk_counts(disk)))
            share = busy_ms / 1e3 / seconds
            more = f", {ios / seconds:.0f} I/Os a second"
            found.append(_busy(f"load of the disk {disk}", share, more, needed=True))
        return found

    def finish(self) -> list[dict[str, Any]]:
        """Return all findings, with whether the core was slowed down for heat since the first."""
        before, after = self._throttled, _throttled(self._cpu)
        if before is None or after is None:
            return [*self.findings, _finding("slowed down for heat", _UNKNOWN, good=False)]
        text = f"{after - before} times during the block"
        good = after == before
        return [*self.findings, _finding("slowed down for heat", text, good=good, needed=True)]


def _busy(what: str, share: float, more: str = "", *, needed: bool) -> dict[str, Any]:
    limit = f" (at most {_MOST_BUSY:.0%})" if needed else ""
    text = f"{share:.0%} of a second before the block{more}{limit}"
    return _finding(what, text, good=share <= _MOST_BUSY, needed=needed)
