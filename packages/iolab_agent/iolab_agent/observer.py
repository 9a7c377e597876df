# SPDX-License-Identifier: MIT
"""Watch a cell's work: samples of the kernel's counters, the recording, the antagonist."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from iolab_agent.antagonist import RunningAntagonist
from iolab_agent.observe import Cost, Others, sample
from iolab_agent.program import RunningProgram, pause
from iolab_agent.recording import Recorder


class Observer:
    """Samples the kernel's counters while a cell runs, and carries what runs beside its work."""

    def __init__(
        self,
        *,
        cpu: int,
        cores: Sequence[int],
        groups: Mapping[str, Path],
        device: str | None,
        calls: Callable[[], dict[str, int]],
        recorder: Recorder | None,
        antagonist: RunningAntagonist | None,
        threads: bool,
    ) -> None:
        self.cpu = cpu
        self._cores, self._groups = cores, groups
        self._device = device
        self._calls = calls
        self._others = Others()
        self.recorder = recorder
        self.antagonist = antagonist
        self._threads = threads
        self.cost = Cost()

    def sample(self, job: int | None) -> dict[str, Any]:
        """Return the counters, with those of the process `job` and its children."""
        with self.cost.sampling():
            return sample(
                cpu=self.cpu,
                device=self._device,
                job=job,
                antagonist=None if self.antagonist is None else self.antagonist.pid,
                threads=self._threads,
                calls=self._calls,
                cores=self._cores,
                groups=self._groups,
                others=self._others,
            )

    def before_work(self, delay_us: int) -> None:
        """Start an antagonist that comes first, and wait until the work is to start."""
        antagonist = self.antagonist
        if antagonist is not None and antagonist.starts_s <= 0:
            antagonist.start()
            self.wait_until(time.monotonic() - antagonist.starts_s)
        if delay_us:
            time.sleep(delay_us / 1e6)

    def wait_until(self, until: float) -> None:
        """Sleep until a moment (time.monotonic())."""
        pause(until, [] if self.antagonist is None else self.antagonist.outputs)

    def wait_from(self, began: float, at_s: float) -> None:
        """Sleep until `at_s` after the work began; start an antagonist that is due before."""
        self._start_antagonist_before(began, at_s)
        self.wait_until(began + at_s)

    def wait_for(self, running: RunningProgram, at_s: float) -> bool:
        """Sleep until `at_s` after a program began, or its end; return whether it has ended."""
        began = running.began_ns / 1e9
        self._start_antagonist_before(began, at_s)
        beside = [] if self.antagonist is None else self.antagonist.outputs
        return pause(began + at_s, [running.output, *beside], running.end)

    def _start_antagonist_before(self, began: float, at_s: float) -> None:
        antagonist = self.antagonist
        if antagonist is not None and antagonist.pid is None and antagonist.starts_s <= at_s:
            self.wait_until(began + antagonist.starts_s)
            antagonist.start()
