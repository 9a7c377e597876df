# SPDX-License-Identifier: MIT
"""Read a plan and check every value, before anything on the machine is touched."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from iolab.agent.plan import (
    FORMAT,
    Cell,
    Copies,
    Device,
    FileSystem,
    Group,
    Job,
    Plan,
    Recording,
    Watch,
)
from iolab.errors import UserError

__all__ = ["load_plan", "parse_plan"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NODE = re.compile(r"/dev/[A-Za-z0-9._:+@=/-]{1,200}")
_EVENT = re.compile(r"[a-z0-9_]{1,40}:[a-zA-Z0-9_]{1,60}")
_KINDS = {"null_blk", "scsi_debug", "loop", "zram", "brd", "named", "directory"}
# Fields of devices that are made.
_OF_MADE = ("memory_backed", "irqmode", "completion_ns", "queue_depth", "rotational", "integrity")
_FILE_SYSTEMS = {"xfs", "ext4"}
_ENGINES = {"libaio", "io_uring", "psync"}
_RW = {"read", "write", "randread", "randwrite"}
_SCHEDULERS = {"none", "mq-deadline", "bfq", "kyber"}
_MODULES = {"null_blk", "scsi_debug", "sd_mod", "loop", "zram", "xfs", "ext4", "crc32c", "bfq"}
_LAYOUTS = {"written", "unwritten", "growing"}
_CONTROLLERS = {"cpu", "io"}
_PLACES = {"node", "directory", "other"}
_WATCHED = {"close_write", "attrib", "delete"}
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}")
_TUNABLE = re.compile(r"[a-z][a-z0-9_]{0,39}")

_NOT_ABSOLUTE = "is not an absolute path"

_T = TypeVar("_T")


def _check(condition: bool, fault: str) -> None:
    if not condition:
        raise UserError(f"plan: {fault}")


def _build(kind: type[_T], raw: Any, where: str) -> _T:
    """Build a part of the plan from a JSON object; `where` names it in errors."""
    _check(isinstance(raw, dict), f"{where} is not an object")
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(raw) - known)
    _check(not unknown, f"{where} has unknown fields: {', '.join(unknown)}")
    try:
        return kind(**raw)
    except TypeError as error:
        raise UserError(f"plan: {where}: {error}") from error


def _is_int(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _check_numbers(part: Any, where: str, bounds: dict[str, tuple[int, int]]) -> None:
    for name, (low, high) in bounds.items():
        value = getattr(part, name)
        _check(_is_int(value, low, high), f"{where}: {name} must be {low}-{high}, not {value!r}")


def _check_flags(part: Any, where: str, *names: str) -> None:
    for name in names:
        value = getattr(part, name)
        _check(isinstance(value, bool), f"{where}: {name} must be true or false, not {value!r}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value))


def _is_text(value: Any, longest: int) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= longest


def _is_path(value: Any) -> bool:
    if not _is_text(value, 1024) or not value.startswith("/"):
        return False
    return not {"", ".", ".."} & set(value.split("/")[1:])


def _is_one_of(value: Any, known: set[str]) -> bool:
    return isinstance(value, str) and value in known


def _list(value: Any, where: str) -> list[Any]:
    _check(isinstance(value, list), f"{where} must be a list, not {value!r}")
    return list(value)


def _check_values(values: Any, where: str) -> None:
    _check(isinstance(values, dict), f"{where} is not an object")
    for name, value in values.items():
        _check(isinstance(name, str) and bool(_TUNABLE.fullmatch(name)), f"{where}: {name!r}")
        _check(_is_int(value, 0, 10**12), f"{where}: {name} must be 0-10^12, not {value!r}")


def _check_device(device: Device, where: str) -> None:
    _check(_is_name(device.name), f"{where}: {device.name!r} is not a valid device name")
    _check(_is_one_of(device.kind, _KINDS), f"{where}: unknown device kind {device.kind!r}")
    _check(
        _is_one_of(device.scheduler, _SCHEDULERS),
        f"{where}: unknown scheduler {device.scheduler!r}",
    )
    _check_flags(device, where, "memory_backed", "rotational", "integrity")
    _check_values(device.tunables, f"{where}: tunables")
    _check_numbers(
        device,
        where,
        {
            "size_mib": (16, 1 << 20),
            "irqmode": (0, 2),
            "completion_ns": (0, 10**9),
            "queue_depth": (1, 4096),
        },
    )
    _check_real(device, where)


def _check_real(device: Device, where: str) -> None:
    if not device.real:
        if device.kind == "loop" and device.path != "":
            _check(_is_path(device.path), f"{where}: {device.path!r} {_NOT_ABSOLUTE}")
        else:
            _check(device.path == "", f"{where}: a {device.kind} device has no path")
        _check(device.serial is None, f"{where}: a {device.kind} device has no serial")
        return
    defaults = {f.name: f.default for f in fields(Device) if f.name in _OF_MADE}
    changed = [name for name, value in defaults.items() if getattr(device, name) != value]
    _check(not changed, f"{where}: a {device.kind} device cannot be given {', '.join(changed)}")
    _check(_is_path(device.path), f"{where}: {device.path!r} {_NOT_ABSOLUTE}")
    if device.kind == "directory":
        _check(device.serial is None, f"{where}: a directory has no serial")
        return
    _check(bool(_NODE.fullmatch(device.path)), f"{where}: {device.path!r} is not a device node")
    valid = device.serial is None or _is_text(device.serial, 128)
    _check(valid, f"{where}: {device.serial!r} is not a serial number")


def _check_job(job: Job, where: str) -> None:
    _check(_is_one_of(job.engine, _ENGINES), f"{where}: unknown ioengine {job.engine!r}")
    _check(_is_one_of(job.rw, _RW), f"{where}: unknown rw {job.rw!r}")
    _check(_is_one_of(job.layout, _LAYOUTS), f"{where}: unknown layout {job.layout!r}")
    _check_flags(job, where, "direct", "dsync")
    cpus = _list(job.cpus, f"{where}: cpus")
    _check(all(_is_int(cpu, 0, 4095) for cpu in cpus), f"{where}: cpus must be 0-4095")
    _check_numbers(
        job,
        where,
        {
            "block_size": (512, 1 << 24),
            "iodepth": (1, 4096),
            "numjobs": (1, 512),
            "batch": (1, 4096),
            "batch_min": (1, 4096),
            "size_mib": (1, 1 << 20),
            "ramp_ms": (0, 3_600_000),
            "runtime_ms": (1, 3_600_000),
            "seed": (1, 2**63 - 1),
            "start_delay_us": (0, 10**7),
        },
    )
    # fio silently ignores a ramp that is not shorter than the run (axboe/fio#2041).
    _check(job.runtime_ms > job.ramp_ms, f"{where}: runtime_ms must exceed ramp_ms")
    # fio would silently lower it to the batch.
    _check(job.batch_min <= job.batch, f"{where}: batch_min must not exceed batch")


def _check_copies(copies: Copies, where: str) -> None:
    _check_flags(copies, where, "dsync")
    _check_numbers(
        copies,
        where,
        {
            "block_size": (512, 1 << 24),
            "writes": (1, 10**6),
            "processes": (1, 10_000),
            "start_delay_us": (0, 10**7),
        },
    )


def _check_recording(recording: Recording, job: Job | None, where: str) -> None:
    names = _list(recording.events, f"{where}: events") + _list(recording.also, f"{where}: also")
    invalid = [n for n in names if not (isinstance(n, str) and _EVENT.fullmatch(n))]
    _check(not invalid, f"{where}: invalid tracepoint names: {', '.join(map(repr, invalid))}")
    _check(bool(recording.events), f"{where}: it records no event")
    _check_numbers(recording, where, {"buffer_kib": (16384, 1 << 20)})
    if job is not None:
        _check_numbers(recording, where, {"window_ms": (1, job.runtime_ms)})
    else:
        _check(recording.window_ms is None, f"{where}: copies are recorded whole, no window_ms")


def _check_filesystem(filesystem: FileSystem, devices: list[Device], where: str) -> None:
    kind, realtime = filesystem.kind, filesystem.realtime_device
    names = [d.name for d in devices]
    _check(_is_one_of(kind, _FILE_SYSTEMS), f"{where}: unknown file system {kind!r}")
    _check(filesystem.device in names, f"{where}: no device {filesystem.device!r}")
    if realtime is not None:
        _check(realtime in names, f"{where}: no device {realtime!r}")
        _check(kind == "xfs", f"{where}: only xfs has a realtime_device")
        _check(realtime != filesystem.device, f"{where}: realtime_device must be a second device")
    not_stored = [d.name for d in devices if not d.memory_backed]
    # XFS reads its metadata from the device, not from the device's page cache.
    lost = kind == "xfs" and filesystem.device in not_stored
    _check(not lost, f"{where}: xfs needs a device that stores its metadata")


def _check_surroundings(cell: Cell, where: str) -> None:
    group, watch = cell.group, cell.watch
    if group is not None:
        known = _is_one_of(group.controller, _CONTROLLERS)
        _check(known, f"{where}: unknown controller {group.controller!r}")
        valid = group.weight is None or _is_int(group.weight, 1, 10000)
        _check(valid, f"{where}: {group.controller}.weight must be 1-10000, not {group.weight!r}")
    if watch is not None:
        _check(_is_one_of(watch.on, _PLACES), f"{where}: cannot watch {watch.on!r}")
        _check(_is_one_of(watch.event, _WATCHED), f"{where}: unknown event {watch.event!r}")
        _check(cell.filesystem is None, f"{where}: a watch is for I/O on the device itself")
    _check_values(cell.settings, f"{where}: settings")
    _check_numbers(cell, where, {"worker_nice": (-20, 19)})
    invalid = [
        name
        for name in _list(cell.count, f"{where}: count")
        if not (isinstance(name, str) and _FUNCTION.fullmatch(name))
    ]
    _check(not invalid, f"{where}: invalid function names: {', '.join(map(repr, invalid))}")


_PARTS: dict[str, Any] = {
    "job": Job,
    "copies": Copies,
    "filesystem": FileSystem,
    "group": Group,
    "watch": Watch,
    "recording": Recording,
}


def _parse_cell(raw: Any, where: str) -> Cell:
    _check(isinstance(raw, dict), f"{where} is not an object")
    devices = [
        _build(Device, d, f"{where} device") for d in _list(raw.get("devices"), f"{where}: devices")
    ]
    _check("filesystem" in raw, f"{where}: filesystem is missing (null: the device itself)")
    parts = {
        name: None if raw.get(name) is None else _build(kind, raw[name], f"{where} {name}")
        for name, kind in _PARTS.items()
    }
    cell = _build(Cell, {**raw, **parts, "devices": devices}, where)
    _check(_is_name(cell.id), f"{where}: id {cell.id!r} is not a valid name")
    _check(bool(devices), f"{where}: it has no device")
    for device in devices:
        _check_device(device, where)
    names = [d.name for d in devices]
    _check(len(set(names)) == len(names), f"{where}: two devices have one name")
    if any(d.kind == "directory" for d in devices):
        single = len(devices) == 1 and cell.filesystem is None
        _check(single, f"{where}: a directory has its file system and no device beside it")
        _check(cell.watch is None, f"{where}: a watch is for I/O on the device itself")
    if cell.filesystem is not None:
        _check_filesystem(cell.filesystem, devices, where)
    _check((cell.job is None) is not (cell.copies is None), f"{where}: it needs a job or copies")
    if cell.job is not None:
        _check_job(cell.job, where)
    if cell.copies is not None:
        _check_copies(cell.copies, where)
    if cell.recording is not None:
        _check_recording(cell.recording, cell.job, f"{where} recording")
    _check_surroundings(cell, where)
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
    _check(isinstance(raw, dict), "not an object")
    version = raw.get("format")
    _check(version == FORMAT, f"its format is {version!r}, this agent reads {FORMAT!r}")
    cells = [_parse_cell(c, f"cell {n}") for n, c in enumerate(_list(raw.get("cells"), "cells"))]
    _check(bool(cells), "it has no cells")
    _check(len({c.id for c in cells}) == len(cells), "two cells have one id")
    rest = {k: v for k, v in raw.items() if k != "format"}
    plan = _build(Plan, {**rest, "cells": cells}, "the block")
    _check(_is_name(plan.block), f"block {plan.block!r} is not a valid name")
    _check(_is_int(plan.cpu, 0, 4095), "cpu must be 0-4095")
    _check_flags(plan, "the block", "coalesced_timers", "hardware")
    unknown = [m for m in _list(plan.modules, "modules") if not _is_one_of(m, _MODULES)]
    _check(not unknown, f"unknown modules: {', '.join(map(repr, unknown))}")
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
