# SPDX-License-Identifier: MIT
"""Disks and folders that change between the check and the use, for real (as root)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iolab_agent import block, named
from iolab_agent.claim import check_places, claimed
from iolab_agent.facts import survey
from iolab_agent.journal import JOURNALS
from iolab_agent.named import DeviceInUseError
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError
from iolab_base.process import CommandError, run
from tests.support.loops import digest, loop_device
from tests.support.needs import needs
from tests.support.plans import copies, job, plan_document

pytestmark = needs("root", "losetup", "mkfs.ext4", "mount", "umount")

_NOBODY = 65534


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Path]:
    """A second disk, with a file system that is somebody's."""
    with loop_device(tmp_path / "other", 16) as node:
        run(["mkfs.ext4", "-q", "-F", node], timeout_s=60)
        yield node


@pytest.fixture
def link(disk: Path) -> Iterator[Path]:
    """A name for the disk, as udev gives it."""
    folder = Path("/dev/disk/by-id")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"iolab-test-{os.getpid()}"
    path.symlink_to(disk)
    try:
        yield path
    finally:
        path.unlink()


def cells_on(path: Path, kind: str = "named", **different: Any) -> dict[str, Any]:
    """Return a plan of two cells on a disk, or in a folder."""
    devices = [{"name": "data", "kind": kind, "path": str(path), "size_mib": 16, **different}]
    plain = {"devices": devices, "filesystem": None, "copies": copies()}
    return plan_document(*({**plain, "id": name} for name in ("first", "second")), modules=[])


def lacking() -> str:
    return str(survey()["lacks"])


needs_fio = needs("fio")


def before_the_second(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Change something between the first cell and the second."""
    run_cell = block._run_cell

    def changed(made: Any, cell: Any, *more: Any) -> dict[str, Any]:
        if cell.id == "second":
            change()
        return run_cell(made, cell, *more)

    monkeypatch.setattr(block, "_run_cell", changed)


def states(out: Path) -> dict[str, str]:
    cells = [json.loads(path.read_text()) for path in sorted((out / "cells").iterdir())]
    return {cell["id"]: cell.get("reason", cell["state"]) for cell in cells}


@needs_fio
def test_a_link_that_turns_leads_to_no_other_disk(
    disk: Path, other: Path, link: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(other)

    def turn() -> None:
        link.unlink()
        link.symlink_to(other)

    before_the_second(monkeypatch, turn)
    block.run_block(parse_plan(cells_on(link)), tmp_path / "out")
    assert digest(other) == before
    assert states(tmp_path / "out") == {"first": "done", "second": "done"}


@needs_fio
def test_another_disk_of_the_name_is_not_written(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def grow() -> None:
        os.truncate(tmp_path / "image", 32 << 20)
        subprocess.run(["losetup", "-c", disk], check=True)
        found.append(digest(disk))

    before_the_second(monkeypatch, grow)
    with pytest.raises(DeviceInUseError, match="is not the disk that was checked before the first"):
        block.run_block(parse_plan(cells_on(disk)), tmp_path / "out")
    assert [digest(disk)] == found
    assert states(tmp_path / "out") == {"first": "done"}
    assert not any(path.exists() for path in JOURNALS)


@needs_fio
def test_a_disk_that_is_taken_between_two_cells_is_not_written(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles: list[int] = []
    made = cells_on(disk)
    for cell in made["cells"]:
        cell["filesystem"] = {"kind": "ext4", "device": "data"}
    before_the_second(monkeypatch, lambda: handles.append(os.open(disk, os.O_RDONLY | os.O_EXCL)))
    try:
        with pytest.raises(DeviceInUseError, match="is in use by now"):
            block.run_block(parse_plan(made), tmp_path / "out")
    finally:
        os.close(handles[0])
    assert states(tmp_path / "out") == {"first": "done"}
    check_places(parse_plan(made))


@needs_fio
def test_a_block_leaves_a_disk_that_the_next_one_takes(disk: Path, tmp_path: Path) -> None:
    made = cells_on(disk)
    made["cells"][0]["filesystem"] = {"kind": "ext4", "device": "data"}
    raw = {**made["cells"][1], "id": "job", "job": job(size_mib=16)}
    made["cells"].append({name: raw[name] for name in raw if name != "copies"})
    for number in range(2):
        block.run_block(parse_plan(made), tmp_path / f"out{number}")
        assert set(states(tmp_path / f"out{number}").values()) == {"done"}


def test_nobody_mounts_or_formats_a_claimed_disk(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "serials", lambda node: {"S3RIAL"})
    run(["mkfs.ext4", "-q", "-F", disk], timeout_s=60)
    made = parse_plan(cells_on(disk, serial="S3RIAL"))
    mount = ["mount", str(disk), str(tmp_path)]
    with claimed(made) as claim:
        before = digest(disk)
        for argv in (mount, ["mkfs.ext4", "-q", "-F", str(disk)], ["wipefs", "-a", str(disk)]):
            with pytest.raises(CommandError):
                run(argv, timeout_s=60)
        assert digest(disk) == before
        claim.lend(claim.plan.cells[0])
        run(mount, timeout_s=60)
        try:
            with pytest.raises(DeviceInUseError, match="is in use by now"):
                claim.take(claim.plan.cells[0])
        finally:
            run(["umount", disk], timeout_s=60)
        claim.take(claim.plan.cells[0])
        with pytest.raises(CommandError):
            run(mount, timeout_s=60)


def test_a_claim_that_fails_holds_nothing(disk: Path, other: Path) -> None:
    made = cells_on(disk)
    made["cells"] += [{**cell, "id": f"{cell['id']}2"} for cell in cells_on(other)["cells"]]
    with pytest.raises(DeviceInUseError, match=r"holds a signature \(ext4\)"):
        check_places(parse_plan(made))
    os.close(os.open(disk, os.O_RDONLY | os.O_EXCL))


def _given_away(folder: Path) -> None:
    os.chown(folder, _NOBODY, _NOBODY)


def _replaced(folder: Path) -> None:
    folder.rename(folder.with_name("away"))
    folder.mkdir()


@needs_fio
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_given_away, "belongs to user 65534"),
        (_replaced, "is not the folder that was checked before"),
        (Path.rmdir, "No such file or directory"),
    ],
)
def test_a_folder_that_changes_is_refused_before_the_next_cell(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    sentence: str,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    before_the_second(monkeypatch, lambda: change(work))
    made = parse_plan(cells_on(work, kind="directory"))
    with pytest.raises(UserError, match=sentence):
        block.run_block(made, tmp_path / "out")
    assert states(tmp_path / "out") == {"first": "done"}
    assert not work.exists() or list(work.iterdir()) == []
