# SPDX-License-Identifier: MIT
"""Read a plan and check every value, before anything on the machine is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iolab.agent.plan import (
    FORMAT,
    Cell,
    Copies,
    Device,
    FileSystem,
    FioJob,
    Group,
    Job,
    OpenJob,
    Plan,
    Recording,
    Section,
    Watch,
)
from iolab.agent.plan_checks import (
    check_copies,
    check_cores,
    check_device,
    check_filesystem,
    check_job,
    check_open_job,
    check_recording,
    check_surroundings,
)
from iolab.agent.plan_values import as_list, build, check, check_flags, is_int, is_name, is_one_of
from iolab.errors import UserError

__all__ = ["load_plan", "parse_plan"]

_MODULES = {"null_blk", "scsi_debug", "sd_mod", "loop", "zram", "xfs", "ext4", "crc32c", "bfq"}

_PARTS: dict[str, Any] = {
    "copies": Copies,
    "filesystem": FileSystem,
    "group": Group,
    "watch": Watch,
    "recording": Recording,
}


def _parse_job(raw: Any, where: str) -> FioJob:
    """Build and check a fio run: of any options if it has sections."""
    if not (isinstance(raw, dict) and "sections" in raw):
        job = build(Job, raw, where)
        check_job(job, where)
        return job
    listed = as_list(raw["sections"], f"{where}: sections")
    sections = [build(Section, one, f"{where} section {n}") for n, one in enumerate(listed)]
    made = build(OpenJob, {**raw, "sections": sections}, where)
    check_open_job(made, where)
    return made


def _parse_cell(raw: Any, where: str) -> Cell:
    check(isinstance(raw, dict), f"{where} is not an object")
    devices = [
        build(Device, d, f"{where} device")
        for d in as_list(raw.get("devices"), f"{where}: devices")
    ]
    check("filesystem" in raw, f"{where}: filesystem is missing (null: the device itself)")
    parts = {
        name: None if raw.get(name) is None else build(kind, raw[name], f"{where} {name}")
        for name, kind in _PARTS.items()
    }
    if raw.get("job") is not None:
        parts["job"] = _parse_job(raw["job"], f"{where} job")
    cell = build(Cell, {**raw, **parts, "devices": devices}, where)
    check(is_name(cell.id), f"{where}: id {cell.id!r} is not a valid name")
    check(bool(devices), f"{where}: it has no device")
    for device in devices:
        check_device(device, where)
    names = [d.name for d in devices]
    check(len(set(names)) == len(names), f"{where}: two devices have one name")
    if any(d.kind == "directory" for d in devices):
        single = len(devices) == 1 and cell.filesystem is None
        check(single, f"{where}: a directory has its file system and no device beside it")
        check(cell.watch is None, f"{where}: a watch is for I/O on the device itself")
    if cell.filesystem is not None:
        check_filesystem(cell.filesystem, devices, where)
    check((cell.job is None) is not (cell.copies is None), f"{where}: it needs a job or copies")
    if cell.copies is not None:
        check_copies(cell.copies, where)
    if cell.recording is not None:
        check_recording(cell.recording, cell.job, f"{where} recording")
    check_surroundings(cell, where)
    return cell


def parse_plan(raw: Any) -> Plan:
    """Parse and check a plan.

    Parameters
    ----------
    raw : JSON value
        The decoded JSON document.

    Returns
    -------
    Plan
        The plan; every value has its declared type and range.

    Raises
    ------
    UserError
        If a field is unknown, missing or out of range; the message names the first one.
    """
    check(isinstance(raw, dict), "not an object")
    version = raw.get("format")
    check(version == FORMAT, f"its format is {version!r}, this agent reads {FORMAT!r}")
    cells = [_parse_cell(c, f"cell {n}") for n, c in enumerate(as_list(raw.get("cells"), "cells"))]
    check(bool(cells), "it has no cells")
    check(len({c.id for c in cells}) == len(cells), "two cells have one id")
    rest = {k: v for k, v in raw.items() if k != "format"}
    plan = build(Plan, {**rest, "cells": cells}, "the block")
    check(is_name(plan.block), f"block {plan.block!r} is not a valid name")
    check(is_int(plan.cpu, 0, 4095), "cpu must be 0-4095")
    for number, cell in enumerate(plan.cells):
        check_cores(cell, plan.cpu, f"cell {number}")
    check_flags(plan, "the block", "coalesced_timers", "hardware")
    unknown = [m for m in as_list(plan.modules, "modules") if not is_one_of(m, _MODULES)]
    check(not unknown, f"unknown modules: {', '.join(map(repr, unknown))}")
    return plan


def load_plan(path: Path) -> Plan:
    """Read a plan from a file.

    Parameters
    ----------
    path : Path
        The file, in JSON.

    Returns
    -------
    Plan
        As `parse_plan`.

    Raises
    ------
    UserError
        If the file cannot be read, is not JSON or is not a valid plan.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the plan {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"the plan {path} is not JSON: {error}") from error
    return parse_plan(raw)
