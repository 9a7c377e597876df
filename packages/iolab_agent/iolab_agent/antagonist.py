# SPDX-License-Identifier: MIT
"""Run a cell's antagonist: a second job beside the measured one, until that has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab_agent.fio import FioError, parse_report, start_fio
from iolab_agent.journal import Journal
from iolab_agent.plan import Antagonist
from iolab_agent.program import Output, RunningProgram, program_gates
from iolab_agent.workplace import Workplace
from iolab_base.process import kill_group

# fio ends its jobs and writes its report.
_END_S = 30.0


class RunningAntagonist:
    """The antagonist of one cell: started once, sampled with the measured work, stopped after it.

    ``starts_s`` is in s from the start of the measured work; ``pid`` is None before it is started.
    """

    def __init__(
        self, journal: Journal, antagonist: Antagonist, *, name: str, place: Workplace
    ) -> None:
        self._journal = journal
        self._antagonist = antagonist
        self._name = f"{name}.antagonist"
        self._place = place
        self._fio: subprocess.Popen[bytes] | None = None
        self._report = self._said = Path()
        self._program: RunningProgram | None = None
        self._began_ns = 0
        self.starts_s = antagonist.start_ms / 1e3
        self.pid: int | None = None

    @property
    def group(self) -> Path | None:
        """Folder of its cgroup."""
        return self._place.group

    @property
    def outputs(self) -> list[Output]:
        """Outputs to read while the measured work runs."""
        return [] if self._program is None else [self._program.output]

    def start(self) -> None:
        """Start it; CannotRunError if fio is missing, else errors as `RunningProgram`."""
        job, program, place = self._antagonist.job, self._antagonist.program, self._place
        if program is not None:
            self._program = RunningProgram(self._journal, program, place=place)
            self.pid = self._program.pid
        if job is not None:
            self._fio, self._report, self._said = start_fio(
                self._journal, job, place, name=self._name
            )
            self.pid = self._fio.pid
        self._began_ns = time.monotonic_ns()

    def stop(self, samples: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
        """End it; return its result and why it makes the cell invalid.

        `samples` are those at the two ends of the steady part.
        """
        # fio's first process exists long before it starts the job.
        main = {str(self.pid)} if self._program is None else set()
        seen = [{p for p, t in s["tasks"].items() if t.get("antagonist")} - main for s in samples]
        gates = []
        if not all(seen):
            gates.append(
                "the antagonist was not running when the work was sampled: start it earlier "
                "(start_ms), or give the work a longer ramp"
            )
        if self._program is not None:
            found, more = self._stop_program(self._program)
        else:
            found, more = self._stop_fio()
        ended_ns = time.monotonic_ns()
        gates += [f"antagonist: {reason}" for reason in more]
        return {"began_ns": self._began_ns, "ended_ns": ended_ns, **found}, gates

    def kill(self) -> None:
        """Kill it, if it still runs; restoring the journal kills the rest."""
        if self._program is not None:
            self._program.kill()
        if self._fio is not None:
            kill_group(self._fio)

    def _stop_program(self, running: RunningProgram) -> tuple[dict[str, Any], list[str]]:
        early = running.has_ended()
        if not early:
            running.terminate()
        result = running.result()
        gates = program_gates(result, running.program, early=early, stopped=not early)
        return {"program": result}, gates

    def _stop_fio(self) -> tuple[dict[str, Any], list[str]]:
        if self._fio is None:
            return {}, ["it was never started"]
        gates = []
        if self._fio.poll() is not None:
            gates.append("its job ended before the measured work")
        with suppress(ProcessLookupError):
            os.kill(self._fio.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._fio.wait(_END_S)
        kill_group(self._fio)
        said = self._said.read_text(errors="replace").strip()
        try:
            report = parse_report(self._report.read_text(errors="replace"))
        except (FioError, OSError) as error:
            return {"fio_said": said}, [*gates, str(error), *said.splitlines()[-1:]]
        jobs = report["jobs"]
        gates += [f"fio reports error {job['error']}" for job in jobs if job.get("error")]
        if not any(job[side]["total_ios"] for job in jobs for side in ("read", "write")):
            gates.append("fio did no I/O")
        return {"fio": report, "fio_said": said}, gates
