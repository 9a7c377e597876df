# SPDX-License-Identifier: MIT
"""An agent's results folder with numbers that can be checked by hand."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.pathology.expressions import override
from iolab_agent.plan import Plan

TARGET = {"target": "vm", "qemu": "QEMU 10.0.0 sha256:0", "agent": "0" * 64}


def block(boot: int = 0, kernel: str = "6.1") -> Block:
    """Return a block of four cells: a treated pair and an A/A pair."""
    pathology = get_pathology("dio_kworker")
    profile = override(pathology, pathology.profiles["smoke"], ["weight=1000"])
    profile = replace(profile, recorded={}, boots=max(profile.boots, boot + 1))
    return blocks_of(pathology, profile, kernel=kernel, clock="virtual")[boot]


def _task(comm: str, *, job: bool, ran_ns: int, voluntary: int, forced: int) -> dict[str, Any]:
    return {
        "comm": comm,
        "job": job,
        "ran_ns": ran_ns,
        "waited_ns": 0,
        "nice": 0,
        "voluntary_ctxt_switches": voluntary,
        "nonvoluntary_ctxt_switches": forced,
    }


def result(name: str = "c000") -> Any:
    """Return what the agent records of a cell: 2000 I/Os in 1 s, 0.2 s of fio, 0.1 s of a kworker.

    Another core's kworker, an unbound one, and a process that is no kworker worked too.
    """
    silent = {"total_ios": 0, "runtime": 0, "clat_ns": {"mean": 0.0}}
    busy = {
        "total_ios": 1500,
        "runtime": 500,
        "clat_ns": {
            "mean": 4000.0,
            "bins": {"8192": 500, "3008": 1000},
        },
    }
    first = {
        "at_ns": 1_000_000_000,
        "context_switches": 100,
        "cpu": {"running_ns": 50, "waiting_ns": 0, "switched_in": 0},
        "ios": 10,
        "tasks": {
            "10": _task("fio", job=True, ran_ns=1000, voluntary=1, forced=2),
            "20": _task("kworker/0:1-dio/nullb0", job=False, ran_ns=500, voluntary=0, forced=0),
            "21": _task("kworker/10:0", job=False, ran_ns=0, voluntary=0, forced=0),
        },
    }
    last = {
        "at_ns": 2_000_000_000,
        "context_switches": 100 + 5000,
        "cpu": {"running_ns": 50 + 400_000_000, "waiting_ns": 9, "switched_in": 9},
        "ios": 10 + 2000,
        "tasks": {
            "10": _task("fio", job=True, ran_ns=1000, voluntary=1, forced=2),
            # Came after the first sample: all it did counts.
            "11": _task("fio", job=True, ran_ns=200_000_000, voluntary=1000, forced=500),
            "20": _task(
                "kworker/0:1-dio/nullb0", job=False, ran_ns=500 + 100_000_000, voluntary=7, forced=7
            ),
            "21": _task("kworker/10:0", job=False, ran_ns=900_000_000, voluntary=7, forced=7),
            "22": _task("kworker/u2:0", job=False, ran_ns=900_000_000, voluntary=7, forced=7),
        },
    }
    report = {"fio version": "fio-3.33", "jobs": [{"error": 0, "write": busy, "read": silent}]}
    return {
        "id": name,
        "state": "done",
        "gates": [],
        "fio": report,
        "fio_said": "",
        "first": first,
        "last": last,
    }


def copied() -> Any:
    """Return what the agent records of a cell of dd: 40 writes in 0.05 s, of two processes."""

    def dd(began_ns: int, seconds: float, ran_ns: int) -> dict[str, Any]:
        return {
            "began_ns": began_ns,
            "ended_ns": began_ns + round(seconds * 1e9) + 5_000_000,
            "writes": 20,
            "bytes": 20 * 512,
            "seconds": seconds,
            "ran_ns": ran_ns,
            "voluntary_ctxt_switches": 40,
            "nonvoluntary_ctxt_switches": 10,
        }

    made = result("c000")
    del made["fio"], made["fio_said"]
    for look in (made["first"], made["last"]):
        look["tasks"] = {pid: task for pid, task in look["tasks"].items() if not task["job"]}
    made["copies"] = [dd(1_100_000_000, 0.02, 30_000_000), dd(1_500_000_000, 0.03, 70_000_000)]
    return made


def write_results(
    folder: Path,
    plan: Plan,
    preflight: list[dict[str, Any]] | None = None,
    facts: dict[str, Any] | None = None,
    **different: dict[str, Any],
) -> Path:
    """Write what the agent leaves of a block; `different` are other results for some cells."""
    (folder / "cells").mkdir(parents=True)
    facts = dict(facts or {"kernel_release": "6.1.0-made-up", "scheduler": "CFS"})
    if preflight is not None:
        facts["preflight"] = preflight
    files = {"facts.json": facts}
    for cell in plan.cells:
        files[f"cells/{cell.id}.json"] = different.get(cell.id, result(cell.id))
    digests = {}
    for name, value in files.items():
        data = json.dumps(value).encode()
        (folder / name).write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
    status = {"block": plan.block, "sha256": digests}
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "console.txt").write_text("[    0.1] a line\niolab: cell 4/4 c003 done\n")
    return folder
