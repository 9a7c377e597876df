# SPDX-License-Identifier: MIT
"""Do and measure a cell's work: a fio job, dd processes or a program, and what is beside it."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iolab_agent.copies import copies_gates, run_copies
from iolab_agent.fio import parse_report, report_gates, start_fio, unexpected_files
from iolab_agent.journal import Journal
from iolab_agent.observer import Observer
from iolab_agent.plan import Cell, Copies, FioJob, Program, Watch
from iolab_agent.prepare import has_files
from iolab_agent.proc import is_kernel_thread, processes, stat_of
from iolab_agent.program import RunningProgram, pause, program_gates
from iolab_agent.workplace import ANTAGONIST_FOLDER, Workplace
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import kill_group

# fio starts its job a little later than its process: keeps both samples inside the job's run.
_MARGIN_S = 0.05
_LATE_S = 60.0


def _measure_copies(copies: Copies, *, place: Workplace, observer: Observer) -> dict[str, Any]:
    """Run the copies between two samples; return their results, the samples and the gates."""
    observer.before_work(copies.start_delay_us)
    recorder = observer.recorder
    first = observer.sample(None)
    if recorder is not None:
        recorder.open()
    done = run_copies(copies, place.files, cpu=place.cpu, group=place.group)
    if recorder is not None:
        recorder.close()
    last = observer.sample(None)
    gates = copies_gates(copies, completed=last["ios"] - first["ios"])
    return {"copies": done, "first": first, "last": last, "gates": gates}


def _observe_job(
    journal: Journal,
    cell: Cell,
    job: FioJob,
    fio: subprocess.Popen[bytes],
    observer: Observer,
) -> dict[str, Any]:
    """Sample at the start and the end of the job's steady part, and wait for the job's end.

    With a recorder the samples enclose its window.
    """
    began = time.monotonic()
    reniced = []

    def renice() -> None:
        if cell.worker_nice:
            reniced.append(renice_workers(journal, cpu=observer.cpu, nice=cell.worker_nice))

    steady_from_s = job.ramp_ms / 1e3 + _MARGIN_S
    steady_until_s = (job.ramp_ms + job.runtime_ms) / 1e3 - _MARGIN_S
    renice()
    # Workers that the kernel has made for the job, before anything is measured.
    observer.wait_from(began, job.ramp_ms / 2e3)
    renice()
    observer.wait_from(began, steady_from_s)
    first = observer.sample(fio.pid)
    window_ms = None if cell.recording is None else cell.recording.window_ms
    if observer.recorder is not None and window_ms is not None:
        observer.recorder.open()
        observer.wait_from(began, min(steady_until_s, steady_from_s + window_ms / 1e3))
        observer.recorder.close()
    else:
        observer.wait_from(began, steady_until_s)
    last = observer.sample(fio.pid)
    fio.wait((job.ramp_ms + job.runtime_ms) / 1e3 + _LATE_S)
    return {"first": first, "last": last, "reniced": reniced}


def _observe_to_end(
    job: FioJob, fio: subprocess.Popen[bytes], observer: Observer, first: dict[str, Any]
) -> dict[str, Any]:
    """Sample when a job has ended by itself; its recorder covers the whole run."""
    recorder = observer.recorder
    if recorder is not None:
        recorder.open()
    end = os.pidfd_open(fio.pid)
    try:
        ended = pause(time.monotonic() + job.runtime_ms / 1e3 + _LATE_S, end=end)
    finally:
        os.close(end)
    if recorder is not None:
        recorder.close()
    if not ended:
        raise subprocess.TimeoutExpired("fio", _LATE_S)
    _, status, usage = os.wait4(fio.pid, 0)
    fio.returncode = os.waitstatus_to_exitcode(status)
    last = observer.sample(None)
    # The kernel adds fio's processes to it when they end; samples include only living tasks.
    last["tasks"][str(fio.pid)] = {
        "comm": "fio",
        "job": True,
        "nice": 0,
        "at_ns": last["at_ns"],
        "ran_ns": round((usage.ru_utime + usage.ru_stime) * 1e9),
        "waited_ns": 0,
        "voluntary_ctxt_switches": usage.ru_nvcsw,
        "nonvoluntary_ctxt_switches": usage.ru_nivcsw,
    }
    return {"first": first, "last": last, "reniced": []}


def _measure_job(
    journal: Journal,
    cell: Cell,
    job: FioJob,
    *,
    place: Workplace,
    observer: Observer,
) -> dict[str, Any]:
    """Run the job and return fio's report, the samples and the gates."""
    observer.before_work(job.start_delay_us)
    first = observer.sample(None) if job.to_end else {}
    fio, report, output = start_fio(journal, job, place, name=cell.id)
    try:
        if job.to_end:
            observed = _observe_to_end(job, fio, observer, first)
        else:
            observed = _observe_job(journal, cell, job, fio, observer)
    except subprocess.TimeoutExpired as error:
        raise IolabError(f"fio did not end within {_LATE_S:.0f} s after its run") from error
    finally:
        kill_group(fio)
    text = output.read_text(errors="replace").strip()
    if fio.returncode != 0:
        raise IolabError(f"fio ended with {fio.returncode}: {text[-500:]}")
    parsed = parse_report(report.read_text(errors="replace"))
    gates = report_gates(parsed, job)
    # fio's first process exists long before it starts the job.
    samples = (observed["first"], observed["last"])
    jobs = [{p for p, t in s["tasks"].items() if t["job"]} - {str(fio.pid)} for s in samples]
    if not (all(jobs) or job.to_end):
        gates.append("the job was not running when it was sampled: give it a longer ramp")
    unexpected = unexpected_files(job, place.folder) if has_files(cell) else []
    if unexpected := [name for name in unexpected if name != ANTAGONIST_FOLDER]:
        gates.append(f"fio made files of its own: {', '.join(unexpected)}")
    return {"fio": parsed, "fio_said": text, **observed, "gates": gates}


def _measure_program(
    journal: Journal, cell: Cell, program: Program, *, place: Workplace, observer: Observer
) -> dict[str, Any]:
    """Run a program between two samples; return its result, the samples and the gates.

    The steady part of a program that runs to its end is all of its run.
    """
    observer.before_work(program.start_delay_us)
    whole, recorder = program.runtime_ms is None, observer.recorder
    first = observer.sample(None) if whole else {}
    if whole and recorder is not None:
        recorder.open()
    running = RunningProgram(journal, program, place=place)
    try:
        steady_from_s = program.ramp_ms / 1e3
        steady_until_s = steady_from_s + (program.runtime_ms or program.limit_ms) / 1e3
        if not whole:
            observer.wait_for(running, steady_from_s)
            first = observer.sample(running.pid)
            if recorder is not None:
                recorder.open()
        if recorder is not None:
            window_ms = None if cell.recording is None else cell.recording.window_ms
            closes_s = steady_until_s if window_ms is None else steady_from_s + window_ms / 1e3
            observer.wait_for(running, min(closes_s, steady_until_s))
            recorder.close()
        ended = observer.wait_for(running, steady_until_s)
        last = observer.sample(running.pid)
        if whole and not ended:
            raise IolabError(f"the program did not end within {program.limit_ms} ms")
        if not whole:
            running.terminate()
        result = running.result()
    finally:
        running.kill()
    gates = program_gates(result, program, early=ended and not whole, stopped=not whole)
    return {"program": result, "first": first, "last": last, "gates": gates}


def _measure_work(
    journal: Journal, cell: Cell, *, place: Workplace, observer: Observer
) -> dict[str, Any]:
    if cell.copies is not None:
        return _measure_copies(cell.copies, place=place, observer=observer)
    if cell.job is not None:
        return _measure_job(journal, cell, cell.job, place=place, observer=observer)
    if cell.program is not None:
        return _measure_program(journal, cell, cell.program, place=place, observer=observer)
    raise IolabError(f"cell {cell.id} has no work")


def measure(
    journal: Journal, cell: Cell, *, place: Workplace, observer: Observer
) -> dict[str, Any]:
    """Run a cell's work, with its antagonist beside it, and measure it.

    Return a part of the cell's result (`iolab.results.CellResult`): the work's report or output,
    the samples, the gates, and ``antagonist``. Raises IolabError if either cannot be run; restoring
    kills what is left.
    """
    antagonist = observer.antagonist
    try:
        found = _measure_work(journal, cell, place=place, observer=observer)
        if antagonist is not None:
            found["antagonist"], gates = antagonist.stop((found["first"], found["last"]))
            found["gates"] += gates
    finally:
        if antagonist is not None:
            antagonist.kill()
    return found


# include/uapi/linux/inotify.h
_EVENTS = {"attrib": 0x4, "close_write": 0x8, "delete": 0x200}
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def watching(watch: Watch | None, node: Path | None) -> Iterator[None]:
    """Hold a watch, if there is one, for the duration of a ``with`` block; a watch needs a `node`.

    Raises CannotRunError if this kernel has no inotify or refuses the watch.
    """
    if watch is None or node is None:
        yield
        return
    path = {"node": node, "directory": node.parent, "other": node.parent / "zero"}[watch.on]
    handle = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if handle < 0:
        raise CannotRunError(f"no inotify here: {os.strerror(ctypes.get_errno())}")
    try:
        if _libc.inotify_add_watch(handle, os.fsencode(path), _EVENTS[watch.event]) < 0:
            raise CannotRunError(f"cannot watch {path}: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        os.close(handle)


# Workers that are bound to a core and have ordinary priority. High-priority workers, such as
# "kworker/0:1H", have a pool of their own (Documentation/core-api/workqueue.rst).
_BOUND = re.compile(r"kworker/(\d+):\d+(?![\dH])")


def renice_workers(journal: Journal, *, cpu: int, nice: int) -> int:
    """Set the nice value of a core's kernel workers; return how many were changed.

    The kernel gives a worker that it makes later its pool's nice value, 0 (create_worker() of
    kernel/workqueue.c): call this again. Raises PermissionError if the agent may not set it.
    """
    changed = 0
    for pid in processes():
        with suppress(FileNotFoundError, ProcessLookupError):
            comm, fields = stat_of(pid)
            match = _BOUND.match(comm)
            # Any process may have this name.
            if match is None or int(match.group(1)) != cpu or not is_kernel_thread(fields):
                continue
            old, start_time = int(fields[16]), fields[19]
            if old == nice:
                continue
            journal.note("nice", f"/proc/{pid}", f"{old} {start_time}")
            # It may have ended meanwhile.
            if stat_of(pid)[1][19] == start_time:
                os.setpriority(os.PRIO_PROCESS, pid, nice)
                changed += 1
    return changed
