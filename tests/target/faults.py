# SPDX-License-Identifier: MIT
"""A plan whose cells change everything on a machine that a cell can change."""

from __future__ import annotations

from typing import Any

from tests.plans import copies_cell, job, null_blk_cell, plan

__all__ = ["every_change"]

_EVENTS = ["sched:sched_switch", "sched:sched_wakeup"]


def every_change(directory: str, disk: str, serial: str | None = None) -> dict[str, Any]:
    """Return a plan with made devices, a folder, a disk to overwrite, groups and recordings."""
    in_folder = {"name": "data", "kind": "directory", "path": directory, "size_mib": 64}
    on_disk = {"name": "data", "kind": "named", "path": disk, "size_mib": 64, "serial": serial}
    scsi = {"name": "data", "kind": "scsi_debug", "size_mib": 64, "completion_ns": 100_000}
    cells = [
        null_blk_cell(
            "changed",
            1000,
            settings={"dirty_bytes": 64 << 20, "min_granularity_ns": 5_000_000},
            worker_nice=-10,
            count=["__x64_sys_getppid"],
        ),
        null_blk_cell(
            "recorded",
            300,
            recording={"events": _EVENTS, "window_ms": 100, "buffer_kib": 16384},
        ),
        copies_cell("copies"),
        {
            "id": "folder",
            "devices": [{**in_folder, "scheduler": "mq-deadline"}],
            "filesystem": None,
            "job": job(),
            "group": {"controller": "cpu", "weight": 9999},
        },
        {
            "id": "disk",
            "devices": [on_disk],
            "filesystem": {"kind": "ext4", "device": "data"},
            "job": job(),
        },
        {"id": "scsi", "devices": [scsi], "filesystem": None, "job": job(rw="randread")},
    ]
    return plan(*cells, modules=["null_blk", "bfq"], coalesced_timers=False)
