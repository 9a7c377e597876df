# SPDX-License-Identifier: MIT
"""Watches, counted calls and kernel settings in a virtual machine, against known work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iolab.pathology import get_pathology
from iolab.targets.vm import VmTarget
from tests.support.guest import cell_of, start_in_guests
from tests.support.plans import guest_plan, job

pytestmark = pytest.mark.vm

_PROGRAM = Path(__file__).parents[1] / "support" / "conditions_in_guest.py"
_DEVICE = {"name": "data", "kind": "null_blk", "size_mib": 512, "memory_backed": False}


def _reads(name: str, **different: Any) -> dict[str, Any]:
    return {
        "id": name,
        "devices": [_DEVICE],
        "filesystem": None,
        "count": ["dget_parent"],
        "job": job(rw="randread", batch=1),
        **different,
    }


@pytest.fixture(scope="module")
def results(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a block under several conditions, and of what `_PROGRAM` does after it."""
    watch = {"on": "directory", "event": "close_write"}
    cells = [
        _reads("plain"),
        _reads("watched", watch=watch),
        _reads("unknown", count=["no_such_function"]),
        _reads("unset", settings={"no_such_setting": 1}),
    ]
    folder = tmp_path_factory.mktemp("conditions") / "results"
    with pytest.MonkeyPatch.context() as patch:
        start_in_guests(patch, _PROGRAM.read_text())
        target.run(guest_plan(*cells, coalesced_timers=False), folder)
    return folder


def test_a_read_of_a_device_whose_directory_is_watched_takes_a_reference(results: Path) -> None:
    measures = get_pathology("fsnotify_contention").from_counters
    cells = {name: cell_of(results, name) for name in ("plain", "watched")}
    for cell in cells.values():
        assert (cell["state"], cell["gates"]) == ("done", [])
        for look in ("first", "last"):
            cell[look]["calls"]["__fsnotify_parent"] = 0
    assert measures(cells["plain"])["dget_parent_per_io"] < 0.01
    # A window has edges: an I/O that is counted by one counter and not yet by the other.
    assert measures(cells["watched"])["dget_parent_per_io"] == pytest.approx(1, abs=0.02)


def test_what_a_kernel_has_not_is_a_reason(results: Path) -> None:
    for name, reason in (
        ("unknown", "cannot count calls of no_such_function"),
        ("unset", "no setting 'no_such_setting'"),
    ):
        cell = cell_of(results, name)
        assert cell["state"] == "cannot run here"
        assert reason in cell["reason"]


def test_every_call_is_counted(seen: dict[str, Any]) -> None:
    assert seen["counted"]["calls"] == seen["counted"]["made"]
    assert seen["counted"]["failures"] == []


def test_a_watch_is_on_what_it_says(seen: dict[str, Any]) -> None:
    node, directory = seen["watched"]["inodes"]
    assert seen["watched"]["node"] == [node]
    assert seen["watched"]["directory"] == [directory]
    (other,) = seen["watched"]["other"]
    assert other not in (node, directory)
    assert seen["watched"]["left"] == []


def test_settings_are_changed_and_put_back(seen: dict[str, Any]) -> None:
    found = seen["changed"]["found"]
    assert found["dirty_bytes"] == str(64 << 20)
    assert found["min_granularity_ns"] == "7000000"
    feature, model, setting, refused, module = seen["changed"]["errors"]
    assert feature == "this kernel's scheduler has no feature SUCH_THING"
    assert "preemption model" in model
    assert "no setting 'no_such'" in setting
    # The kernel refuses fewer bytes than two pages.
    assert "dirty_bytes" in refused
    assert module == "this kernel has no module no_such_module"
    assert seen["changed"]["failures"] == []


def test_features_are_all_turned_round_and_the_preemption_model_changed(
    seen: dict[str, Any],
) -> None:
    before, after = seen["changed"]["found"]["features"]
    assert len(before) > 10
    turned = [w.removeprefix("NO_") if w.startswith("NO_") else f"NO_{w}" for w in before]
    assert after == turned
    models = seen["changed"]["found"]["preempt"]
    assert models == [] or {"none", "voluntary", "full"} <= set(models)


def test_conditions_are_undone_after_a_kill_too(seen: dict[str, Any]) -> None:
    assert seen["killed"]["changed by the kill"] == [
        "dirty_bytes",
        "dirty_ratio",
        "features",
        "instances",
        "probes",
    ]
    assert seen["killed"]["failures"] == []
    assert seen["left"] == {}
