# SPDX-License-Identifier: MIT
"""Run notebooks and blocks side by side, and report progress and the time left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from iolab.agent.proc import available_memory
from iolab.errors import IolabError
from iolab.files import atomic_write
from iolab.process import kill_group, start
from iolab.sweeps.ending import end_all, signals_held
from iolab.sweeps.handover import handed_over

__all__ = [
    "GIVEN",
    "BlockJob",
    "Job",
    "NotebookJob",
    "OnProgress",
    "Progress",
    "default_jobs",
    "run_job",
    "run_jobs",
]

# How the name of the file ends that a page's process is given; its log stands beside it.
GIVEN: Final = ".parameters.json"
_POLL_S = 0.5
# To put an end to its kernel and remove its folders, on a host with other work.
_GRACE_S = 10.0
_VM_BYTES = 2 << 30


class Job(Protocol):
    """A program that runs beside others.

    Its last line of output is JSON with its ``error`` if it fails.
    """

    @property
    def name(self) -> str:
        """Name in errors and progress."""

    @property
    def cells(self) -> int:
        """How much work it is."""

    @property
    def progress(self) -> Path | None:
        """File in which it writes how much is done."""

    @property
    def memory_bytes(self) -> int:
        """What its virtual machine may take."""

    @property
    def log(self) -> Path:
        """File of its output while it runs."""

    def argv(self) -> list[str | Path]:
        """Return the program with its arguments, after writing the files that it reads."""

    def clean(self) -> None:
        """Remove the files that it read."""


@dataclass(frozen=True)
class NotebookJob:
    """A page to be made: a notebook, its output, its parameters and its links (a `Job`).

    Not ``html``: the notebook alone. ``heading`` stands in the page for the notebook's own.
    """

    name: str
    notebook: Path
    output: Path
    parameters: dict[str, Any]
    cells: int = 0
    progress: Path | None = None
    memory_bytes: int = 0
    html: bool = True
    links: dict[str, str] = field(default_factory=dict)
    heading: str = ""

    @property
    def log(self) -> Path:
        """File of its output while it runs."""
        return self.output.with_suffix(".log")

    @property
    def _parameters(self) -> Path:
        return self.output.with_suffix(GIVEN)

    def argv(self) -> list[str | Path]:
        """Return the program with its arguments, after writing what it is given."""
        given = {"parameters": self.parameters, "links": self.links, "heading": self.heading}
        atomic_write(self._parameters, json.dumps(given))
        program: list[str | Path] = [sys.executable, "-m", "iolab.sweeps.page"]
        kind = "html" if self.html else "notebook"
        return [*program, self.notebook, self.output, self._parameters, kind]

    def clean(self) -> None:
        """Remove the parameters."""
        self._parameters.unlink(missing_ok=True)


@dataclass(frozen=True)
class BlockJob:
    """A block to be measured into the store below ``root``, without a page (a `Job`)."""

    name: str
    plan: Path
    root: Path
    cells: int
    memory_bytes: int

    @property
    def progress(self) -> Path:
        """File in which the block writes how far it is."""
        return self.plan.with_suffix(".progress")

    @property
    def log(self) -> Path:
        """File of its output while it runs."""
        return self.plan.with_suffix(".log")

    def argv(self) -> list[str | Path]:
        """Return the program with its arguments."""
        return [sys.executable, "-m", "iolab.sweeps.block", self.plan, self.root]

    def clean(self) -> None:
        """Keep the plan: it is part of what was measured."""


@dataclass
class Progress:
    """Jobs and cells done of all, and an estimate of the seconds left (None at first)."""

    jobs: int
    cells: int
    jobs_done: int = 0
    cells_done: int = 0
    seconds_left: float | None = None


OnProgress = Callable[[Progress], None]


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    cells_done: int = field(default=0)

    def look(self) -> None:
        if self.job.progress is not None:
            with suppress(OSError, ValueError, IndexError):
                self.cells_done = int(self.job.progress.read_text().split()[0])

    def error(self) -> str:
        said = self.job.log.read_text(errors="replace").strip()
        with suppress(ValueError, KeyError, IndexError, TypeError):
            return str(json.loads(said.splitlines()[-1])["error"])
        return f"ended with {self.process.returncode}: {said[-500:] or 'no message'}"


def _start(job: Job) -> _Running:
    argv = job.argv()
    # One BLAS thread each: the cores are busy with virtual machines.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("wb") as stream:
        process = start(argv, stdout=stream, stderr=subprocess.STDOUT, env=env)
    return _Running(job, process)


def _fits(job: Job, running: Sequence[_Running], memory_bytes: int | None) -> bool:
    """Tell whether a job has room beside the others; alone it is always tried."""
    if not running or memory_bytes is None:
        return True
    return job.memory_bytes + sum(r.job.memory_bytes for r in running) <= memory_bytes


def default_jobs() -> int:
    """Return how many virtual machines run side by side here: by cores and by free memory."""
    return max(1, min(len(os.sched_getaffinity(0)), available_memory() // _VM_BYTES))


def run_jobs(
    wanted: Iterable[Job],
    *,
    jobs: int,
    memory_bytes: int | None = None,
    on_progress: OnProgress = lambda progress: None,
    on_end: Callable[[Job, str], None] = lambda job, error: None,
) -> dict[str, str]:
    """Run jobs, `jobs` at a time, and return the error of each that failed by its name.

    No job begins that would take more than `memory_bytes` together with the others. All are killed
    with everything they started when this is interrupted. Pages know the pathologies that are
    registered here. `on_progress` hears the state twice a second, `on_end` of each job as it ends,
    with its error or "".
    """
    waiting = list(wanted)
    state = Progress(len(waiting), sum(job.cells for job in waiting))
    running: list[_Running] = []
    errors: dict[str, str] = {}
    began = time.monotonic()
    cells_of_ended = 0
    known = ExitStack()
    try:
        if pages := [job for job in waiting if isinstance(job, NotebookJob)]:
            known.enter_context(handed_over(pages[0].output.parent))
        while waiting or running:
            while waiting and len(running) < jobs and _fits(waiting[0], running, memory_bytes):
                with signals_held():
                    running.append(_start(waiting.pop(0)))
            time.sleep(_POLL_S)
            for entry in list(running):
                entry.look()
                if entry.process.poll() is None:
                    continue
                running.remove(entry)
                # What it left running (its notebook's kernel, a virtual machine) goes with it.
                kill_group(entry.process)
                error = entry.error() if entry.process.returncode else ""
                if error:
                    errors[entry.job.name] = error
                entry.job.log.unlink(missing_ok=True)
                entry.job.clean()
                state.jobs_done += 1
                cells_of_ended += entry.job.cells
                on_end(entry.job, error)
            state.cells_done = cells_of_ended + sum(r.cells_done for r in running)
            if state.cells_done:
                elapsed = time.monotonic() - began
                state.seconds_left = elapsed / state.cells_done * (state.cells - state.cells_done)
            on_progress(state)
    finally:
        end_all([entry.process for entry in running], grace_s=_GRACE_S)
        for entry in running:
            entry.job.log.unlink(missing_ok=True)
            entry.job.clean()
        known.close()
    return errors


def run_job(job: Job) -> None:
    """Run one job to its end.

    Raises
    ------
    IolabError
        If it failed; the message is its own.
    """
    if errors := run_jobs([job], jobs=1):
        raise IolabError(errors[job.name])
