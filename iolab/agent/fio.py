# SPDX-License-Identifier: MIT
"""fio's command line, its files and its report."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iolab.agent.plan import Job
from iolab.errors import IolabError

__all__ = [
    "FioError",
    "fio_argv",
    "job_files",
    "lay_out",
    "parse_report",
    "report_gates",
    "strange_files",
]

_PATTERN = 16 << 20


class FioError(IolabError):
    """fio's report is missing, unreadable or not the report of the job that was asked for."""


def job_files(job: Job, folder: Path) -> list[Path]:
    """Return the file of each of a job's processes, in a folder."""
    return [folder / f"iolab.{number}" for number in range(job.numjobs)]


def strange_files(job: Job, folder: Path) -> list[str]:
    """Return the files in `folder` that are not the job's: I/O that went astray."""
    known = {p.name for p in job_files(job, folder)}
    # mke2fs makes this folder in every file system.
    return sorted({p.name for p in folder.iterdir()} - known - {"lost+found"})


def lay_out(job: Job, folder: Path) -> None:
    """Make the job's files in `folder` with written extents or with unwritten ones, or leave them.

    Errors: OSError, when the device is too small.
    """
    if job.layout == "growing":
        return
    size = job.size_mib << 20
    for path in job_files(job, folder):
        # A direct job's file stays out of the cache; a buffered job finds its own there.
        past_cache = os.O_DIRECT if job.direct else 0
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | past_cache, 0o600)
        try:
            os.posix_fallocate(handle, 0, size)
            if job.layout == "written":
                # Large writes: on a device that completes once a tick, each of them waits for one.
                with mmap.mmap(-1, min(size, _PATTERN)) as buffer:
                    for offset in range(0, size, len(buffer)):
                        os.pwrite(handle, memoryview(buffer)[: size - offset], offset)
            # No dirty page is left to be written while the job is measured.
            os.fsync(handle)
        finally:
            os.close(handle)


def fio_argv(job: Job, files: Sequence[Path], report: Path, *, cpu: int) -> list[str]:
    """Return the command that runs `job`, a process for each of `files`, and reports to `report`.

    `cpu` is the core it is pinned to unless the job names its own.
    """
    argv = [
        "fio",
        f"--size={job.size_mib}m",
        f"--rw={job.rw}",
        f"--bs={job.block_size}",
        f"--ioengine={job.engine}",
        f"--direct={int(job.direct)}",
        f"--iodepth={job.iodepth}",
        f"--iodepth_batch_submit={job.batch}",
        f"--iodepth_batch_complete_min={job.batch_min}",
        f"--iodepth_batch_complete_max={job.batch}",
        "--group_reporting=1",
        "--time_based=1",
        f"--runtime={job.runtime_ms}ms",
        f"--ramp_time={job.ramp_ms}ms",
        f"--cpus_allowed={','.join(map(str, job.cpus or [cpu]))}",
        "--norandommap=1",
        "--randrepeat=1",
        f"--randseed={job.seed}",
        "--fallocate=none",
        "--invalidate=0",
        "--output-format=json+",
        f"--output={report}",
    ]
    if job.dsync:
        argv.append("--sync=dsync")
    # Each job names its file: left to itself, fio takes the job's name as the file's when something
    # of that name stands in its working directory.
    for number, path in enumerate(files):
        # A colon would begin the name of a second file.
        name = str(path).replace(":", "\\:")
        argv += [f"--name=job{number}", f"--filename={name}"]
    return argv


def parse_report(text: str) -> dict[str, Any]:
    """Return fio's JSON report out of its output, which may hold other text before it.

    Errors: FioError if there is no JSON object, it is cut short, or it is no report of fio.
    """
    start = text.find("{")
    if start < 0:
        raise FioError("fio wrote no JSON report: " + (text.strip()[-200:] or "nothing at all"))
    try:
        report, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError as error:
        raise FioError(f"fio's JSON report is damaged: {error}") from error
    try:
        whole = bool(report["fio version"])
        for side in ("read", "write"):
            numbers = report["jobs"][0][side]
            whole &= all(isinstance(numbers[n], int) for n in ("total_ios", "runtime"))
    except (KeyError, IndexError, TypeError):
        whole = False
    if not whole:
        raise FioError("the JSON is no report of fio with a job in it")
    return dict(report)


def report_gates(report: dict[str, Any], job: Job) -> list[str]:
    """Return why a report is no valid measurement of `job`; empty when it is one."""
    gates = []
    result = report["jobs"][0]
    if result.get("error"):
        gates.append(f"fio reports error {result['error']}")
    side = result["write" if "write" in job.rw else "read"]
    if not side["total_ios"]:
        gates.append("fio did no I/O")
    # A ramp that was not honoured shows as a run longer than asked for.
    ran_ms = side["runtime"]
    if abs(ran_ms - job.runtime_ms) > max(0.1 * job.runtime_ms, 20):
        gates.append(f"fio ran {ran_ms} ms instead of {job.runtime_ms} ms")
    return gates
