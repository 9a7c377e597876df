# SPDX-License-Identifier: MIT
"""Read a plan and check every value, before anything on the machine is touched."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from iolab_agent.plan import (
    FORMAT,
    Antagonist,
    Cell,
    Copies,
    Device,
    FileSystem,
    FioJob,
    Group,
    Job,
    OpenJob,
    Plan,
    Program,
    Recording,
    Section,
    Watch,
    in_memory,
)
from iolab_agent.plan_checks import (
    check_antagonist,
    check_copies,
    check_cores,
    check_job,
    check_open_job,
    check_program,
    check_recording,
    check_surroundings,
)
from iolab_agent.plan_devices import check_devices
from iolab_agent.plan_values import as_list, build, check, check_flags, is_int, is_name, is_one_of
from iolab_base.errors import UserError

_MODULES = {"null_blk", "scsi_debug", "sd_mod", "loop", "zram", "nvme", "dm_mod", "md_mod", "bfq"}
_MODULES |= {"crc32c", "btrfs", "ext4", "f2fs", "xfs"}

# A parameter of the kernel, and those that a machine has of its own: its init, its console.
_BOOT_OPTION = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{0,59})(?:=[A-Za-z0-9_.,:@/-]{1,80})?")
_OF_THE_MACHINE = {"console", "highres", "init", "initrd", "panic", "rdinit", "root"}

# Fields that distinguish a job with one set of options from one with sections.
_OF_JOB = {f.name for f in fields(Job)} - {f.name for f in fields(OpenJob)}

_PARTS: dict[str, Any] = {
    "copies": Copies,
    "program": Program,
    "filesystem": FileSystem,
    "group": Group,
    "watch": Watch,
    "recording": Recording,
}


# Parts of an antagonist, beside its job.
_PARTS_BESIDE: dict[str, Any] = {"program": Program, "group": Group}


def _parts(raw: dict[str, Any], kinds: dict[str, Any], where: str) -> dict[str, Any]:
    return {
        name: None if raw.get(name) is None else build(kind, raw[name], f"{where} {name}")
        for name, kind in kinds.items()
    }


def _parse_antagonist(raw: Any, where: str) -> Antagonist:
    check(isinstance(raw, dict), f"{where} is not an object")
    parts = _parts(raw, _PARTS_BESIDE, where)
    if raw.get("job") is not None:
        parts["job"] = _parse_job(raw["job"], f"{where} job")
    return build(Antagonist, {**raw, **parts}, where)


def _check_work(cell: Cell, where: str) -> None:
    works = [work for work in (cell.job, cell.copies, cell.program) if work is not None]
    check(len(works) == 1, f"{where}: it needs one of job, copies and program")
    if cell.copies is not None:
        check_copies(cell.copies, where)
    if cell.program is not None:
        check_program(cell.program, where)
        check(bool(cell.devices) or cell.watch is None, f"{where}: a watch needs a device")
    else:
        on_files = in_memory(cell) and cell.copies is None
        check(bool(cell.devices) or on_files, f"{where}: it has no device")
    if cell.antagonist is not None:
        check_antagonist(cell, cell.antagonist, f"{where} antagonist")
    if cell.recording is not None:
        check_recording(cell, cell.recording, f"{where} recording")


def _parse_job(raw: Any, where: str) -> FioJob:
    """Build and check a fio run; an open job is the one with sections."""
    if not isinstance(raw, dict) or ("sections" not in raw and _OF_JOB & set(raw)):
        job = build(Job, raw, where)
        check_job(job, where)
        return job
    sections = raw.get("sections")
    if sections is not None:
        listed = enumerate(as_list(sections, f"{where}: sections"))
        sections = [build(Section, one, f"{where} section {number}") for number, one in listed]
        raw = {**raw, "sections": sections}
    if raw.get("binary") is not None:
        raw = {**raw, "binary": build(Program, raw["binary"], f"{where} binary")}
    made = build(OpenJob, raw, where)
    check_open_job(made, where)
    return made


def _parse_cell(raw: Any, where: str) -> Cell:
    check(isinstance(raw, dict), f"{where} is not an object")
    devices = [
        build(Device, d, f"{where} device")
        for d in as_list(raw.get("devices"), f"{where}: devices")
    ]
    check("filesystem" in raw, f"{where}: filesystem is missing (null: the device itself)")
    parts = _parts(raw, _PARTS, where)
    if raw.get("job") is not None:
        parts["job"] = _parse_job(raw["job"], f"{where} job")
    if raw.get("antagonist") is not None:
        parts["antagonist"] = _parse_antagonist(raw["antagonist"], f"{where} antagonist")
    cell = build(Cell, {**raw, **parts, "devices": devices}, where)
    check(is_name(cell.id), f"{where}: id {cell.id!r} is not a valid name")
    check_devices(devices, cell.filesystem, where)
    if any(d.kind == "directory" for d in devices):
        check(cell.watch is None, f"{where}: a watch is for I/O on the device itself")
    _check_work(cell, where)
    check_surroundings(cell, where)
    return cell


def parse_plan(raw: Any) -> Plan:
    """Parse a decoded JSON document and check the type and range of every value.

    Raises UserError if a field is unknown, missing or out of range; it names the first one.
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
    check(is_int(plan.draw, 0, 2**31 - 1), "draw must be 0-2147483647")
    for number, cell in enumerate(plan.cells):
        check_cores(cell, plan.cpu, f"cell {number}")
    check_flags(plan, "the block", "coalesced_timers", "hardware")
    unknown = [m for m in as_list(plan.modules, "modules") if not is_one_of(m, _MODULES)]
    check(not unknown, f"unknown modules: {', '.join(map(repr, unknown))}")
    for option in as_list(plan.boot_options, "boot_options"):
        found = _BOOT_OPTION.fullmatch(option) if isinstance(option, str) else None
        known = found is not None and found[1] not in _OF_THE_MACHINE
        check(known, f"{option!r:.80} is no boot option that a plan may have")
    return plan


def load_plan(path: Path) -> Plan:
    """Read a plan from a JSON file; UserError if it cannot be read or is not a valid plan."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the plan {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"the plan {path} is not JSON: {error}") from error
    return parse_plan(raw)
