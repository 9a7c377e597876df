# SPDX-License-Identifier: MIT
"""Prepare where a cell's work and its antagonist are done: file system, files, folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from iolab_agent.copies import copy_files
from iolab_agent.filesystem import make_filesystem, make_folder, make_tmpfs
from iolab_agent.fio import job_files, lay_out
from iolab_agent.journal import Journal
from iolab_agent.plan import Cell, FioJob, in_memory, stored_by
from iolab_agent.workplace import ANTAGONIST_FOLDER, RUN, Workplace
from iolab_base.errors import CannotRunError

_MOUNT = RUN / "mnt"
# Made for each cell, in memory, and without a geometry that mkfs.xfs would use.
_NEW = ("null_blk", "scsi_debug")


def has_files(cell: Cell) -> bool:
    """Return whether a cell's work is on files; False on the device itself, or without one."""
    directory = bool(cell.devices) and cell.devices[-1].kind == "directory"
    return cell.filesystem is not None or directory


def _laid_out(cell: Cell, job: FioJob, folder: Path, device: Path | None) -> list[Path]:
    """Return what each process of a job reads or writes; make the files."""
    files = job_files(job, folder)
    if device is not None and not has_files(cell):
        return [device] * len(files)
    if in_memory(cell) and job.direct:
        _check_direct(folder)
    lay_out(job, folder)
    return files


def _check_direct(folder: Path) -> None:
    # Linux commit e88e0d366f9c ("tmpfs: trivial support for direct IO").
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
    except OSError as error:
        raise CannotRunError("this kernel's tmpfs takes no direct I/O") from error


def work_place(journal: Journal, cell: Cell, nodes: Mapping[str, Path], *, cpu: int) -> Workplace:
    """Make the file system and files of a cell's work, without a cgroup; restoring removes them."""
    folder = RUN / "program"
    data: Path | None = None
    if in_memory(cell):
        folder = _MOUNT
        make_tmpfs(journal, folder)
    elif cell.filesystem is not None:
        folder = _MOUNT
        device = next(d for d in cell.devices if d.name == cell.filesystem.device)
        make_filesystem(
            journal,
            cell.filesystem,
            nodes,
            folder,
            stored=stored_by(device.name, cell.devices),
            empty=device.kind in _NEW,
        )
        data = nodes[cell.filesystem.realtime_device or cell.filesystem.device]
    elif nodes:
        data = nodes[cell.devices[-1].name]
        if has_files(cell):
            folder = make_folder(Path(cell.devices[-1].path))
    files: list[Path] = []
    if cell.job is not None:
        files = _laid_out(cell, cell.job, folder, data)
    if cell.copies is not None:
        files = copy_files(cell.copies, folder)
        files = files if data is None or has_files(cell) else [data] * len(files)
    return Workplace(files, folder, data, cpu, None, list(nodes.values()))


def antagonist_place(
    cell: Cell, beside: Workplace, nodes: Mapping[str, Path], *, group: Path | None
) -> Workplace:
    """Make the files of a cell's antagonist; they are removed with those of the measured work."""
    antagonist = cell.antagonist
    device = beside.device
    folder = RUN / ANTAGONIST_FOLDER
    files: list[Path] = []
    if antagonist is not None and antagonist.device is not None:
        device = nodes[antagonist.device]
    elif has_files(cell):
        folder = beside.folder / ANTAGONIST_FOLDER
        folder.mkdir(mode=0o700)
    if antagonist is not None and antagonist.job is not None:
        if antagonist.device is not None and device is not None:
            files = [device] * len(job_files(antagonist.job, folder))
        else:
            files = _laid_out(cell, antagonist.job, folder, device)
    return Workplace(files, folder, device, beside.cpu, group, list(nodes.values()))
