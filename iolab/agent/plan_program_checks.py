# SPDX-License-Identifier: MIT
"""Checks of programs and antagonists in a plan."""

from __future__ import annotations

import re
from typing import Any

from iolab.agent.plan import Antagonist, Cell
from iolab.agent.plan_checks import check_group
from iolab.agent.plan_program import PROGRAMS, Program
from iolab.agent.plan_values import (
    as_list,
    check,
    check_numbers,
    is_int,
    is_path,
)

__all__ = ["check_antagonist", "check_program"]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST_MS = 3_600_000


def _is_argument(value: Any) -> bool:
    # A NUL ends an argument; the kernel takes at most 128 KiB (MAX_ARG_STRLEN).
    return isinstance(value, str) and "\0" not in value and len(value.encode()) < 1 << 17


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and bool(_SHA256.fullmatch(value))


def _check_value(value: Any, where: str) -> None:
    check(isinstance(value, str) and len(value) <= 1000, f"{where}: value must be a text")
    try:
        groups = re.compile(value).groups
    except re.error as error:
        check(False, f"{where}: value {value!r} is no regular expression: {error}")
    else:
        check(groups == 1, f"{where}: value {value!r} must have one group, not {groups}")


def check_program(program: Program, where: str) -> None:
    """Check a program."""
    argv = as_list(program.argv, f"{where}: argv")
    check(bool(argv), f"{where}: argv is empty")
    check(is_path(argv[0]), f"{where}: {argv[0]!r} is not an absolute path of a program")
    check(all(map(_is_argument, argv)), f"{where}: each argument must be a text without NUL")
    check(isinstance(program.files, dict), f"{where}: files is not an object")
    for path, digest in program.files.items():
        inside = is_path(path) and path.startswith(f"{PROGRAMS}/")
        check(inside, f"{where}: the file {path!r} is not below {PROGRAMS}")
        check(_is_digest(digest), f"{where}: the file {path!r} has no SHA-256")
    if argv[0].startswith(f"{PROGRAMS}/"):
        check(argv[0] in program.files, f"{where}: {argv[0]} is not one of its files")
    cpus = as_list(program.cpus, f"{where}: cpus")
    check(all(is_int(cpu, 0, 4095) for cpu in cpus), f"{where}: cpus must be 0-4095")
    bounds = {"start_delay_us": (0, 10**7), "limit_ms": (1, _LONGEST_MS), "ramp_ms": (0, 0)}
    if program.runtime_ms is not None:
        bounds |= {"runtime_ms": (1, _LONGEST_MS), "ramp_ms": (0, _LONGEST_MS)}
    check_numbers(program, where, bounds)
    if program.value is not None:
        _check_value(program.value, where)


def check_antagonist(cell: Cell, antagonist: Antagonist, where: str) -> None:
    """Check the antagonist of a cell."""
    job, program = antagonist.job, antagonist.program
    check((job is None) is not (program is None), f"{where}: it needs a job or a program")
    # It must run as soon as the steady part begins.
    work = cell.job if cell.job is not None else cell.program
    ramp_ms = 0 if work is None else work.ramp_ms
    latest_ms = max(0, ramp_ms - 1) if is_int(ramp_ms, 0, _LONGEST_MS) else 0
    check_numbers(antagonist, where, {"start_ms": (-_LONGEST_MS, latest_ms)})
    if antagonist.group is not None:
        check_group(antagonist.group, where)
    names = [device.name for device in cell.devices]
    if job is not None:
        check(bool(names), f"{where}: its job needs a device")
    if program is not None:
        check_program(program, where)
    device = antagonist.device
    check(device is None or device in names, f"{where}: no device {device!r}")
    if device is not None and cell.filesystem is not None:
        used = (cell.filesystem.device, cell.filesystem.realtime_device)
        check(device not in used, f"{where}: the device {device!r} has the file system")
