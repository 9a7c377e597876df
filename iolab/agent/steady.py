# SPDX-License-Identifier: MIT
"""What is held still on a real machine: its processor's speed, its disk's interrupts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iolab.agent.journal import Journal
from iolab.agent.settings import SettingError, change, read

__all__ = ["hold_still", "interrupts_of"]

_GOVERNOR = "performance"
_CPUS = Path("/sys/devices/system/cpu")
_IRQS = Path("/proc/irq")


def interrupts_of(disk: Path) -> list[int]:
    """Return the numbers of the interrupts of a disk (its folder in sysfs), or of its controller.

    A controller may serve other disks, too. Empty for a device that has none, such as a made one.
    """
    device = (disk / "device").resolve()
    for folder in (device, *device.parents):
        messages = folder / "msi_irqs"
        if messages.is_dir():
            return sorted(int(p.name) for p in messages.iterdir())
        line = folder / "irq"
        if line.is_file() and line.read_text().strip() not in ("", "0"):
            return [int(line.read_text())]
    return []


def _try(journal: Journal, path: Path, value: str) -> dict[str, str]:
    """Change a setting if the kernel lets it be changed; say what it was and is, or why not."""
    try:
        was = read(path)
        # Its own value first: what cannot be written must not be in the journal, as it could not
        # be put back either.
        path.write_text(was)
        change(journal, path, value)
    except OSError as error:
        return {"was": was, "left": f"the kernel does not let it be changed: {error.strerror}"}
    except SettingError as error:
        return {"left": str(error)}
    return {"was": was, "now": value}


def _hold_governor(journal: Journal, cpu: int) -> dict[str, str]:
    folder = (_CPUS / f"cpu{cpu}" / "cpufreq").resolve()
    governor, offered = folder / "scaling_governor", folder / "scaling_available_governors"
    if not governor.exists():
        return {"left": "this machine shows no frequency scaling"}
    if offered.exists() and _GOVERNOR not in offered.read_text().split():
        return {"was": read(governor), "left": f"it has no governor {_GOVERNOR}"}
    return _try(journal, governor, _GOVERNOR)


def hold_still(journal: Journal, *, cpu: int, disks: Iterable[Path]) -> dict[str, Any]:
    """Set the governor of a core and bring the interrupts of disks (folders in sysfs) to it.

    Returns ``governor`` and ``interrupts`` (by number), each with what it ``was`` and is ``now``,
    or why it was ``left``: a managed interrupt belongs to the kernel.
    """
    numbers = sorted({number for disk in disks for number in interrupts_of(disk)})
    paths = {number: _IRQS / str(number) / "smp_affinity_list" for number in numbers}
    return {
        "governor": _hold_governor(journal, cpu),
        "interrupts": {str(n): _try(journal, path, str(cpu)) for n, path in paths.items()},
    }
