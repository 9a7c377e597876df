# SPDX-License-Identifier: MIT
"""Where a cell's work finds its files: on the device itself, in a folder of a disk, in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iolab_agent import prepare
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Antagonist, Cell, Copies, Device, FileSystem, Job, Program
from iolab_agent.prepare import antagonist_place, has_files, work_place
from iolab_agent.proc import mounts
from iolab_agent.workplace import RUN
from tests.support.needs import needs, wants
from tests.support.plans import job

_NODE = Path("/dev/x")
_BESIDE = Path("/dev/y")
_MADE = Device("data", "null_blk", 64)
_MORE = Device("more", "null_blk", 64)


def _job(**different: object) -> Job:
    return Job(**job(size_mib=1, direct=False, **different))


def _folder(path: Path) -> Device:
    return Device("data", "directory", 64, path=str(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "srv"
    made.mkdir()
    return made


def test_work_is_on_files_with_a_file_system_or_in_a_folder() -> None:
    assert has_files(Cell([_MADE], FileSystem("ext4", "data")))
    assert has_files(Cell([], FileSystem("tmpfs")))
    assert has_files(Cell([_folder(Path("/srv"))], None))
    assert not has_files(Cell([_MADE], None))
    assert not has_files(Cell([], None))


def test_without_a_file_system_each_process_uses_the_last_device(journal: Journal) -> None:
    nodes = {"more": _BESIDE, "data": _NODE}
    found = work_place(journal, Cell([_MORE, _MADE], None, job=_job(numjobs=3)), nodes, cpu=5)
    assert found.files == [_NODE] * 3
    assert (found.device, found.cpu, found.group) == (_NODE, 5, None)
    assert found.nodes == [_BESIDE, _NODE]
    copies = Cell([_MORE, _MADE], None, copies=Copies(512, 4, 2))
    assert work_place(journal, copies, nodes, cpu=5).files == [_NODE] * 2


def test_a_program_without_a_device_has_a_folder_of_the_agents(journal: Journal) -> None:
    found = work_place(journal, Cell([], None, program=Program(["/bin/true"])), {}, cpu=0)
    assert (found.files, found.device, found.nodes) == ([], None, [])
    assert found.folder.parent == RUN


def test_in_a_folder_each_process_has_a_file_that_goes_again(
    journal: Journal, folder: Path, files: Path
) -> None:
    (folder / "precious").touch()
    cell = Cell([_folder(folder)], None, job=_job(numjobs=2))
    with wants("a file system with direct I/O", OSError):
        found = work_place(journal, cell, {"data": _NODE}, cpu=0)
    assert found.folder.parent == folder
    assert [path.parent for path in found.files] == [found.folder] * 2
    assert [path.stat().st_size for path in found.files] == [1 << 20] * 2
    assert found.device == _NODE
    assert restore(files) == []
    assert [path.name for path in folder.iterdir()] == ["precious"]


def test_copies_make_their_files_themselves(journal: Journal, folder: Path, files: Path) -> None:
    cell = Cell([_folder(folder)], None, copies=Copies(512, 4, 3))
    found = work_place(journal, cell, {"data": _NODE}, cpu=0)
    assert len(set(found.files)) == 3
    assert {path.parent for path in found.files} == {found.folder}
    assert list(found.folder.iterdir()) == []
    assert restore(files) == []


def test_in_a_folder_that_is_missing_nothing_is_made(
    journal: Journal, folder: Path, files: Path
) -> None:
    cell = Cell([_folder(folder / "absent")], None, job=_job())
    with pytest.raises(FileNotFoundError, match="absent"):
        work_place(journal, cell, {"data": _NODE}, cpu=0)
    assert list(folder.iterdir()) == []
    assert restore(files) == []


@needs("root", "mount", "umount")
def test_files_in_memory_are_on_a_tmpfs_of_their_own(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "_MOUNT", tmp_path / "mnt")
    beside = Antagonist(job=_job(numjobs=1))
    cell = Cell([], FileSystem("tmpfs"), job=_job(numjobs=2), antagonist=beside)
    found = work_place(journal, cell, {}, cpu=0)
    assert found.folder in dict(mounts("tmpfs"))
    assert [path.stat().st_size for path in found.files] == [1 << 20] * 2
    assert {path.parent for path in found.files} == {found.folder}
    assert found.device is None
    there = antagonist_place(cell, found, {}, group=None)
    assert there.folder.parent == found.folder
    assert [path.stat().st_size for path in there.files] == [1 << 20]
    assert not set(there.files) & set(found.files)
    assert restore(journal.path) == []
    assert not found.folder.exists()


def test_an_antagonist_has_files_of_its_own_on_the_same_disk(
    journal: Journal, folder: Path, files: Path
) -> None:
    beside = Antagonist(job=_job(numjobs=2, layout="growing"))
    cell = Cell([_folder(folder)], None, program=Program(["/bin/true"]), antagonist=beside)
    work = work_place(journal, cell, {"data": _NODE}, cpu=3)
    found = antagonist_place(cell, work, {"data": _NODE}, group=Path("/group"))
    assert found.folder.parent == work.folder
    assert found.folder.stat().st_mode & 0o777 == 0o700
    assert [path.parent for path in found.files] == [found.folder] * 2
    assert (found.device, found.cpu, found.group) == (_NODE, 3, Path("/group"))
    # It goes with the files of the measured work.
    assert restore(files) == []
    assert list(folder.iterdir()) == []


def test_an_antagonist_uses_the_device_that_it_names_or_that_of_the_work(journal: Journal) -> None:
    nodes = {"more": _BESIDE, "data": _NODE}
    beside = Antagonist(job=_job(numjobs=2), device="more")
    cell = Cell([_MORE, _MADE], None, job=_job(), antagonist=beside)
    work = work_place(journal, cell, nodes, cpu=0)
    found = antagonist_place(cell, work, nodes, group=None)
    assert (found.files, found.device) == ([_BESIDE] * 2, _BESIDE)
    same = replace(cell, antagonist=replace(beside, device=None))
    found = antagonist_place(same, work, nodes, group=None)
    assert (found.files, found.device) == ([_NODE] * 2, _NODE)
    assert found.folder.parent == RUN
    program = replace(cell, antagonist=Antagonist(program=Program(["/bin/true"])))
    found = antagonist_place(program, work, nodes, group=None)
    assert (found.files, found.device) == ([], _NODE)
