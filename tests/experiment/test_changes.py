# SPDX-License-Identifier: MIT
"""Kinds of treatments whose direction is known, in one boot of each scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

import iolab
from iolab.design import blocks_of
from iolab.store.counters import measures
from iolab.targets.vm import prepare
from iolab_agent.plan import Device, Plan
from tests.support.guest import cell_of
from tests.support.needs import wants

pytestmark = pytest.mark.vm

Found = Callable[[str], Any]

_ONE = "rw=randwrite bs=4k iodepth=1 ioengine=libaio direct=1"
_DEEP = "rw=randwrite bs=4k iodepth=16 ioengine=libaio direct=1"
_SYNCED = "rw=randwrite bs=4k ioengine=psync fsync=1"
# Where the processor need not be busy, a slow device keeps it idle, which costs no time here.
_DISK = Device("d", "null_blk", 512, irqmode=2, completion_ns=1_000_000)
_BFQ = replace(_DISK, scheduler="bfq")
_TWO = f"--name=a --{_ONE.replace(' ', ' --')} --name=b --{_ONE.replace(' ', ' --')}"
# With a third of a core, fio takes a third of a second to begin.
_HOG = iolab.antagonist(fio="ioengine=cpuio cpuload=100", start_ms=-400, size_mib=1)

# By name: a question, and the range of treated/control in I/Os per second.
_QUESTIONS: Final[dict[str, tuple[dict[str, Any], float, float]]] = {
    "completion": (
        {"fio": _ONE, "device": _DISK, "treatment": {"completion_ns": 4_000_000}},
        0.05,
        0.6,
    ),
    "depth": ({"fio": _DEEP, "device": _DISK, "treatment": {"queue_depth": 1}}, 0.02, 0.6),
    "scheduler": ({"fio": _DEEP, "filesystem": None, "treatment": {"scheduler": "bfq"}}, 0.2, 0.97),
    "filesystem": ({"fio": _DEEP, "treatment": {"filesystem": None}}, 1.05, 20),
    "mount": (
        {"fio": _SYNCED, "filesystem": "ext4", "treatment": {"mount": "data=journal"}},
        0.05,
        0.98,
    ),
    "antagonist": (
        {"fio": _DEEP, "antagonist": _HOG, "treatment": {"antagonist.cpu.max": "30000 100000"}},
        1.2,
        20,
    ),
    "antagonist-size": (
        {"fio": _DEEP, "antagonist": _HOG, "treatment": {"antagonist.numjobs": 2}},
        0.02,
        0.95,
    ),
    "weight": ({"fio": _DEEP, "antagonist": _HOG, "treatment": {"cpu.weight": 50}}, 0.01, 0.95),
    "section": ({"fio": _TWO, "device": _DISK, "treatment": {"b.iodepth": 16}}, 1.5, 20),
    # No direction is known of these: they must run, and be in the result. An overwrite that is
    # synced writes a journal's commit, or the inode.
    "journal": (
        {"fio": _SYNCED, "filesystem": "ext4", "treatment": {"mkfs": "-O ^has_journal"}},
        0.5,
        5,
    ),
    "preemption": (
        {"fio": _DEEP, "device": _DISK, "treatment": {"intervention": "NO_WAKEUP_PREEMPTION"}},
        0.5,
        5,
    ),
    "tunable": (
        {
            "fio": _DEEP,
            "filesystem": None,
            "device": _BFQ,
            "treatment": {"scheduler.slice_idle": 0},
        },
        0.5,
        5,
    ),
    "setting": ({"fio": _DEEP, "device": _DISK, "treatment": {"autogroup": 0}}, 0.5, 5),
    "nice": ({"fio": _DEEP, "device": _DISK, "treatment": {"worker_nice": 19}}, 0.5, 5),
}


@pytest.fixture(scope="module", params=["6.1", "6.12"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What was measured, by ``question-role``. Questions that differ in the treatment share one
    control.
    """
    with wants("a virtual machine"):
        target = prepare(request.param, "virtual", cpus=1, memory_mib=1024)
    cells, controls, names, modules = [], dict[str, str](), dict[str, str](), dict[str, None]()
    for name, (asked, _, _) in _QUESTIONS.items():
        # Beside a hog, fio takes longer to begin.
        ramp_ms = 350 if "antagonist" in asked else 150
        made = iolab.question(**asked, ramp_ms=ramp_ms, runtime_ms=ramp_ms + 100)
        profile = replace(made.profiles["quick"], boots=1, repeats_control=False)
        (block,) = blocks_of(made, profile, kernel=request.param, clock="virtual")
        modules |= dict.fromkeys(block.plan.modules)
        for planned, cell in zip(block.cells, block.plan.cells, strict=True):
            role = f"{name}-{planned.role}"
            if planned.role == "control":
                names[role] = controls.setdefault(repr({**asked, "treatment": {}}), role)
            if names.setdefault(role, role) == role:
                cells.append(replace(cell, id=role))
    folder = tmp_path_factory.mktemp("changes") / "results"
    target.run(Plan("changes", 0, cells, list(modules)), folder)
    return lambda role: cell_of(folder, names[role])


@pytest.mark.parametrize("name", list(_QUESTIONS))
def test_a_treatment_moves_the_rate_the_way_that_is_known(found: Found, name: str) -> None:
    _, least, most = _QUESTIONS[name]
    control, treated = (
        measures(found(f"{name}-{role}"), cpu=0) for role in ("control", "treatment")
    )
    assert (control["valid"], treated["valid"]) == (True, True), (control, treated)
    assert least < float(treated["iops"]) / float(control["iops"]) < most


def test_what_changes_who_preempts_whom_is_in_the_result(found: Found) -> None:
    assert "WAKEUP_PREEMPTION" in found("preemption-treatment")["settings"]
    assert sum(found("nice-treatment")["reniced"]) > 0
