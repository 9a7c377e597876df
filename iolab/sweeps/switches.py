# SPDX-License-Identifier: MIT
"""The switches that a kernel offers: one intervention for each thing that can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from iolab.agent.plan import Cell
from iolab.agent.settings import preemption_models
from iolab.pathology.base import Machine

__all__ = ["fixed_switches", "switches"]

# Settings that are on or off.
_ON_OFF: Final = ("autogroup", "timer_migration")
# Tunables that decide when bfq idles (block/bfq-iosched.c).
_BFQ: Final = ("iosched.slice_idle=0", "iosched.strict_guarantees=1")
_IO_SCHEDULERS: Final = ("none", "mq-deadline", "bfq", "kyber")


def switches(facts: Mapping[str, Any], machine: Machine | None, cell: Cell) -> list[str]:
    """Return the interventions to try on a kernel, each changing one thing.

    `facts` are those of `iolab.agent.facts.collect`; `machine` is None for a real one, whose boot
    is left alone. They are: every scheduler feature inverted, every other preemption model, every
    setting at a quarter and four times its value (or toggled), the I/O schedulers of the devices of
    `cell`, and for a virtual machine its timers, tick and CPUs.
    """
    tunables = facts.get("scheduler_tunables") or {}
    words = str(tunables.get("features", "")).split()
    found = [w.removeprefix("NO_") if w.startswith("NO_") else f"NO_{w}" for w in words]
    present, models = preemption_models(str(tunables.get("preempt", "")))
    found += [f"preempt={model}" for model in models if present and model != present]
    for name, value in sorted((facts.get("settings") or {}).items()):
        if name in _ON_OFF:
            found.append(f"{name}={0 if value else 1}")
        elif value > 0:
            found += [f"{name}={other}" for other in (value // 4, value * 4) if other != value]
    found += _of_devices(cell)
    if machine is not None:
        found += ["nohz=off", f"highres={'on' if machine.coalesced_timers else 'off'}"]
        found += [f"cpus={number}" for number in (1, 2, 4) if number != machine.cpus]
    return found


def fixed_switches(facts: Mapping[str, Any]) -> list[str]:
    """Return what a booted kernel does not let change, a phrase each; `facts` as in `switches`."""
    tunables = facts.get("scheduler_tunables") or {}
    found = []
    if not tunables.get("features"):
        found.append("its scheduler's features (not shown in debugfs)")
    if not tunables.get("preempt"):
        found.append("its preemption model (no CONFIG_PREEMPT_DYNAMIC, or not shown in debugfs)")
    return found


def _of_devices(cell: Cell) -> list[str]:
    used = {device.scheduler for device in cell.devices} - {"none"}
    if not used:
        return []
    others = [f"iosched={name}" for name in _IO_SCHEDULERS if name not in used]
    return [*others, *(_BFQ if "bfq" in used else ())]
