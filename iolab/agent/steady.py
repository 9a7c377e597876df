# SPDX-License-Identifier: MIT
"""Pin CPU governor and disk IRQ affinity."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iolab.agent.journal import Journal
from iolab.agent.settings import SettingError, change, read

__all__ = ["irqs_of", "pin_governor_and_irqs"]

_GOVERNOR = "performance"
_CPUS = Path("/sys/devices/system/cpu")
_IRQS = Path("/proc/irq")


def irqs_of(disk: Path) -> list[int]:
    """Return, sorted, the interrupts of a disk or its controller, which may serve other disks.

    `disk` is a folder in sysfs. A device such as null_blk has no interrupts.
    """
    device = (disk / "device").resolve()
    for folder in (device, *device.parents):
        msi_irqs = folder / "msi_irqs"
        if msi_irqs.is_dir():
            return sorted(int(p.name) for p in msi_irqs.iterdir())
        irq = folder / "irq"
        if irq.is_file() and irq.read_text().strip() not in ("", "0"):
            return [int(irq.read_text())]
    return []


def _try_change(journal: Journal, path: Path, value: str) -> dict[str, str]:
    """Change a setting if the kernel allows it; return its old and new value, or why not."""
    try:
        was = read(path)
        # Write the old value first: a setting that cannot be written must not be in the journal,
        # because it could not be restored either.
        path.write_text(was)
        change(journal, path, value)
    except OSError as error:
        return {"was": was, "left": f"the kernel does not let it be changed: {error.strerror}"}
    except SettingError as error:
        return {"left": str(error)}
    return {"was": was, "now": value}


def _pin_governor(journal: Journal, cpu: int) -> dict[str, str]:
    folder = (_CPUS / f"cpu{cpu}" / "cpufreq").resolve()
    governor, offered = folder / "scaling_governor", folder / "scaling_available_governors"
    if not governor.exists():
        return {"left": "this machine shows no frequency scaling"}
    if offered.exists() and _GOVERNOR not in offered.read_text().split():
        return {"was": read(governor), "left": f"it has no governor {_GOVERNOR}"}
    return _try_change(journal, governor, _GOVERNOR)


def pin_governor_and_irqs(journal: Journal, *, cpu: int, disks: Iterable[Path]) -> dict[str, Any]:
    """Set a core's governor to "performance" and send the interrupts of disks to that core.

    Return ``governor``, and ``interrupts`` by number: each with the values that it ``was`` and is
    ``now``, or why it was ``left``. The kernel refuses to move a managed interrupt
    (write_irq_affinity() of kernel/irq/proc.c). `disks` are folders in sysfs.
    """
    numbers = sorted({number for disk in disks for number in irqs_of(disk)})
    paths = {number: _IRQS / str(number) / "smp_affinity_list" for number in numbers}
    return {
        "governor": _pin_governor(journal, cpu),
        "interrupts": {str(n): _try_change(journal, path, str(cpu)) for n, path in paths.items()},
    }
