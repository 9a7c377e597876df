# SPDX-License-Identifier: MIT
"""Plans for the agent, short enough to run in a test."""

from __future__ import annotations

import copy
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from iolab.pathology import get_pathology
from iolab.targets.place import Place
from iolab_agent.plan import Plan
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError

# Devices that exist already.
NAMED = {"name": "data", "kind": "named", "path": "/dev/disk/by-id/x-1", "size_mib": 64}
FOLDER = {"name": "data", "kind": "directory", "path": "/srv/a b", "size_mib": 64}

# Not xfs's own modules: mounting loads them, and what mounting loads is no setting.
_IN_GUESTS = ["null_blk", "sd_mod", "crc32c", "xfs", "ext4", "bfq"]


def job(**different: Any) -> dict[str, Any]:
    """Return a job of half a second; fio needs the first tenth to start it."""
    return {
        "engine": "libaio",
        "rw": "randwrite",
        "block_size": 4096,
        "iodepth": 32,
        "numjobs": 1,
        "batch": 32,
        "size_mib": 16,
        "layout": "written",
        "ramp_ms": 200,
        "runtime_ms": 300,
        "seed": 7,
        "direct": True,
        "start_delay_us": 100,
        **different,
    }


def open_job(*sections: dict[str, Any], **different: Any) -> dict[str, Any]:
    """Return a job of any options, for half a second: readers beside a writer."""
    return {
        "sections": list(sections)
        or [
            {"name": "mixed", "options": {"rw": "randrw", "bs": "8k", "rwmixread": "70"}},
            {"name": "log", "options": {"rw": "write", "norandommap": "", "numjobs": "2"}},
        ],
        "size_mib": 16,
        "layout": "written",
        "ramp_ms": 200,
        "runtime_ms": 300,
        "seed": 7,
        **different,
    }


def null_blk_cell(name: str, weight: int | None = None, **different: Any) -> dict[str, Any]:
    """Return a cell as the pathology has them: XFS, its data on a device that stores nothing."""
    return {
        "id": name,
        "devices": [
            {"name": "meta", "kind": "null_blk", "size_mib": 512},
            {
                "name": "data",
                "kind": "null_blk",
                "size_mib": 512,
                "memory_backed": False,
                "irqmode": 2,
                "completion_ns": 10_000,
                "queue_depth": 1024,
            },
        ],
        "filesystem": {"kind": "xfs", "device": "meta", "realtime_device": "data"},
        "group": None if weight is None else {"settings": {"cpu.weight": weight}},
        "job": job(),
        **different,
    }


def copies(**different: Any) -> dict[str, Any]:
    """Return dd processes of a few writes each."""
    return {"block_size": 512, "writes": 4, "processes": 3, "dsync": True, **different}


def copies_cell(name: str, **different: Any) -> dict[str, Any]:
    """Return a cell of copies as the pathology has them: ext4 on a disk in memory."""
    return {
        "id": name,
        "devices": [
            {
                "name": "data",
                "kind": "null_blk",
                "size_mib": 64,
                "irqmode": 2,
                "completion_ns": 200_000,
                "queue_depth": 64,
                "rotational": True,
                "scheduler": "bfq",
                "tunables": {"low_latency": 0},
            }
        ],
        "filesystem": {"kind": "ext4", "device": "data"},
        "group": {"controllers": ["io"]},
        "copies": copies(),
        **different,
    }


def program_cell(name: str, *argv: str, **different: Any) -> dict[str, Any]:
    """Return a cell whose work is a program, without a device."""
    program = {"argv": list(argv), **different}
    return {"id": name, "devices": [], "filesystem": None, "program": program}


def recording_of(name: str, **different: Any) -> dict[str, Any]:
    """Return the recording of a pathology, as a plan has it."""
    recording = get_pathology(name).recording
    assert recording is not None
    return {**asdict(recording), **different}


def plan_document(*cells: dict[str, Any], **different: Any) -> dict[str, Any]:
    """Return a block of cells on core 0."""
    return {
        "format": "iolab-plan/2",
        "block": "test-block",
        "cpu": 0,
        "cells": list(cells) or [null_blk_cell("outside"), null_blk_cell("inside", 1000)],
        "modules": ["null_blk", "crc32c", "xfs"],
        "coalesced_timers": True,
        **different,
    }


def plan_of_every_work() -> dict[str, Any]:
    """Return a plan with each kind of work in it."""
    recorded = copies_cell("copies", recording={"events": ["block:block_rq_issue"]})
    beside = {"program": {"argv": ["/bin/true"]}, "group": {"controllers": ["cpu"]}, "start_ms": 5}
    outside, inside = null_blk_cell("outside"), null_blk_cell("inside", 1000)
    other = null_blk_cell("beside", antagonist=beside)
    controllers = {"cpuset.cpus": "0-1", "cpu.max": "50000 100000", "cpu.weight": 500}
    opened = null_blk_cell("open", group={"settings": controllers}, job=open_job(cpus=[0, 1]))
    return plan_document(outside, inside, recorded, opened, _own_program_cell(), other)


def _own_program_cell() -> dict[str, Any]:
    """Return a cell whose work is a program with a file of its own."""
    files = {"/iolab/programs/a/a": "0" * 64}
    given = {"runtime_ms": 500, "value": r"took ([0-9.]+)", "cpus": [0], "files": files}
    cell = program_cell("program", "/iolab/programs/a/a", "-n", "5", **given)
    return {**cell, "recording": {"events": ["sched:sched_switch"]}}


def changed(raw: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a copy of a document with another value at a place."""
    made = copy.deepcopy(raw)
    holder: Any = made
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return made


def refusal_of(raw: Any) -> str:
    """Return why a document is refused as a plan."""
    try:
        parse_plan(raw)
    except UserError as error:
        return str(error)
    raise AssertionError("it is a plan")


def plan(*cells: dict[str, Any], **different: Any) -> Plan:
    """Return the plan that `plan_document` describes."""
    return parse_plan(plan_document(*cells, **different))


def guest_plan(*cells: dict[str, Any], **different: Any) -> Plan:
    """Return a plan for a virtual machine that loads the same modules as all of them.

    With the same timers and file systems they are restored from the same snapshot, too.
    """
    return plan(*cells, modules=_IN_GUESTS, **different)


def plan_on_files(work: Path, **different: Any) -> Plan:
    """Return a plan on files in a folder, without what not every kernel has."""
    cells = [null_blk_cell("job", job=job(**different)), copies_cell("copies", group=None)]
    cells[1]["devices"][0].update(scheduler="none", tunables={})
    placed = Place(directory=str(work)).put(plan(*cells, block=f"test-{os.getpid()}"))
    small = [replace(c, devices=[replace(d, size_mib=64) for d in c.devices]) for c in placed.cells]
    return replace(placed, cells=small)
