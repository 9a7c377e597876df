# SPDX-License-Identifier: MIT
"""What the data types of a plan say of themselves."""

from __future__ import annotations

from dataclasses import replace

from iolab_agent.plan import Device, stored_by
from iolab_agent.plan_reader import parse_plan
from tests.support.plans import FOLDER, NAMED, null_blk_cell, plan_document


def test_real_devices_are_known() -> None:
    on_disk = {"kind": "xfs", "device": "data"}
    cells = [
        null_blk_cell("folder", devices=[FOLDER], filesystem=None),
        null_blk_cell("raw", devices=[{**NAMED, "serial": "a b-1"}], filesystem=None),
        null_blk_cell("made", devices=[NAMED], filesystem=on_disk),
    ]
    found = [c.devices[0] for c in parse_plan(plan_document(*cells)).cells]
    assert [(d.kind, d.real, d.serial) for d in found] == [
        ("directory", True, None),
        ("named", True, "a b-1"),
        ("named", True, None),
    ]


def test_what_is_beneath_decides_whether_a_device_stores() -> None:
    stores = [Device("a", "null_blk", 64), Device("b", "null_blk", 64)]
    array = Device("made", "md", 64, level="raid1", members=["a", "b"])
    assert stored_by("made", [*stores, array])
    assert not stored_by("made", [stores[0], replace(stores[1], memory_backed=False), array])
