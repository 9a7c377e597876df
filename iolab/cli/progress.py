# SPDX-License-Identifier: MIT
"""Progress of a sweep on standard error: a bar on a terminal, occasional lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from iolab import shown
from iolab.logs import lines_shown
from iolab.sweeps import pool

__all__ = ["SweepProgress"]


class SweepProgress:
    """Shows the progress of a sweep: ``with SweepProgress() as progress``."""

    def __init__(self) -> None:
        # Lines are text, not markup.
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("measuring", total=1, left="")
        self._last: tuple[int, int] = (-1, -1)
        self._running = False
        self._lines = lines_shown(self.log)

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lines.__exit__(kind, error, traceback)
        # A bar that never started would end with an empty line.
        if self._running:
            self._bar.stop()

    def log(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        self._console.print(shown.terminal(line), soft_wrap=True)

    def update(self, state: pool.Progress) -> None:
        """Show the state: at once on a terminal, elsewhere after each block and tenth of cells."""
        if not state.cells:
            return
        text = f"{state.jobs_done}/{state.jobs} blocks, {state.cells_done}/{state.cells} cells"
        left = _time_left(state.seconds_left)
        if self._console.is_terminal:
            if not self._running:
                self._bar.start()
                self._running = True
            self._bar.update(
                self._task,
                completed=state.cells_done,
                total=state.cells,
                description=text,
                left=left,
            )
        elif (step := (state.jobs_done, state.cells_done * 10 // state.cells)) != self._last:
            self._last = step
            self.log(f"{text}, {left}")


def _time_left(seconds: float | None) -> str:
    if seconds is None:
        return "time left: not known yet"
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes}:{rest:02d} left"
