# SPDX-License-Identifier: MIT
"""File systems and devices over other devices, each with fio on it, in a virtual machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iolab.targets.vm import VmTarget, prepare
from iolab_base.errors import CannotRunError
from tests.support.guest import cell_of, start_in_guests
from tests.support.needs import wants
from tests.support.plans import guest_plan, job, plan

pytestmark = pytest.mark.vm

_PROGRAM = Path(__file__).parents[1] / "support" / "stacked_in_guest.py"
_SECTORS = 128 << 11
_FILE_SYSTEMS = ("btrfs", "f2fs")
_NVME = {"name": "disk", "kind": "nvme", "size_mib": 64, "memory_backed": False}


def _disk(name: str, size_mib: int = 128) -> dict[str, Any]:
    disk = {"name": name, "kind": "null_blk", "size_mib": size_mib}
    return {**disk, "irqmode": 2, "completion_ns": 10_000}


def _cell(name: str, *devices: dict[str, Any], kind: str = "", **different: Any) -> dict[str, Any]:
    on = {"kind": kind, **({"device": devices[-1]["name"]} if devices else {})}
    work = job(batch=1, **different)
    return {"id": name, "devices": [*devices], "filesystem": on if kind else None, "job": work}


def _dm(*lines: str, size_mib: int = 128) -> dict[str, Any]:
    return {"name": "made", "kind": "dm", "size_mib": size_mib, "table": "\n".join(lines)}


def _md(level: str, size_mib: int) -> dict[str, Any]:
    members = {"level": level, "members": ["a", "b"]}
    return {"name": "made", "kind": "md", "size_mib": size_mib, **members}


def _stacked() -> list[dict[str, Any]]:
    half, blocks = _SECTORS // 2, _SECTORS // 8
    pool = _dm(f"0 {_SECTORS} thin-pool {{meta}} {{a}} 128 0")
    tree = f"0 {_SECTORS} verity 1 {{a}} {{tree}} 4096 4096 {blocks} 0 sha256 {{root}} -"
    key = "5a" * 32
    return [
        _cell(
            "linear",
            _disk("a"),
            _dm(f"0 {half} linear {{a}} {half}", f"{half} {half} linear {{a}} 0"),
        ),
        _cell(
            "striped",
            *(_disk("a", 64), _disk("b", 64), _dm(f"0 {_SECTORS} striped 2 128 {{a}} 0 {{b}} 0")),
        ),
        _cell("delay", _disk("a"), _dm(f"0 {_SECTORS} delay {{a}} 0 4")),
        _cell("crypt", _disk("a"), _dm(f"0 {_SECTORS} crypt aes-xts-plain64 {key} 0 {{a}} 0")),
        _cell(
            "thin",
            *(_disk("meta", 16), _disk("a"), {**pool, "name": "pool"}),
            _dm(f"0 {_SECTORS} thin {{pool}} 0"),
        ),
        _cell("verity", _disk("a"), _disk("tree", 16), _dm(tree), rw="randread"),
        _cell("raid0", _disk("a", 64), _disk("b", 64), _md("raid0", 128)),
        _cell("raid1", _disk("a"), _disk("b"), _md("raid1", 128), kind="ext4"),
    ]


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a block, and what `_PROGRAM` saw before it."""
    cells = [
        *(_cell(kind, _disk("a"), kind=kind) for kind in _FILE_SYSTEMS),
        _cell("tmpfs", kind="tmpfs", direct=False),
        *_stacked(),
    ]
    folder = tmp_path_factory.mktemp("kinds") / "results"
    with pytest.MonkeyPatch.context() as patch:
        start_in_guests(patch, _PROGRAM.read_text())
        target.run(guest_plan(*cells, coalesced_timers=False), folder)
    return folder


def _fio(cell: dict[str, Any]) -> int:
    """Return the I/Os that fio did in a cell that is done."""
    assert (cell["state"], cell.get("reason"), cell["gates"]) == ("done", None, [])
    side = cell["fio"]["jobs"][0]
    return int(side["read"]["total_ios"] + side["write"]["total_ios"])


@pytest.mark.parametrize("kind", _FILE_SYSTEMS)
def test_a_file_system_does_the_jobs_io_on_its_device(results: Path, kind: str) -> None:
    cell = cell_of(results, kind)
    assert _fio(cell)
    assert cell["last"]["ios"] > cell["first"]["ios"]


def test_tmpfs_has_no_device(results: Path) -> None:
    cell = cell_of(results, "tmpfs")
    assert _fio(cell)
    assert cell["last"]["ios"] == 0


@pytest.mark.parametrize("name", [cell["id"] for cell in _stacked()])
def test_a_device_over_others_does_the_jobs_io(results: Path, name: str) -> None:
    cell = cell_of(results, name)
    assert _fio(cell)
    assert cell["last"]["ios"] > cell["first"]["ios"]


def test_a_delayed_io_takes_its_delay(results: Path) -> None:
    latency = cell_of(results, "delay")["fio"]["jobs"][0]["write"]["clat_ns"]
    assert latency["min"] >= 4_000_000


def test_a_killed_run_leaves_no_device(results: Path, seen: dict[str, Any]) -> None:
    left = [kill for kill in seen["kills"] if kill[3] or not kill[4]]
    assert left == []
    assert {(kill[0], kill[2]) for kill in seen["kills"]} >= {("thin", 9), ("raid1", 9)}


def test_nvme_is_not_measured_in_virtual_time(target: VmTarget, tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match="host's clock"):
        target.run(plan(_cell("nvme", _NVME), modules=["nvme"]), tmp_path / "results")


def test_nvme_on_the_hosts_clock(tmp_path: Path) -> None:
    with wants("a virtual machine"):
        target = prepare("6.1", "host", cpus=1, memory_mib=1024)
    made = plan(_cell("nvme", _NVME), modules=["nvme"], coalesced_timers=False)
    target.run(made, tmp_path / "results")
    cell = cell_of(tmp_path / "results", "nvme")
    # A busy host may invalidate it: it has gates then.
    assert (cell["state"], cell.get("reason")) == ("done", None)
    assert cell["fio"]["jobs"][0]["write"]["total_ios"]
