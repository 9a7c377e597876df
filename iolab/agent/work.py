# SPDX-License-Identifier: MIT
"""Do and measure the work of one cell: a fio job, or dd processes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iolab.agent.copies import copies_gates, run_copies
from iolab.agent.cost import Cost
from iolab.agent.fio import fio_argv, parse_report, report_gates, unexpected_files
from iolab.agent.journal import Journal
from iolab.agent.observe import sample
from iolab.agent.plan import Cell, Copies, Job
from iolab.agent.probes import Probes
from iolab.agent.recording import Recorder
from iolab.agent.workers import renice_workers
from iolab.errors import IolabError
from iolab.process import kill_group, start

__all__ = ["RUN", "Observer", "has_files", "measure", "reports"]

# The agent's folder in memory.
RUN = Path("/run/iolab")
# fio starts its job a little later than its process: keeps both samples inside the job's run.
_MARGIN_S = 0.05


def reports(cell: Cell) -> tuple[Path, Path]:
    """Return the files for fio's report and for its other output."""
    return RUN / f"fio-{cell.id}.json", RUN / f"fio-{cell.id}.err"


class Observer:
    """Samples the kernel's counters while a cell runs; holds the recorder of a recorded cell."""

    def __init__(
        self, *, cpu: int, device: Path, probes: Probes | None, recorder: Recorder | None
    ) -> None:
        self.cpu = cpu
        self._device = device.name
        self._calls = dict if probes is None else probes.hits
        self.recorder = recorder
        self.cost = Cost()

    def sample(self, job: int | None) -> dict[str, Any]:
        """Return the counters, with those of the process `job` and its children."""
        with self.cost.sampling():
            return sample(cpu=self.cpu, device=self._device, job=job, calls=self._calls)


def _measure_copies(
    copies: Copies, files: Sequence[Path], *, group: Path | None, observer: Observer
) -> dict[str, Any]:
    """Run the copies between two samples; return their results, the samples and the gates."""
    if copies.start_delay_us:
        time.sleep(copies.start_delay_us / 1e6)
    recorder = observer.recorder
    first = observer.sample(None)
    if recorder is not None:
        recorder.open()
    done = run_copies(copies, files, cpu=observer.cpu, group=group)
    if recorder is not None:
        recorder.close()
    last = observer.sample(None)
    gates = copies_gates(copies, completed=last["ios"] - first["ios"])
    return {"copies": done, "first": first, "last": last, "gates": gates}


def _start_fio(
    journal: Journal, cell: Cell, argv: Sequence[str], *, group: Path | None
) -> subprocess.Popen[bytes]:
    report, output = reports(cell)
    journal.note("fio", str(report))
    with output.open("wb") as stream:
        return start(argv, stdout=stream, stderr=subprocess.STDOUT, cgroup=group)


def _observe_job(
    journal: Journal,
    cell: Cell,
    job: Job,
    fio: subprocess.Popen[bytes],
    observer: Observer,
) -> dict[str, Any]:
    """Sample at the start and the end of the job's steady part, and wait for the job's end.

    With a recorder the samples enclose its window.
    """
    began = time.monotonic()
    reniced = []

    def wait_until(at_s: float) -> None:
        time.sleep(max(0.0, began + at_s - time.monotonic()))

    def renice() -> None:
        if cell.worker_nice:
            reniced.append(renice_workers(journal, cpu=observer.cpu, nice=cell.worker_nice))

    steady_from_s = job.ramp_ms / 1e3 + _MARGIN_S
    steady_until_s = (job.ramp_ms + job.runtime_ms) / 1e3 - _MARGIN_S
    renice()
    # Workers that the kernel has made for the job, before anything is measured.
    wait_until(job.ramp_ms / 2e3)
    renice()
    wait_until(steady_from_s)
    first = observer.sample(fio.pid)
    window_ms = None if cell.recording is None else cell.recording.window_ms
    if observer.recorder is not None and window_ms is not None:
        observer.recorder.open()
        wait_until(min(steady_until_s, steady_from_s + window_ms / 1e3))
        observer.recorder.close()
    else:
        wait_until(steady_until_s)
    last = observer.sample(fio.pid)
    fio.wait((job.ramp_ms + job.runtime_ms) / 1e3 + 60)
    return {"first": first, "last": last, "reniced": reniced}


def _measure_job(
    journal: Journal,
    cell: Cell,
    job: Job,
    files: Sequence[Path],
    *,
    group: Path | None,
    observer: Observer,
) -> dict[str, Any]:
    """Run the job and return fio's report, the samples and the gates."""
    report, output = reports(cell)
    if job.start_delay_us:
        time.sleep(job.start_delay_us / 1e6)
    fio = _start_fio(journal, cell, fio_argv(job, files, report, cpu=observer.cpu), group=group)
    try:
        observed = _observe_job(journal, cell, job, fio, observer)
    except subprocess.TimeoutExpired as error:
        raise IolabError("fio did not end within 60 s after its run") from error
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
    if not all(jobs):
        gates.append("the job was not running when it was sampled")
    if has_files(cell) and (unexpected := unexpected_files(job, files[0].parent)):
        gates.append(f"fio made files of its own: {', '.join(unexpected)}")
    return {"fio": parsed, "fio_said": text, **observed, "gates": gates}


def measure(
    journal: Journal,
    cell: Cell,
    files: Sequence[Path],
    *,
    group: Path | None,
    observer: Observer,
) -> dict[str, Any]:
    """Run the cell's work and return its results."""
    if cell.copies is not None:
        return _measure_copies(cell.copies, files, group=group, observer=observer)
    if cell.job is not None:
        return _measure_job(journal, cell, cell.job, files, group=group, observer=observer)
    raise IolabError(f"cell {cell.id} has no work")


def has_files(cell: Cell) -> bool:
    """Return whether a cell's work is on files, not on the device itself."""
    return cell.filesystem is not None or cell.devices[-1].kind == "directory"
