# SPDX-License-Identifier: MIT
"""Check a real machine before and after a block for what makes its results less reliable.

A finding has ``what`` was checked, what was ``found``, whether that is ``good``, and whether it is
``needed``: if a needed finding is not good, the block's cells are not valid.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab_agent.proc import available_memory, mounts, text_of

_WINDOW_S = 1.0
# How often the load of a busy machine is measured: a load that has just ended may decay.
_MAX_TRIES = 30
# Largest share of the core, or of the disk, that may be in use before the block.
_MAX_LOAD = 0.2
_LEAST_MEMORY_MIB = 512
_CPUS = Path("/sys/devices/system/cpu")
_SYS_BLOCK = Path("/sys/block")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
# Reading one of these costs a microsecond or more, and fio reads the clock twice for each I/O.
_SLOW_CLOCKS = {"hpet", "acpi_pm", "refined-jiffies", "jiffies"}
_UNKNOWN = "this machine does not show it"


def _finding(what: str, value: str, *, good: bool, needed: bool = False) -> dict[str, Any]:
    return {"what": what, "found": value, "good": good, "needed": needed}


def _turbo() -> dict[str, Any]:
    # no_turbo is 1 when turbo is off, boost is 0.
    for path, off in ((_CPUS / "intel_pstate/no_turbo", "1"), (_CPUS / "cpufreq/boost", "0")):
        value = text_of(path)
        if value is not None:
            return _finding("turbo", "off" if value == off else "on", good=value == off)
    return _finding("turbo", _UNKNOWN, good=False)


def _governor(cpu: int) -> dict[str, Any]:
    governor = text_of(_CPUS / f"cpu{cpu}" / "cpufreq/scaling_governor")
    return _finding("frequency governor", governor or _UNKNOWN, good=governor == "performance")


def _clock() -> dict[str, Any]:
    clock = text_of(_CLOCK)
    good = clock is not None and clock not in _SLOW_CLOCKS
    return _finding("clock source", clock or _UNKNOWN, good=good)


def _memory() -> dict[str, Any]:
    mib = available_memory() >> 20
    return _finding("free memory", f"{mib} MiB", good=mib >= _LEAST_MEMORY_MIB)


def _tracing_at(folder: Path) -> list[str]:
    tracing = []
    tracer = text_of(folder / "current_tracer") or "nop"
    if tracer != "nop":
        tracing.append(f"the tracer {tracer} in {folder}")
    # events/enable reads "0" if no event is enabled, "1" if all are, "X" if some are.
    if text_of(folder / "tracing_on") == "1" and (text_of(folder / "events/enable") or "0") != "0":
        tracing.append(f"events in {folder}")
    return tracing


def _tracers() -> dict[str, Any]:
    roots = {where.resolve() for where, _ in mounts("tracefs")}
    tracing = []
    # All mounts of tracefs show the same files.
    for root in sorted(roots)[:1]:
        for folder in (root, *sorted((root / "instances").glob("*"))):
            tracing += _tracing_at(folder)
    return _finding("other tracing", "; ".join(tracing) or "none", good=not tracing)


def _cpu_ticks() -> dict[str, tuple[int, int]]:
    """Return (ticks in use, all ticks) of each core, and of all cores together ("cpu")."""
    cores = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *values = line.split()
        if name.startswith("cpu"):
            # user nice system idle iowait irq softirq steal; user includes guest time (proc(5)).
            ticks = [int(value) for value in values[:8]]
            cores[name] = (sum(ticks) - ticks[3] - ticks[4], sum(ticks))
    return cores


def _disk_counts(disk: str) -> tuple[int, int]:
    """Return how long a disk was busy (ms), and the number of its I/Os."""
    counts = (_SYS_BLOCK / disk / "stat").read_text().split()
    return int(counts[9]), int(counts[0]) + int(counts[4])


def _siblings(cpu: int) -> list[int]:
    """Return the other hardware threads of a core."""
    threads: set[int] = set()
    for part in (text_of(_CPUS / f"cpu{cpu}" / "topology/thread_siblings_list") or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            threads |= set(range(int(first), int(last or first) + 1))
    return sorted(threads - {cpu})


def _throttled(cpu: int) -> int | None:
    """Return how often a core or its package was throttled for heat, or None if uncounted."""
    counts = [text_of(p) for p in (_CPUS / f"cpu{cpu}" / "thermal_throttle").glob("*_count")]
    return sum(int(count) for count in counts if count) if counts else None


def _free_space(needed_mib: Mapping[Path, int]) -> list[dict[str, Any]]:
    findings = []
    for folder, needed in sorted(needed_mib.items()):
        with suppress(OSError):
            mib = shutil.disk_usage(folder).free >> 20
            text = f"{mib} MiB, a cell needs {needed}"
            findings.append(_finding(f"room in {folder}", text, good=mib >= needed))
    return findings


class Preflight:
    """The findings of one block, about the measured core and disks.

    `disks` are names in /sys/block; `needed_mib` is the space that a cell needs, by folder. The
    load is measured for a second while nothing else is measured. A busy machine has half a minute
    to become quiet.
    """

    def __init__(self, *, cpu: int, disks: Iterable[str], needed_mib: Mapping[Path, int]) -> None:
        self._cpu = cpu
        self._throttled = _throttled(cpu)
        names = sorted(disks)
        for _ in range(_MAX_TRIES):
            load = self._load(names)
            if all(finding["good"] for finding in load if finding["needed"]):
                break
        self.findings = [_governor(cpu), _turbo(), _clock(), *load]
        self.findings += [_memory(), *_free_space(needed_mib), _tracers()]

    def _load(self, disks: list[str]) -> list[dict[str, Any]]:
        ticks, counts = _cpu_ticks(), {disk: _disk_counts(disk) for disk in disks}
        began = time.monotonic()
        time.sleep(_WINDOW_S)
        later = _cpu_ticks()
        seconds = time.monotonic() - began
        names = {f"cpu{self._cpu}": "load of the measured CPU", "cpu": "load of all CPUs"}
        names |= {f"cpu{n}": f"load of its sibling CPU {n}" for n in _siblings(self._cpu)}
        findings = []
        for name, what in names.items():
            if name not in ticks or name not in later:
                continue
            used, all_ticks = (b - a for a, b in zip(ticks[name], later[name]))
            needed = name == f"cpu{self._cpu}"
            findings.append(_load_finding(what, used / max(1, all_ticks), needed=needed))
        for disk, before in counts.items():
            busy_ms, ios = (b - a for a, b in zip(before, _disk_counts(disk)))
            share = busy_ms / 1e3 / seconds
            rate = f", {ios / seconds:.0f} I/Os a second"
            findings.append(_load_finding(f"load of the disk {disk}", share, rate, needed=True))
        return findings

    def finish(self) -> list[dict[str, Any]]:
        """Return the findings, and whether the core was throttled for heat since they were made."""
        before, after = self._throttled, _throttled(self._cpu)
        if before is None or after is None:
            return [*self.findings, _finding("slowed down for heat", _UNKNOWN, good=False)]
        text = f"{after - before} times during the block"
        good = after == before
        return [*self.findings, _finding("slowed down for heat", text, good=good, needed=True)]


def _load_finding(what: str, share: float, rate: str = "", *, needed: bool) -> dict[str, Any]:
    limit = f" (at most {_MAX_LOAD:.0%})" if needed else ""
    text = f"{share:.0%} of a second before the block{rate}{limit}"
    return _finding(what, text, good=share <= _MAX_LOAD, needed=needed)
