# SPDX-License-Identifier: MIT
"""dio_kworker in two short cells a block, on the machine and file system of `guest_plan`.

So a sweep of it restores the snapshot that tests/targets/test_vm.py boots.
"""

from __future__ import annotations

import random
from dataclasses import replace

from iolab.pathology.base import Machine, Profile
from iolab.pathology.dio_kworker import DIO_KWORKER
from iolab.pathology.factors import Condition, first_levels
from iolab_agent.plan import Cell

# As those of `tests.support.plans.guest_plan`.
_MODULES = ("null_blk", "sd_mod", "crc32c", "xfs", "ext4", "bfq")
_SIZE_MIB = 512


def _cell(condition: Condition, profile: Profile, rng: random.Random) -> Cell:
    cell = DIO_KWORKER.cell(condition, profile, rng)
    meta, data = cell.devices
    assert cell.job is not None
    job = replace(cell.job, size_mib=16)
    return replace(cell, devices=[meta, replace(data, size_mib=_SIZE_MIB)], job=job)


def _machine(boot: Condition) -> Machine:
    return Machine(cpus=1, memory_mib=1024, modules=_MODULES, coalesced_timers=True)


_SMOKE = DIO_KWORKER.profiles["smoke"]
_GRID = {name: (level,) for name, level in first_levels(_SMOKE.grids[0]).items()}
_PROFILE = replace(
    _SMOKE,
    kernels=(("6.1",),),
    grids=({**_GRID, "weight": (10_000,)},),
    ramp_ms=200,
    runtime_ms=300,
    recorded={},
    repeats_control=False,
)

QUICK = replace(
    DIO_KWORKER,
    name="quick_dio_kworker",
    profiles=dict.fromkeys(("smoke", "quick", "full"), _PROFILE),
    cell=_cell,
    machine=_machine,
)
