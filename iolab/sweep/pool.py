# SPDX-License-Identifier: MIT
"""Execute notebooks side by side, and report progress and the time left."""

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
from typing import Any

from iolab.files import atomic_write
from iolab.process import kill_group, start
from iolab.sweep.handover import handed_over

__all__ = ["NotebookJob", "OnProgress", "Progress", "make_pages"]

_POLL_S = 0.5


@dataclass(frozen=True)
class NotebookJob:
    """A page to be made: a notebook, its output and its parameters.

    ``cells`` is how much work it is, ``progress`` a file in which it tells how much is done,
    ``memory_bytes`` what its virtual machine may take; not ``html``: the notebook alone.
    """

    name: str
    notebook: Path
    output: Path
    parameters: dict[str, Any]
    cells: int = 0
    progress: Path | None = None
    memory_bytes: int = 0
    html: bool = True


@dataclass
class Progress:
    """Pages and cells done of all, and an estimate of the seconds left (None at first)."""

    pages: int
    cells: int
    pages_done: int = 0
    cells_done: int = 0
    seconds_left: float | None = None


OnProgress = Callable[[Progress], None]


@dataclass
class _Running:
    page: NotebookJob
    process: subprocess.Popen[bytes]
    log: Path
    cells_done: int = field(default=0)

    def look(self) -> None:
        if self.page.progress is not None:
            with suppress(OSError, ValueError, IndexError):
                self.cells_done = int(self.page.progress.read_text().split()[0])

    def error(self) -> str:
        said = self.log.read_text(errors="replace").strip()
        with suppress(ValueError, KeyError, IndexError, TypeError):
            return str(json.loads(said.splitlines()[-1])["error"])
        return f"ended with {self.process.returncode}: {said[-500:] or 'no message'}"


def _start(page: NotebookJob) -> _Running:
    parameters = page.output.with_suffix(".parameters.json")
    atomic_write(parameters, json.dumps(page.parameters))
    log = page.output.with_suffix(".log")
    # One BLAS thread each: the cores are busy with virtual machines.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "iolab.sweep.page"]
    kind = "html" if page.html else "notebook"
    with log.open("wb") as stream:
        process = start(
            [*program, page.notebook, page.output, parameters, kind],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=env,
        )
    return _Running(page, process, log)


def _fits(page: NotebookJob, running: Sequence[_Running], memory_bytes: int | None) -> bool:
    """Tell whether a page has room beside the others; alone it is always tried."""
    if not running or memory_bytes is None:
        return True
    return page.memory_bytes + sum(r.page.memory_bytes for r in running) <= memory_bytes


def make_pages(
    pages: Iterable[NotebookJob],
    *,
    jobs: int,
    memory_bytes: int | None = None,
    on_progress: OnProgress = lambda progress: None,
    on_end: Callable[[NotebookJob, str], None] = lambda page, error: None,
) -> dict[str, str]:
    """Make pages, `jobs` at a time, and return the error of each that failed by its name.

    No page begins that would take more than `memory_bytes` together with the others. All are killed
    with everything they started when this is interrupted. They know the pathologies that are
    registered here. `on_progress` hears the state twice a second, `on_end` of each page as it ends,
    with its error or "".
    """
    waiting = list(pages)
    state = Progress(len(waiting), sum(p.cells for p in waiting))
    running: list[_Running] = []
    errors: dict[str, str] = {}
    began = time.monotonic()
    cells_of_ended = 0
    known = ExitStack()
    try:
        if waiting:
            known.enter_context(handed_over(waiting[0].output.parent))
        while waiting or running:
            while waiting and len(running) < jobs and _fits(waiting[0], running, memory_bytes):
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
                    errors[entry.page.name] = error
                entry.log.unlink(missing_ok=True)
                entry.page.output.with_suffix(".parameters.json").unlink(missing_ok=True)
                state.pages_done += 1
                cells_of_ended += entry.page.cells
                on_end(entry.page, error)
            state.cells_done = cells_of_ended + sum(r.cells_done for r in running)
            if state.cells_done:
                elapsed = time.monotonic() - began
                state.seconds_left = elapsed / state.cells_done * (state.cells - state.cells_done)
            on_progress(state)
    finally:
        for entry in running:
            kill_group(entry.process, grace_s=1.0)
        known.close()
    return errors
