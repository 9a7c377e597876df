# SPDX-License-Identifier: MIT
"""A block's real machine: held still for it, and looked at before and after it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab.agent.journal import Journal
from iolab.agent.named import beneath, disks_beneath
from iolab.agent.plan import Device, Plan
from iolab.agent.preflight import Preflight
from iolab.agent.steady import hold_still
from iolab.errors import IolabError

__all__ = ["Hardware"]


def _disks(devices: Iterable[Device]) -> set[Path]:
    """Return the folders in sysfs of the disks that devices are, or that their files are on.

    Nothing for those made in memory, and for those of which the cells will say that they are not
    there.
    """
    found: set[Path] = set()
    for kind, path in {(device.kind, device.path) for device in devices if device.path}:
        with suppress(IolabError, OSError):
            node = Path(path) if kind == "named" else beneath(Path(path))
            found |= disks_beneath(node)
    return found


class Hardware:
    """What a plan's real machine says of itself, as a part of its block's facts."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        """Hold still what can be, then look at the rest for a second; `journal` puts all back."""
        devices = [device for cell in plan.cells for device in cell.devices]
        real = _disks(device for device in devices if device.real)
        self._steady = hold_still(journal, cpu=plan.cpu, disks=real)
        rooms: dict[Path, int] = {}
        for device in devices:
            if device.path and device.kind != "named":
                folder = Path(device.path)
                rooms[folder] = max(device.size_mib, rooms.get(folder, 0))
        disks = {disk.name for disk in _disks(devices)}
        self._preflight = Preflight(cpu=plan.cpu, disks=disks, rooms=rooms)

    def before(self) -> dict[str, Any]:
        """Return ``steady`` (see `hold_still`) and ``preflight``: the findings before the block."""
        return {"steady": self._steady, "preflight": self._preflight.findings}

    def after(self) -> dict[str, Any]:
        """Return the same with what is known only after the block."""
        return {"steady": self._steady, "preflight": self._preflight.finish()}
