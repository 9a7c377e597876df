# SPDX-License-Identifier: MIT
"""fio: start, command line, files, and checks of its report."""

from __future__ import annotations

import itertools
import json
import mmap
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from iolab_agent.fio_options import ends_of, memory_of, processes_of
from iolab_agent.journal import Journal
from iolab_agent.plan import FioJob, Job, OpenJob, Section
from iolab_agent.proc import available_memory
from iolab_agent.workplace import RUN, Workplace
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import run, start

# Bytes of one write while files are laid out.
_LAYOUT_WRITE = 16 << 20
_LAYOUT_S = 600.0
_SIDES = ("read", "write", "trim")


class FioError(IolabError):
    """fio's report is missing, damaged or not a report of a job."""


def job_files(job: FioJob, folder: Path) -> list[Path]:
    """Return the files of a job, one for each process.

    Those of an open job are named "iolab.SECTION.PROCESS", unless all processes share one.
    """
    if isinstance(job, OpenJob) and not job.shared_file:
        return [
            folder / f"iolab.{number}.{process}"
            for number, section in enumerate(job.sections)
            if not section.makes_files
            for process in range(processes_of(section.options))
        ]
    return [folder / f"iolab.{number}" for number in range(job.files)]


def unexpected_files(job: FioJob, folder: Path) -> list[str]:
    """Return, sorted, the files in a folder that are not the job's: its I/O may have gone there."""
    if job.makes_files:
        return []
    known = {p.name for p in job_files(job, folder)}
    # mke2fs makes lost+found in every file system.
    return sorted({p.name for p in folder.iterdir()} - known - {"lost+found"})


def lay_out(job: FioJob, folder: Path) -> None:
    """Make the job's files: "written" writes zeros, "unwritten" allocates, "growing" makes none.

    Raises CannotRunError if fio would fill the disk to reach the job's offsets, OSError if the
    device is too small.
    """
    _check_room(job, folder)
    if job.layout == "growing":
        return
    size = job.size_mib << 20
    for path in job_files(job, folder):
        # A direct job's file stays out of the page cache; a buffered job's file is in it.
        direct = os.O_DIRECT if job.direct else 0
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | direct, 0o600)
        try:
            os.posix_fallocate(handle, 0, size)
            if job.layout == "written":
                # Large writes: on a device that completes once a tick, each write waits a tick.
                with mmap.mmap(-1, min(size, _LAYOUT_WRITE)) as buffer:
                    for offset in range(0, size, len(buffer)):
                        os.pwrite(handle, memoryview(buffer)[: size - offset], offset)
            # No dirty page remains to be written while the job is measured.
            os.fsync(handle)
        finally:
            os.close(handle)


def _check_room(job: FioJob, folder: Path) -> None:
    if not isinstance(job, OpenJob):
        return
    size = job.size_mib << 20
    own = [section.options for section in job.sections if not section.makes_files]
    ends = [end for options in own for end in ends_of(options, size)]
    # Only what fio adds: the file system checks that the files themselves fit.
    more = max(ends, default=size) - size if job.shared_file else sum(ends) - size * job.files
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if more > free // 2:
        raise CannotRunError(
            f"with its offsets the fio job would add {more >> 20} MiB to its files, and "
            f"{free >> 20} MiB are free: lower offset or offset_increment"
        )


def start_fio(
    journal: Journal, job: FioJob, place: Workplace, *, name: str
) -> tuple[subprocess.Popen[bytes], Path, Path]:
    """Start a job in a new, empty folder, where a bare name matches no file of this machine.

    Return fio, the file for its report, and the file for its other output. `name` distinguishes
    jobs that run at the same time. Raises CannotRunError if there is too little memory for the job.
    """
    _check_memory(job)
    report, said, folder = (RUN / f"fio-{name}{end}" for end in (".json", ".err", ".cwd"))
    for path in (report, said):
        journal.note("unlink", str(path))
    journal.note("tree", str(folder))
    folder.mkdir(mode=0o700)
    # fio removes TMPDIR/fio-dump-status, and puts a second report before its own if it was there
    # (check_status_file() of stat.c): in /tmp any user can make it.
    environment = {**os.environ, "TMPDIR": str(folder)}
    if isinstance(job, OpenJob) and job.makes_files:
        _let_fio_lay_out(job, place, folder, environment)
    argv = fio_argv(job, place, report)
    with said.open("wb") as stream:
        fio = start(
            argv,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            cgroup=place.group,
        )
    return fio, report, said


def _let_fio_lay_out(
    job: OpenJob, place: Workplace, folder: Path, environment: Mapping[str, str]
) -> None:
    """Make the files that the sections name, with data in them if the layout is "written"."""
    if job.layout == "growing":
        return
    more = {"create_only": "1", **({"overwrite": "1"} if job.layout == "written" else {})}
    sections = [
        Section(s.name, {k: v for k, v in s.options.items() if not k.startswith("exec_")} | more)
        for s in job.sections
        if s.makes_files
    ]
    argv = fio_argv(replace(job, sections=sections), place, folder / "layout")
    said = run(argv, timeout_s=_LAYOUT_S, check=False, env=dict(environment), cwd=folder)
    if said.returncode:
        raise CannotRunError(f"fio cannot make the job's files: {said.stdout.strip()[-300:]}")
    os.sync()
    if job.direct:
        # As after a layout by direct writes. Only a virtual machine gets here.
        Path("/proc/sys/vm/drop_caches").write_text("1")


def _check_memory(job: FioJob) -> None:
    if isinstance(job, OpenJob):
        options = [section.options for section in job.sections]
    else:
        numbers = {"bs": job.block_size, "iodepth": job.iodepth, "numjobs": job.numjobs}
        options = [{"norandommap": "", **{name: str(value) for name, value in numbers.items()}}]
    needed = sum(memory_of(each, job.size_mib << 20) for each in options)
    free = available_memory()
    # Leave the rest to the files' pages and to other programs.
    if free and needed > free * 3 // 4:
        raise CannotRunError(
            f"the fio job needs {needed >> 20} MiB of memory, and {free >> 20} MiB are available: "
            "lower iodepth, bs or numjobs"
        )


def fio_argv(job: FioJob, place: Workplace, report: Path) -> list[str]:
    """Return the command line of a job at a place, with a json+ report.

    The job is pinned to the place's core unless it names its own cores.
    """
    own = _open_argv(job, place) if isinstance(job, OpenJob) else _argv(job, place.files)
    return [
        *(["fio"] if job.binary is None else job.binary.argv),
        f"--size={job.size_mib}m",
        *([] if job.to_end else ["--time_based=1"]),
        f"--runtime={job.runtime_ms}ms",
        f"--ramp_time={job.ramp_ms}ms",
        f"--cpus_allowed={','.join(map(str, job.cpus or [place.cpu]))}",
        "--randrepeat=1",
        f"--randseed={job.seed}",
        "--fallocate=none",
        "--invalidate=0",
        "--output-format=json+",
        f"--output={report}",
        *own,
    ]


def _named(option: str, path: Path) -> str:
    # An unescaped colon separates file names.
    return f"--{option}=" + str(path).replace(":", "\\:")


def _argv(job: Job, files: Sequence[Path]) -> list[str]:
    argv = [
        f"--rw={job.rw}",
        f"--bs={job.block_size}",
        f"--ioengine={job.engine}",
        f"--direct={int(job.direct)}",
        f"--iodepth={job.iodepth}",
        f"--iodepth_batch_submit={job.batch}",
        f"--iodepth_batch_complete_min={job.batch_min}",
        f"--iodepth_batch_complete_max={job.batch}",
        "--group_reporting=1",
        "--norandommap=1",
    ]
    if job.dsync:
        argv.append("--sync=dsync")
    # Each job names its file: otherwise fio uses the job's name if a file of that name exists in
    # its working directory.
    for number, path in enumerate(files):
        argv += [f"--name=job{number}", _named("filename", path)]
    return argv


def _open_argv(job: OpenJob, place: Workplace) -> list[str]:
    argv: list[str] = []
    files = place.files
    for number, section in enumerate(job.sections):
        argv.append(f"--name={section.name}")
        if section.makes_files:
            pass
        elif len(set(files)) == 1:
            argv.append(_named("filename", files[0]))
        else:
            # fio itself multiplies the processes: offset_increment counts them.
            argv.append(_named("directory", files[0].parent))
            argv.append(f"--filename_format=iolab.{number}.$jobnum")
        # fio knows an engine's options once it knows the engine.
        options = sorted(section.options.items(), key=lambda item: (item[0] != "ioengine", item))
        filled = [
            (name, _filled(value, place) if job.unchecked else value) for name, value in options
        ]
        argv += [f"--{name}={value}" if value else f"--{name}" for name, value in filled]
    return argv


def _filled(value: str, place: Workplace) -> str:
    """Return a value with the work's folder and devices filled in."""
    for number, node in enumerate(place.nodes):
        value = value.replace(f"{{device:{number}}}", str(node))
    return value.replace("{folder}", str(place.folder))


def parse_report(text: str) -> dict[str, Any]:
    """Extract fio's JSON report from its output, which may begin with other text.

    Raises FioError if it is missing, truncated or not a report of fio.
    """
    start = text.find("{")
    if start < 0:
        raise FioError("fio wrote no JSON report: " + (text.strip()[-200:] or "no output"))
    try:
        report, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError as error:
        raise FioError(f"fio's JSON report is damaged: {error}") from error
    try:
        complete = bool(report["fio version"])
        for job, side in itertools.product(report["jobs"], ("read", "write")):
            complete &= all(isinstance(job[side][n], int) for n in ("total_ios", "runtime"))
        complete &= bool(report["jobs"])
    except (KeyError, IndexError, TypeError):
        complete = False
    if not complete:
        raise FioError("the JSON is not a fio report with a job in it")
    return dict(report)


def active_sides(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the directions (read, write, trim) in which one of a report's jobs did I/O.

    Those with both I/Os and time: fio counts I/Os but no time for cpuio, which does no I/O.
    """
    sides = (result[name] for name in _SIDES if name in result)
    return [side for side in sides if side["total_ios"] and side["runtime"]]


def report_gates(report: dict[str, Any], job: FioJob) -> list[str]:
    """Return why a report is not a valid measurement of a job; empty if it is."""
    gates = []
    idle = set()
    if isinstance(job, OpenJob):
        # cpuio uses a core, not a file: fio counts neither its time nor real I/O.
        idle = {s.name for s in job.sections if s.options.get("ioengine") == "cpuio"}
    for result in report["jobs"]:
        name = f"fio's {result['jobname']}" if isinstance(job, OpenJob) else "fio"
        if result.get("error"):
            gates.append(f"{name} reports error {result['error']}")
        sides = active_sides(result)
        if isinstance(job, Job):
            # The other direction does not count.
            sides = [
                side for side in sides if side is result["write" if "write" in job.rw else "read"]
            ]
        elif result["jobname"] in idle:
            continue
        if not sides:
            gates.append(f"{name} did no I/O")
            continue
        if job.to_end:
            continue
        # A ramp that fio ignored makes the run longer than asked for.
        ran_ms = max(side["runtime"] for side in sides)
        if abs(ran_ms - job.runtime_ms) > max(0.1 * job.runtime_ms, 20):
            gates.append(f"{name} ran {ran_ms} ms instead of {job.runtime_ms} ms")
    return gates
