# SPDX-License-Identifier: MIT
"""Pin a real machine's settings for a block, and record its state before and after it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab.agent.journal import Journal
from iolab.agent.named import beneath, disks_beneath
from iolab.agent.plan import Device, Plan
from iolab.agent.preflight import Preflight
from iolab.agent.steady import pin_governor_and_irqs
from iolab_base.errors import IolabError

__all__ = ["Hardware"]


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
