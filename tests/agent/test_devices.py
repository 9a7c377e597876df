# SPDX-License-Identifier: MIT
"""Disks in memory on this machine, for real."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from iolab_agent.devices import make_brd, make_device, make_zram, schedule
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Device
from iolab_base.errors import CannotRunError
from tests.support.needs import lack, needs

_zram = needs("root", "zram")


def _there() -> set[str]:
    return {p.name for p in Path("/sys/block").glob("zram*")}


@_zram
def test_a_zram_device_is_made_and_removed(journal: Journal) -> None:
    before = _there()
    device = Device("data", "zram", 64)
    node = make_device(journal, device, {})
    schedule(journal, device, node)
    assert _there() - before == {node.name}
    assert (Path("/sys/block") / node.name / "size").read_text() == f"{64 << 11}\n"
    if not (Path("/sys/block") / node.name / "queue/scheduler").exists():
        with pytest.raises(CannotRunError, match="a zram device has no I/O scheduler"):
            schedule(journal, Device("data", "zram", 64, scheduler="bfq"), node)
    assert restore(journal.path) == []
    assert _there() == before


@_zram
def test_a_zram_device_of_another_size_is_somebody_elses(journal: Journal) -> None:
    before = _there()
    node = make_zram(journal, 64)
    (Path("/sys/block") / node.name / "reset").write_text("1")
    (Path("/sys/block") / node.name / "disksize").write_text(str(32 << 20))
    assert restore(journal.path) == []
    assert node.name in _there()
    Path("/sys/class/zram-control/hot_remove").write_text(node.name[4:])
    assert _there() == before


@_zram
def test_a_zram_device_that_got_no_size_yet_is_removed(journal: Journal) -> None:
    before = _there()
    node = make_zram(journal, 64)
    (Path("/sys/block") / node.name / "reset").write_text("1")
    assert restore(journal.path) == []
    assert _there() == before


@_zram
def test_a_disk_that_is_larger_than_the_memory_is_refused(journal: Journal) -> None:
    before = _there()
    with pytest.raises(CannotRunError, match=r"a disk in memory needs 1048576 MiB, \d+ MiB"):
        make_zram(journal, 1 << 20)
    assert _there() == before


def test_without_the_module_there_is_no_brd(journal: Journal) -> None:
    if Path("/lib/modules").is_dir() and any(Path("/lib/modules").glob("*/kernel")):
        lack("a machine without kernel modules")
    says = "there is no modprobe" if shutil.which("modprobe") is None else "no module brd"
    with pytest.raises(CannotRunError, match=rf"{says}|brd is loaded or built"):
        make_brd(journal, 64)
    assert restore(journal.path) == []
